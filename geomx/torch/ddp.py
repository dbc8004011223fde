"""DistributedDataParallel inside a party, geomx between parties.

DDP inside a data centre is reasonable: NCCL knows its network better. The processes of a party are
then together one worker of the job, represented by rank 0 of them, the leader: the average that DDP
computes among them is sent to the global servers, and the mean over all parties comes back before
DDP passes it to the optimizer.

    hook = geomx.torch.PartyHook(model)
    model = DistributedDataParallel(model)
    model.register_comm_hook(hook, geomx.torch.PartyHook.average)

Buckets pass through a pipeline of three stages (averaged inside, sent, answered), so that the
reduction of one bucket overlaps with the WAN round trip of the previous one. Collectives run in two
process groups of their own, one per stage: every process starts them in the order in which DDP
fills its buckets, independently of DDP's own collectives.

In a simulation the leader's calls have an order, so that virtual time has one: it pushes a bucket
when it is full, and receives all answers after the last one, where nothing is left to compute. The
simulator lets a push leave when the reduction before it would be over on the party's network.
"""

# DDP inspects the hook's annotations, which must be types and not strings.
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch
import torch.distributed as dist

from geomx import kv
from geomx.errors import ConfigError, GeomxError
from geomx.kv.joining import follow
from geomx.live.sync_steps import scaled
from geomx.live.torch_exchange import TensorExchange
from geomx.torch.exchange import NO_WEIGHTS, check_numbers, claimed, introduce, summing
from geomx.training.steps import Steps


class PartyHook:
    """The state of DDP's communication hook in one process of a party; `average` is the hook.

    Created by all processes of a party, after ``init_process_group`` and before DDP wraps `model`;
    all processes then have the parameters of the first party's model, and parties their own
    buffers. Every process keeps its own optimizer: the models stay equal, since all processes get
    the same gradients. The job's network has one worker per party, and all parties have the same
    number of processes: ``geomx launch ... -- torchrun ... train.py``.

    Args:
        model: The model to train.
        store: Store of the leader; by default that of `geomx.kv.create`. None in other processes.

    Attributes:
        rank: Position among the processes of all parties, by which a script slices its data.
        processes: Number of processes of all parties.

    Raises:
        ConfigError: The job's sync policy does not exchange gradients of all parties together.
        GeomxError: Other parties cannot have a parameter's numbers (`check_numbers`).
        NodeLost: A node of the job died.
    """

    def __init__(self, model: torch.nn.Module, store: kv.KVStore | None = None) -> None:
        self._inside, self._outside = dist.new_group(), dist.new_group()
        self._here = dist.get_world_size()
        self._send = ThreadPoolExecutor(1, "geomx-send")
        self._answer = ThreadPoolExecutor(1, "geomx-answer")
        self._store: kv.KVStore | None = None
        self._exchange: TensorExchange | None = None
        self._steps: Steps | None = None
        # The party's rank and the number of parties, on a device from which NCCL can broadcast.
        device = next(each.device for each in model.parameters() if each.requires_grad)
        place = torch.zeros(2, dtype=torch.int64, device=device)
        if dist.get_rank() == 0:
            self._store = store or kv.create()
            if self._store.member.late or self._store.rounds:
                raise GeomxError(NO_WEIGHTS)
            self._store.member.on_leave, self._store.member.grouped = _end, True
            self._steps = _checked_steps(self._store)
            self._exchange = claimed(self._store, copy=True)
            place[0], place[1] = self._store.global_rank, self._store.num_all_workers
        else:
            follow()
        self._introduce(dict(model.named_parameters()))
        dist.broadcast(place, 0, group=self._inside)
        party, self._parties = place.tolist()
        self._held: list[_Bucket] = []  # in a simulation, those that were pushed
        self._means: list[tuple[torch.Tensor, torch.Tensor]] = []  # of the current backward pass
        self.rank = party * self._here + dist.get_rank()
        self.processes = self._parties * self._here

    def _introduce(self, named: dict[str, torch.Tensor]) -> None:
        """Start all processes from the first party's values.

        The n-th parameter that is trained has key n. Frozen ones have the keys after these, and
        come later, so that shards and servers of the others do not depend on them.
        """
        ordered = sorted(named.values(), key=lambda each: not each.requires_grad)
        trained = sum(each.requires_grad for each in ordered)
        keyed = list(enumerate(ordered))
        self._keys = {id(parameter): key for key, parameter in keyed[:trained]}
        if self._store is not None and self._exchange is not None:
            check_numbers(self._store, named)
            introduce(self._store, self._exchange, dict(keyed[:trained]), range(trained))
            introduce(self._store, self._exchange, dict(keyed[trained:]), ())
        for parameter in ordered:
            dist.broadcast(parameter.detach(), 0, group=self._inside)

    def close(self) -> None:
        """Leave the job when all parties are done; call it before destroying the process group."""
        self._send.shutdown()
        self._answer.shutdown()
        if self._store is not None:
            self._store.close()
        # PyTorch keeps a hook as long as the model, which keeps the model: a cycle of C++ objects.
        self._store = self._exchange = self._steps = None

    def _pushed(self) -> None:
        if self._store is not None:
            self._store.member.pushed()

    @staticmethod
    def average(state: "PartyHook", bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """DDP's communication hook: the mean of one bucket over all processes of all parties.

        Args:
            state: The hook's state, of this process.
            bucket: Gradients combined by DDP.

        Returns:
            A future of the mean, in the bucket's shape.
        """
        buffer = bucket.buffer()
        devices = [buffer.device] if buffer.is_cuda else None  # their streams will wait for it
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)
        keys = [state._key(parameter) for parameter in bucket.parameters()]
        pieces = list(zip(keys, bucket.gradients(), strict=True))
        here = _Bucket(buffer, pieces, bucket.index() == 0, done)
        state._means += zip(bucket.parameters(), bucket.gradients(), strict=True)
        if bucket.is_last():
            state._give_means()
        if state._store is not None and state._store.member.virtual:
            state._take_in_order(here, bucket.is_last())
            return done
        buffer.div_(state._here)
        work = dist.all_reduce(buffer, group=state._inside, async_op=True)

        def send() -> None:
            work.wait()
            state._push(here)
            state._answer.submit(_reporting, done, buffer, answer)

        def answer() -> None:
            state._pull(here)
            dist.broadcast(buffer, 0, group=state._outside)
            done.set_result(buffer)

        state._send.submit(_reporting, done, buffer, send)
        return done

    def _key(self, parameter: torch.Tensor) -> int:
        found = self._keys.get(id(parameter))
        if found is None:
            raise GeomxError(
                f"a parameter {tuple(parameter.shape)} was frozen, or not in the model, when "
                "geomx.torch.PartyHook was created, so parties do not exchange it: create the hook "
                "when all parameters are there that DDP trains"
            )
        return found

    def _give_means(self) -> None:
        """After the backward pass, give parameters that no process of this party used their mean.

        Other parties may have used them. DDP (`find_unused_parameters`) leaves their ``grad`` as it
        is, None: so parties would end with different models.
        """
        means, self._means = self._means, []
        if self._parties == 1 or torch._C._current_graph_task_id() < 0:
            return
        engine = torch.autograd.Variable._execution_engine

        def give() -> None:
            for parameter, mean in means:
                if parameter.grad is None and mean.any():
                    parameter.grad = mean.to(parameter.dtype, copy=True)

        # DDP queues its own callback after this one, and has to be done before.
        engine.queue_callback(lambda: engine.queue_callback(give))

    def _push(self, bucket: "_Bucket") -> None:
        """As the leader, push the party's mean of a bucket."""
        if self._exchange is None or self._steps is None:
            return
        if bucket.first:
            _begin(self._steps)
            assert self._store is not None
            self._store.member.made = self._steps.step + 1
        scale = float(self._steps.scale)
        for key, gradient in bucket.pieces:
            sent = gradient if scale == 1.0 else scaled(gradient, scale)
            self._exchange.push(key, sent, priority=-key)
        self._pushed()

    def _pull(self, bucket: "_Bucket") -> None:
        """As the leader, receive the mean of a bucket over all parties."""
        if self._exchange is None:
            return
        for key, gradient in bucket.pieces:
            wide = summing(gradient.dtype)
            total = gradient if wide == gradient.dtype else torch.empty_like(gradient, dtype=wide)
            self._exchange.pull(key, [total])
            total.div_(self._parties)
            if total is not gradient:
                gradient.copy_(total)

    def _take_in_order(self, bucket: "_Bucket", last: bool) -> None:
        """As the leader in a simulation: push a bucket; after the last one, receive all of them."""
        assert self._store is not None
        member = self._store.member
        with member.uncounted():
            bucket.buffer.div_(self._here)
            dist.all_reduce(bucket.buffer, group=self._inside)
        if self._here > 1:
            member.reduces(bucket.buffer.nbytes, self._here)
        self._push(bucket)
        self._held.append(bucket)
        if not last:
            return
        for each in self._held:
            self._pull(each)
            if self._here > 1:
                member.shares(each.buffer.nbytes, self._here)
            with member.uncounted():
                dist.broadcast(each.buffer, 0, group=self._outside)
            each.done.set_result(each.buffer)
        self._held = []


class _Bucket(NamedTuple):
    """Gradients combined by DDP: all of them, those of each key, and the future of their mean."""

    buffer: torch.Tensor
    pieces: list[tuple[int, torch.Tensor]]
    first: bool
    done: torch.futures.Future[torch.Tensor]


_NEEDED = (
    "DDP needs the gradients of all workers in every step; choose a policy that waits for all, or "
    "geomx.torch.Optimizer, which supports any policy"
)


def _reporting(
    done: torch.futures.Future[torch.Tensor], buffer: torch.Tensor, action: Callable[[], None]
) -> None:
    """Call `action` on the device of `buffer`; pass its exceptions to DDP by the future."""
    try:
        with torch.cuda.device_of(buffer):
            action()
    except Exception as error:
        done.set_exception(error)


def _end() -> None:
    """End the leader: the processes of a group do not know when to leave together."""
    os.kill(os.getpid(), signal.SIGTERM)


def _checked_steps(store: kv.KVStore) -> Steps:
    """The party's steps, under a policy that DDP can follow."""
    member = store.member
    policy, (name, _) = member.policy, member.spec.sync
    steps = Steps(policy, member.spec.cluster, member.node)
    if steps.exchange != "gradients" or not policy.together or steps.consults:
        raise ConfigError("sync", name, _NEEDED)
    return steps


def _begin(steps: Steps) -> None:
    """Begin a step, whose gradients are on their way."""
    step = steps.begin()
    if not steps.synchronises():
        raise GeomxError(f"the sync policy does not synchronise after step {step}: {_NEEDED}")
