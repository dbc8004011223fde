"""DistributedDataParallel inside a party, geomx between parties.

Keeping DDP inside a data centre is reasonable: NCCL knows its network better. Its processes are
then one worker of the job, and rank 0 of them, the leader, speaks for the party: what DDP has
averaged among them goes on to the global servers, and the mean over all workers of the job, that is
over parties, comes back before DDP hands it to the optimizer.

    model = DistributedDataParallel(model)
    model.register_comm_hook(geomx.torch.PartyHook(), geomx.torch.PartyHook.average)

Buckets follow each other through three stages (averaged inside, sent, answered), so that the next
one's reduction and the last one's round trip over the WAN happen at the same time. Collectives run
in two groups of their own, one per stage: every process starts them in the order in which DDP fills
its buckets, whatever DDP itself does meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist

from geomx import kv
from geomx.errors import ConfigError
from geomx.torch.exchange import TensorExchange, claimed


class PartyHook:
    """The state of DDP's communication hook in one process of a party; `average` is the hook.

    Made after ``init_process_group``, by all its processes. Every process keeps its own optimizer;
    since all get the same gradients from the same start, they stay alike. The job's network has
    one worker per party, started as ``geomx launch ... -- torchrun ... train.py``.

    Args:
        store: Of the leader; by default `geomx.kv.create`'s, and others have none.

    Raises:
        ConfigError: The job's sync policy does not exchange gradients of all parties together.
    """

    def __init__(self, store: kv.KVStore | None = None) -> None:
        self._leader = dist.get_rank() == 0
        self._inside, self._outside = dist.new_group(), dist.new_group()
        self._processes = dist.get_world_size()
        self._send = ThreadPoolExecutor(1, "geomx-send")
        self._answer = ThreadPoolExecutor(1, "geomx-answer")
        self._keys: dict[int, int] = {}  # by the number of the parameter
        self._store: kv.KVStore | None = None
        self._exchange: TensorExchange | None = None
        if self._leader:
            self._store = store or kv.create()
            _check(self._store)
            self._exchange = claimed(self._store, copy=True)

    def introduce(self, model: torch.nn.Module) -> None:
        """Start everywhere from the first party's model; called by all, before DDP wraps `model`.

        Raises:
            NodeLost: A node of the job died.
        """
        parameters = [each for each in model.parameters() if each.requires_grad]
        if self._store is not None and self._exchange is not None:
            names = [str(number) for number in range(len(parameters))]
            values = [each.detach().float().cpu().numpy() for each in parameters]
            self._store.init(names, values)
            for name, parameter in zip(names, parameters, strict=True):
                self._exchange.pull(self._store.entry(name).key, [parameter])
        for number, parameter in enumerate(parameters):
            dist.broadcast(parameter.detach(), 0, group=self._inside)
            self._keys[id(parameter)] = number

    @staticmethod
    def average(state: PartyHook, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """DDP's hook: the mean of one bucket over all processes of all parties."""
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        buffer = bucket.buffer()
        buffer.div_(state._processes)
        work = dist.all_reduce(buffer, group=state._inside, async_op=True)
        keys = [state._keys[id(parameter)] for parameter in bucket.parameters()]
        pieces = list(zip(keys, bucket.gradients(), strict=True))

        def send() -> None:
            work.wait()
            if state._exchange is not None:
                for key, gradient in pieces:
                    state._exchange.push(key, gradient, priority=-key)
            state._answer.submit(_reporting, done, answer)

        def answer() -> None:
            if state._exchange is not None and state._store is not None:
                for key, gradient in pieces:
                    state._exchange.pull(key, [gradient])
                buffer.div_(state._store.num_all_workers)
            dist.broadcast(buffer, 0, group=state._outside)
            done.set_result(buffer)

        state._send.submit(_reporting, done, send)
        return done


def _reporting(done: torch.futures.Future[torch.Tensor], action: Callable[[], None]) -> None:
    """Carry out `action`; what goes wrong is DDP's to raise."""
    try:
        action()
    except Exception as error:
        done.set_exception(error)


def _check(store: kv.KVStore) -> None:
    policy, (name, _) = store.member.policy, store.member.spec.sync
    if policy.exchange != "gradients" or not policy.together:
        raise ConfigError(
            "sync",
            name,
            "DDP wants everyone's gradient every step, as with sync=fsa; "
            "geomx.torch.Optimizer follows any policy",
        )
