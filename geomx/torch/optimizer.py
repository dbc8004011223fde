"""A PyTorch optimizer that trains together with the other workers of the job.

The training loop is unchanged: backward, then ``step``. Internally, the job's sync policy decides.

* **Policies that exchange gradients**: each gradient is sent as soon as the backward pass has
  accumulated it. Global servers update and answer with new weights; a module's next forward pass
  waits for its own parameters, not for those of the layers after it.
* **Policies that exchange parameters**: every ``step`` is one of the wrapped optimizer alone; when
  the policy requests it, parameters are sent, and the answer is awaited in the same way.

Hooks on modules wait for a layer. If a module is never called, because its parameters are used
directly, the enclosing module waits for them.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch

from geomx import kv
from geomx.errors import ConfigError, GeomxError, Left
from geomx.live.sync_steps import scaled
from geomx.torch.amp import undo_scale
from geomx.torch.answers import elements, expect, sent
from geomx.torch.arguments import check_kinds, checked_update
from geomx.torch.checkpoints import fetched, restore
from geomx.torch.choice import chosen
from geomx.torch.exchange import check_numbers, claimed, introduce, mean
from geomx.torch.numbers import check_told
from geomx.torch.slots import OWN_CHANGED, Slot, check_unchanged, frozen, trained, weakly
from geomx.torch.waiting import watching
from geomx.torch.wrapper import Wrapper
from geomx.training.steps import UNKNOWN, Steps, checked_count

Update = Literal["servers", "worker"]
_STATE = "geomx"
_COMPILED = "_orig_mod."  # what torch.compile puts before names


class Optimizer(Wrapper):
    """`optimizer` as one worker of a job; a job of one worker if the script was not launched.

    Every parameter of `model` starts from the first worker's value. Buffers (running means of a
    batch normalisation) remain local to each worker.

    Args:
        optimizer: An optimizer of PyTorch with parameters of `model`.
        model: The model to train. Load a checkpoint into it beforehand.
        steps: Total number of calls of `step`, for policies that need it; the last one
            synchronises. If a policy gives each worker its own number, the one from which it plans
            (that of the slowest or the fastest worker, as its page says); loop until `done`.
        update: If gradients are exchanged: ``servers`` update with a translation of `optimizer`
            (SGD, Adam, AdamW with fixed rates) and answer with weights; or they answer with the sum
            of gradients, and every ``worker`` updates with `optimizer` itself, in `step`.
        overlap: Whether gradients are sent, and parameters awaited, one by one. If not, all of this
            happens in `step`, so that gradients may be changed after the backward pass (clipped,
            unscaled) and parameters used in any order.
        passes: Backward passes before each `step`, whose gradients add up.
        store: Store of this worker; by default that of `geomx.kv.create`.

    Raises:
        ConfigError: Servers cannot run `optimizer`, the policy does not allow `update`, or an
            argument is of another kind.
        GeomxError: `optimizer` has tensors that are no parameters of `model`, the process has
            wrapped an optimizer already, or float32 would round whole numbers of a parameter.
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
        check_kinds(optimizer, model)
        super().__init__(optimizer)
        self._store = store or kv.create()
        self._member = self._store.member
        self._overlap = overlap
        self._passes = checked_count("passes", passes)
        policy, cluster = self._member.policy, self._member.spec.cluster
        planned = UNKNOWN if steps is None else checked_count("steps", steps)
        self._member.plans(planned)
        self._steps = Steps(policy, cluster, self._member.node, planned)
        self._by_gradients = self._steps.exchange == "gradients"
        if steps is None and self._steps.consults:
            sync, _ = self._member.spec.sync
            remedy = f"sync={sync} needs it; loop while not optimizer.done"
            raise ConfigError("steps", None, remedy)
        # Workers agree on names whether or not they compile the model.
        named = {name.replace(_COMPILED, ""): each for name, each in model.named_parameters()}
        self._slots, self._frozen = trained(optimizer, named), frozen(optimizer, named)
        self._steps.train(elements(named.values(), self._slots))
        self._exchange = claimed(self._store, copy=False)
        self._in_worker = checked_update(update) == "worker" and self._by_gradients
        self._choice = chosen(self._store, optimizer, self._slots, self._in_worker)
        self._introduce(named)
        if self._by_gradients and not self._in_worker and not self._choice.steps_locally:
            for slot in self._slots:
                slot.keep()
        self._begun = self._averaged = self._dropped = self._warned = False
        self._syncs = False
        self._member.begins()
        self._since = self._member.now()
        self._waiting = watching(model, self._slots, self._exchange, self._member.now)
        weakref.finalize(self, self._waiting.end).atexit = False
        for number, slot in enumerate(self._slots):
            slot.parameter.register_post_accumulate_grad_hook(weakly(self._appeared, number))

    # ---- properties for loops and schedules ----

    @property
    def rank(self) -> int:
        """Position of this worker among all, by which a script slices its data."""
        return self._store.global_rank

    @property
    def workers(self) -> int:
        """Number of workers of all parties."""
        return self._store.num_all_workers

    @property
    def made(self) -> int:
        """Steps made so far, by a lost process in whose place this one is too."""
        return self._steps.step + (0 if self._begun else 1)

    @property
    def done(self) -> bool:
        """Whether the last step has been made: of `steps`, or of as many as the policy assigns."""
        return self._steps.last and (not self._begun or self._dropped)

    # ---- the training loop ----

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """End a local step: send what has not been sent yet, and consult the sync policy.

        Gradients belong to the store once they are sent, so if servers update, every parameter's
        ``grad`` is None afterwards. The last step waits for all values, and so does every step with
        a hook after it (`register_step_post_hook`), which finds the new parameters.

        Args:
            closure: If parameters are exchanged: computes gradients and returns the loss, as often
                as the wrapped optimizer calls it.

        Returns:
            What the wrapped optimizer returns if there is a `closure`, else None.

        Raises:
            GeomxError: A gradient was changed after it was sent; a learning rate or a parameter was
                changed, which servers do not notice; a parameter that was frozen when its optimizer
                was wrapped has a gradient; a parameter was added since; there is a `closure`, and
                gradients are exchanged; or the last step was made already.
            NodeLost: A node of the job died.
        """
        if closure is not None and (self._by_gradients or not self._choice.steps_locally):
            raise GeomxError(
                "step(closure) may compute gradients several times, where each is sent once: call "
                "closure() and then step(), or use a sync policy that exchanges parameters"
            )
        self._begin(another=False)
        usable = undo_scale(self, self._slots)
        if not usable:
            super().zero_grad()  # like a dropped batch, for which other workers do not wait
        if self._choice.steps_locally:
            self.wait()  # also for those of modules that were not called, which are sent again
        loss = None if closure is None else self.inner.step(closure)
        check_unchanged(self.inner, self._slots, self._frozen)
        if self._by_gradients and self._syncs and not self._averaged:
            check_told(self.inner, self._choice.told)
            self._send_the_rest()
        computed_s = self._computed()
        if self._in_worker and self._syncs:
            if not self._averaged:
                self._take_sums()
                usable = True  # the mean, to which this worker may have added nothing
            if usable:
                self.inner.step()
        elif self._choice.steps_locally and closure is None and usable:
            self.inner.step()
        self._end(computed_s)
        return loss

    def _computed(self) -> float:
        """Note that the step is computed; return the seconds that it took."""
        self._member.computed()
        return self._member.now() - self._since - self._waiting.seconds

    def _end(self, computed_s: float) -> None:
        """End a step, and begin to wait for what it has changed."""
        self._synchronise(computed_s)
        self._begun = self._averaged = self._dropped = False
        self._member.made = self.made
        for slot in self._slots:
            slot.forget()
        self._waiting.learn()
        if self._steps.last or not self._overlap or self._optimizer_step_post_hooks:
            self.wait()
        if self._steps.last:
            self._waiting.end()
        else:
            self._member.begins()
            if self._steps.flights is not None:
                self._begin()  # which knows whether it is the last one
                expect(self._waiting, self._slots, self._steps.flights, early=True)
        self._since, self._waiting.seconds = self._member.now(), 0.0

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients, as PyTorch does.

        Those that have not been sent count no more. After `average`, a backward pass may follow
        instead of `step`, on all workers.
        """
        super().zero_grad(set_to_none)
        self._dropped = self._averaged
        for slot in self._slots:
            slot.withdraw()

    def average(self) -> None:
        """Replace gradients by the mean of all workers' gradients, before `step`.

        For operations on the mean, such as ``torch.nn.utils.clip_grad_norm_``; all workers call it
        in every step. ``grad`` is None if no worker has a gradient. All may leave the step out,
        with `zero_grad` and the next backward pass.

        Raises:
            GeomxError: Global servers update, or parameters are exchanged; or a gradient was
                changed after it was sent.
            NodeLost: A node of the job died.
        """
        if not self._in_worker:
            raise GeomxError(
                "there is no mean gradient here: it needs geomx.torch.Optimizer(..., "
                "update='worker') and a sync policy that exchanges gradients"
            )
        self._begin()
        if self._syncs and not self._averaged:
            self._send_the_rest()
            self._take_sums()
            self._averaged = True

    def wait(self) -> None:
        """Wait until all parameters are those after the last `step`.

        Forward passes and the model's ``state_dict`` do so; call this before other reads.

        Raises:
            NodeLost: A node of the job died.
        """
        self._waiting.everything()

    # ---- checkpoints ----

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state, and the number of steps made.

        On the first worker, the state of an optimizer on the global servers (momentum) is included;
        where the parties keep the weights, it is not, and a warning says so.
        """
        self._before_saving()
        self.wait()
        own = fetched(self._store, self._choice, type(self.inner).__name__)
        state = {**self.inner.state_dict(), _STATE: {"step": self.made - 1, **own}}
        return self._after_saving(state)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned, or a state of the wrapped optimizer.

        All workers call it, between two steps; servers continue from their state if it is included.
        Warns if a state in it is not used, or if it lacks the servers' state. Where a process takes
        a lost one's place, steps and servers stay where its job is, if that is further.

        Raises:
            ConfigError: Servers cannot run the optimizer with these numbers.
            GeomxError: The servers' state is damaged, or of another optimizer or other tensors.
            NodeLost: A node of the job died.
        """
        state = self._before_loading(state_dict)
        own = state.pop(_STATE, None)
        self.inner.load_state_dict(state)
        begun = self._store.rounds > 0 and not self._steps.made  # the job, but not this process
        if own is not None and not (begun and own["step"] < self._steps.step):
            self._steps.follow(own["step"])
            self._begun = False
            self._member.made = self.made
            if self._steps.last:
                self._waiting.end()
        goes_on = begun and self._store.goes_on
        self._choice = chosen(self._store, self.inner, self._slots, self._in_worker, not goes_on)
        if not goes_on:
            restore(self._store, self._choice, own, bool(state["state"]))
        if not (self._in_worker or self._choice.steps_locally):
            self.inner.state.clear()  # servers step in its place
        self._store.barrier()
        self._after_loading()

    # ---- initialisation ----

    def _introduce(self, named: Mapping[str, torch.Tensor]) -> None:
        """Give every parameter a key, and set it to the first worker's value."""
        check_numbers(self._store, named)
        introduce(self._store, self._exchange, named, {slot.name for slot in self._slots})
        if self._store.rounds:
            self._steps.resume(self._store.rounds)
        self._store.load_states()

    # ---- the parts of a step ----

    def _begin(self, another: bool = True) -> None:
        """Begin a step, unless it has begun; `another`: one that was left out ends before."""
        if self._dropped and another:
            self._end(self._computed())
        if self._begun:
            return
        if self._store.leaving:
            if self._steps.last:
                raise Left
            self._steps.leave()
        elif self._steps.last:
            raise GeomxError(f"the last step has been made, of {self.made}: loop until `done`")
        self._steps.begin()
        self._syncs = self._steps.synchronises()
        self._begun = True

    def _appeared(self, number: int, _: torch.Tensor) -> None:
        """Handle a gradient that a backward pass has accumulated, of the slot of that number."""
        slot = self._slots[number]
        self._begin()
        if self._waiting.expects(slot):
            raise GeomxError(
                f"{slot.name} was used before its value arrived, outside of a call of its module: "
                "geomx.torch.Optimizer(..., overlap=False) waits for all values in step()"
            )
        if not self._by_gradients:
            return  # however many passes: the optimizer here uses the gradients
        slot.reached(self._averaged)
        if slot.backwards == self._passes and self._overlap and self._syncs:
            self._send_gradient(slot)

    def _send_the_rest(self) -> None:
        """Send gradients that were not sent during the backward pass."""
        for slot in self._slots:
            if slot.sent is None:
                self._warn_of_change(slot)
                self._send_gradient(slot)
            slot.check_untouched()

    def _warn_of_change(self, slot: Slot) -> None:
        """Warn once if the script has changed this worker's gradients before the mean is taken."""
        if self.workers > 1 and not self._warned and slot.changed():
            self._warned = True
            warnings.warn(OWN_CHANGED, stacklevel=4)

    def _send_gradient(self, slot: Slot) -> None:
        """Send a gradient, or zeros if there is none, since other workers wait for all."""
        slot.check_kept(self._waiting.timed)
        gradient = slot.parameter.grad
        if gradient is None:
            self._send(slot, torch.zeros_like(slot.parameter), absent=True)
            return
        slot.check_dense()
        slot.sent, slot.version = gradient, gradient._version
        scale = float(self._steps.scale)
        self._send(slot, gradient if scale == 1.0 else scaled(gradient, scale))

    def _send(self, slot: Slot, tensor: torch.Tensor, absent: bool = False) -> None:
        last = self._steps.last
        self._exchange.push(slot.key, tensor, priority=-slot.key, last=last, absent=absent)

    def _take_sums(self) -> None:
        """Replace gradients by the mean of all workers'; None if no worker has one."""
        for slot in self._slots:
            value = mean(self._waiting.timed, slot.key, slot.parameter, self.workers)
            absent = slot.sent is None and self._exchange.absent(slot.key) and not value.any()
            slot.parameter.grad = None if absent else value

    def _synchronise(self, computed_s: float) -> None:
        flights = self._steps.flights
        if self._syncs and not self._by_gradients:
            for slot in sent(self._slots, flights):
                # A copy: the answer overwrites the parameter, and late pieces may not have left.
                self._send(slot, scaled(slot.parameter.detach(), float(self._steps.scale)))
        if flights is not None or (self._syncs and not self._in_worker):
            expect(self._waiting, self._slots, flights)
        if not self._syncs:
            return
        if self._by_gradients and not self._in_worker:
            for slot in self._slots:
                slot.parameter.grad = None
        report = self._steps.report(computed_s)
        if report is not None:
            self._steps.reply(self._member.consult(report))
