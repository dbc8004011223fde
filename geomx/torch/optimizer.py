"""An optimizer of PyTorch that trains with everybody else in the job.

What a training loop does stays what it was: backward, then ``step``. Underneath, the job's sync
policy decides.

* **Policies that exchange gradients**: each leaves as soon as the backward pass has accumulated it.
  Global servers update and answer with new weights; a module's next forward pass waits for the
  parameters that are its own, not for those of the layers behind it.
* **Policies that exchange parameters**: every ``step`` is one of the wrapped optimizer alone; when
  the policy says so, parameters leave, and what comes back is waited for in the same way.

Waiting for a layer is done by hooks on modules. A module that is never called, because somebody
uses its parameters directly, has them waited for by the module around it.
"""

from __future__ import annotations

import time
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch

from geomx import kv
from geomx.errors import ConfigError, GeomxError
from geomx.experiment.native_parts import check_optimizer, chosen_optimizers
from geomx.live.member import naming_the_lost
from geomx.plugin.parts import optimizer_text
from geomx.torch.exchange import claimed, shaped
from geomx.torch.numbers import groups, keeps_state, translated
from geomx.torch.slots import OWN_CHANGED, Slot, trained
from geomx.torch.waiting import watching
from geomx.training.steps import UNKNOWN, Steps

Update = Literal["servers", "worker"]
_STATE = "geomx"


class Optimizer(torch.optim.Optimizer):
    """`optimizer`, as one worker of a job; a job of one worker if the script was not launched.

    Every parameter of `model` starts from the first worker's value. Buffers (running means of a
    batch normalisation) stay each worker's own.

    Args:
        optimizer: Of PyTorch; holds parameters of `model`.
        model: What is trained. Load a checkpoint into it before.
        steps: Calls of `step` in all, for the policies that care; the last one synchronises. Where
            a policy gives every worker a number of its own, those of the slowest; loop until
            `done`.
        update: Where gradients are exchanged: ``servers`` update with a translation of `optimizer`
            (SGD, Adam, AdamW with fixed rates) and answer with weights; or they answer with the
            gradient's sum, and every ``worker`` updates with `optimizer` itself, in `step`.
        overlap: Whether gradients leave, and parameters are waited for, one by one. If not, all of
            it happens in `step`, so that gradients may be changed after the backward pass (clipped,
            unscaled) and parameters are used in any order.
        passes: Backward passes before each `step`, whose gradients add up.
        store: Of this worker; by default `geomx.kv.create`'s.

    Raises:
        ConfigError: Servers cannot run `optimizer`, or the policy forbids `update`.
        GeomxError: `optimizer` holds what is not a parameter of `model`, or the process has wrapped
            one already.
        NodeLost: A node of the job died.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        model: torch.nn.Module,
        *,
        steps: int | None = None,
        update: Update = "servers",
        overlap: bool = True,
        passes: int = 1,
        store: kv.KVStore | None = None,
    ) -> None:
        # PyTorch's constructor would keep groups and a state of its own, and is not called.
        self.inner = optimizer
        self._store = store or kv.create()
        self._member = self._store.member
        self._overlap = overlap
        self._passes = passes
        for option, count in (("steps", steps), ("passes", passes)):
            if count is not None and count < 1:
                raise ConfigError(option, count, "must be 1 or more")
        policy, cluster = self._member.policy, self._member.spec.cluster
        planned = UNKNOWN if steps is None else steps
        self._steps = Steps(policy, cluster, self._member.node, planned)
        self._by_gradients = self._steps.exchange == "gradients"
        if steps is None and self._steps.consults:
            sync, _ = self._member.spec.sync
            remedy = f"sync={sync} has to know it; loop while not optimizer.done"
            raise ConfigError("steps", None, remedy)
        named = dict(model.named_parameters())
        self._slots = trained(optimizer, named)
        self._exchange = claimed(self._store, copy=False)
        self._in_worker = _checked(update) == "worker" and self._by_gradients
        self._told: list[dict[str, Any]] | None = None
        self._steps_locally = self._kept_away = False
        self._choose()
        self._introduce(named)
        self._begun = self._averaged = self._warned = False
        self._syncs = False
        self._since = time.monotonic()
        self._waiting = watching(model, self._slots, self._exchange)
        weakref.finalize(self, self._waiting.end).atexit = False
        for slot in self._slots:
            slot.parameter.register_post_accumulate_grad_hook(_reporting(self, slot))

    # ---- what loops and schedules see ----

    @property
    def rank(self) -> int:
        """Position of this worker among all; what a script slices its data by."""
        return self._store.global_rank

    @property
    def workers(self) -> int:
        """How many workers there are in all parties."""
        return self._store.num_all_workers

    @property
    def done(self) -> bool:
        """Whether the last step has been made, of `steps` or of as many as the policy gives."""
        return self._steps.last and not self._begun

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The wrapped optimizer's."""
        return self.inner.param_groups  # type: ignore[no-any-return]

    @property
    def state(self) -> Any:
        """The wrapped optimizer's; empty where servers update."""
        return self.inner.state

    @property
    def defaults(self) -> dict[str, Any]:
        """The wrapped optimizer's."""
        return self.inner.defaults  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"geomx.torch.Optimizer({self.inner!r})"

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuse: everybody has to introduce the same parameters at once.

        Raises:
            GeomxError: Always.
        """
        raise GeomxError("add the parameter group before wrapping the optimizer")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients, as PyTorch does."""
        self.inner.zero_grad(set_to_none)

    # ---- the training loop ----

    def step(self, closure: Callable[[], float] | None = None) -> None:
        """End a local step: what has not left yet leaves, and policies are asked.

        Gradients belong to the store once they have left, so where servers update every
        parameter's ``grad`` is None afterwards. The last step waits for all values.

        Raises:
            GeomxError: A gradient was changed after it had left; a learning rate was, which servers
                do not hear of; there is a `closure`; or the last step has been made already.
            NodeLost: A node of the job died.
        """
        if closure is not None:
            raise GeomxError("a closure computes gradients several times a step, which would leave")
        self._begin()
        if self._by_gradients and self._syncs and not self._averaged:
            self._check_rates()
            self._send_the_rest()
        computed_s = time.monotonic() - self._since - self._waiting.seconds
        if self._in_worker and self._syncs:
            if not self._averaged:
                self._take_sums()
            self.inner.step()
        elif self._steps_locally:
            self.inner.step()
        if self._syncs:
            self._synchronise(computed_s)
        self._begun = self._averaged = False
        for slot in self._slots:
            slot.forget()
        self._waiting.learn()
        if self._steps.last or not self._overlap:
            self.wait()
        if self._steps.last:
            self._waiting.end()
        self._since, self._waiting.seconds = time.monotonic(), 0.0

    def average(self) -> None:
        """Put the mean gradient of all workers in the place of this one's, before `step`.

        For what is to be done to the mean, such as ``torch.nn.utils.clip_grad_norm_``; all workers
        call it, in every step. Where no worker has a gradient, ``grad`` is None.

        Raises:
            GeomxError: Global servers update, or parameters are exchanged; or a gradient was
                changed after it had left.
            NodeLost: A node of the job died.
        """
        if not self._in_worker:
            raise GeomxError(
                "there is no mean gradient here: geomx.torch.Optimizer(..., update='worker') has "
                "it, under sync policies that exchange gradients"
            )
        self._begin()
        if self._syncs and not self._averaged:
            self._send_the_rest()
            self._take_sums()
            self._averaged = True

    def wait(self) -> None:
        """Wait until all parameters are those after the last `step`.

        Forward passes and the model's ``state_dict`` do so by themselves; who looks at parameters
        in other ways calls this first.

        Raises:
            NodeLost: A node of the job died.
        """
        self._waiting.everything()

    # ---- checkpoints ----

    def state_dict(self) -> dict[str, Any]:
        """The wrapped optimizer's, and how many steps were made.

        What an optimizer that runs on global servers remembers (momentum) is not in it; a warning
        says so.
        """
        if self._kept_away:
            warnings.warn(
                f"global servers keep the state of {type(self.inner).__name__}, which is not in a "
                "checkpoint: geomx.torch.Optimizer(..., update='worker') keeps it here",
                stacklevel=2,
            )
        return {**self.inner.state_dict(), _STATE: {"step": self._steps.step}}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned, or from a state of the wrapped optimizer's kind.

        All workers do it, between two steps. Servers begin afresh with the numbers that were
        loaded.

        Raises:
            ConfigError: Servers cannot run the optimizer with these numbers.
            NodeLost: A node of the job died.
        """
        state = dict(state_dict)
        own = state.pop(_STATE, None)
        self.inner.load_state_dict(state)
        if own is not None:
            self._steps.step = own["step"]
        self._choose()
        self._store.barrier()

    # ---- the beginning ----

    def _choose(self) -> None:
        """Who steps with which optimizer; tells the global servers, if this worker does that."""
        member = self._member
        policy, cluster = member.policy, member.spec.cluster
        if self._in_worker:
            if not policy.together:
                name, _ = member.spec.sync
                raise ConfigError("update", "worker", f"sync={name} updates on the global servers")
            return
        keys = {id(slot.parameter): slot.key for slot in self._slots}
        own = {"name": "torch", "learning_rate": 0.0}  # for policies that have one of their own
        numbers = translated(self.inner, keys) if self._by_gradients else own
        at_servers, here = chosen_optimizers(cluster, member.selection, numbers)
        check_optimizer(member.selection, at_servers)
        self._steps_locally = here is not None
        if self._by_gradients:
            self._told, self._kept_away = groups(self.inner), keeps_state(numbers)
        if at_servers is not None and self._store.is_master_worker:
            with naming_the_lost(member.loop):
                member.loop.command("optimizer\n" + optimizer_text(at_servers))

    def _introduce(self, named: Mapping[str, torch.Tensor]) -> None:
        """Give every parameter a key, and everyone the first worker's values."""
        names = list(named)
        self._store.init(names, [shaped(parameter) for parameter in named.values()])
        for name, parameter in named.items():
            self._exchange.pull(self._store.entry(name).key, [parameter])

    # ---- the parts of a step ----

    def _begin(self) -> None:
        """Begin a step, unless it has begun."""
        if self._begun:
            return
        if self._steps.last:
            raise GeomxError("the last step has been made; loops can ask for `done`")
        self._steps.begin()
        self._syncs = self._steps.synchronises()
        self._begun = True

    def _appeared(self, slot: Slot) -> None:
        """A backward pass has accumulated a gradient."""
        self._begin()
        if self._waiting.expects(slot):
            raise GeomxError(
                f"{slot.name} was used before its value had come, outside of a call of its module: "
                "geomx.torch.Optimizer(..., overlap=False) waits for all values in step()"
            )
        slot.reached()
        if slot.backwards > self._passes:
            raise GeomxError(
                f"{slot.name} had {slot.backwards} backward passes before one step: "
                f"geomx.torch.Optimizer(..., passes={slot.backwards}) adds them up"
            )
        ready = self._by_gradients and slot.backwards == self._passes
        if ready and self._overlap and self._syncs:
            self._send_gradient(slot)

    def _send_the_rest(self) -> None:
        """What has not left during the backward pass."""
        for slot in self._slots:
            if slot.sent is None:
                self._warn_of_change(slot)
                self._send_gradient(slot)
            slot.check_untouched()

    def _warn_of_change(self, slot: Slot) -> None:
        """Say once that what the script did was done to one worker's gradients."""
        if self.workers > 1 and not self._warned and slot.changed():
            self._warned = True
            warnings.warn(OWN_CHANGED, stacklevel=4)

    def _send_gradient(self, slot: Slot) -> None:
        """Zeros where there is none: other workers may have one, and wait for everybody's."""
        gradient = slot.parameter.grad
        if gradient is None:
            self._send(slot, torch.zeros_like(slot.parameter), absent=True)
            return
        slot.sent, slot.version = gradient, gradient._version
        scale = float(self._steps.scale)
        self._send(slot, gradient if scale == 1.0 else gradient * scale)

    def _send(self, slot: Slot, tensor: torch.Tensor, absent: bool = False) -> None:
        last = self._steps.last
        self._exchange.push(slot.key, tensor, priority=-slot.key, last=last, absent=absent)

    def _check_rates(self) -> None:
        if self._told is not None and groups(self.inner) != self._told:
            raise GeomxError(
                "the optimizer's numbers were changed, of which global servers do not hear: "
                "geomx.torch.Optimizer(..., update='worker') steps here"
            )

    def _take_sums(self) -> None:
        """Put all workers' mean gradient in the place of this one's; None if none has one."""
        for slot in self._slots:
            total = torch.empty_like(slot.parameter)
            self._waiting.timed(slot.key, total)
            absent = slot.sent is None and self._exchange.absent(slot.key) and not total.any()
            slot.parameter.grad = None if absent else total.div_(self.workers)

    def _synchronise(self, computed_s: float) -> None:
        if not self._by_gradients:
            for slot in self._slots:
                # A copy: the answer overwrites the parameter, and late pieces may not have left.
                self._send(slot, slot.parameter.detach() * float(self._steps.scale))
        if not self._in_worker:
            self._waiting.expect(self._slots)
        if self._by_gradients and not self._in_worker:
            for slot in self._slots:
                slot.parameter.grad = None
        report = self._steps.report(computed_s)
        if report is not None:
            self._steps.reply(self._member.consult(report))


def _checked(update: str) -> str:
    if update not in ("servers", "worker"):
        raise ConfigError("update", update, "must be servers or worker")
    return update


def _reporting(optimizer: Optimizer, slot: Slot) -> Callable[[torch.Tensor], None]:
    """A hook on a parameter: without a reference to `optimizer`, which holds the parameter. Python
    does not see what a tensor's hooks hold, and could never take back such a circle."""
    reference, number = weakref.ref(optimizer), optimizer._slots.index(slot)

    def appeared(_: torch.Tensor) -> None:
        owner = reference()
        if owner is not None:
            owner._appeared(owner._slots[number])

    return appeared
