"""DistributedDataParallel inside a party, geomx between parties.

Keeping DDP inside a data centre is reasonable: NCCL knows its network better. Its processes are
then together one worker of the job, and rank 0 of them, the leader, speaks for all: what DDP has
averaged among them goes on to the global servers, and the mean over all parties comes back before
DDP hands it to the optimizer.

    hook = geomx.torch.PartyHook(model)
    model = DistributedDataParallel(model)
    model.register_comm_hook(hook, geomx.torch.PartyHook.average)

Buckets follow each other through three stages (averaged inside, sent, answered), so that the next
one's reduction and the last one's round trip over the WAN happen at the same time. Collectives run
in two groups of their own, one per stage: every process starts them in the order in which DDP fills
its buckets, whatever DDP itself does meanwhile.
"""

# DDP reads the hook's annotations and wants types there, not their names.
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist

from geomx import kv
from geomx.errors import ConfigError
from geomx.torch.exchange import TensorExchange, claimed, shaped


class PartyHook:
    """The state of DDP's communication hook in one process of a party; `average` is the hook.

    Made after ``init_process_group`` and before DDP wraps `model`, by all processes of a party; the
    model then is everywhere that of the first party. Every process keeps its own optimizer: as all
    get the same gradients, they stay alike. The job's network has one worker per party, and there
    are as many processes in each: ``geomx launch ... -- torchrun ... train.py``.

    Args:
        model: What is trained.
        store: Of the leader; by default `geomx.kv.create`'s. Others have none.

    Attributes:
        rank: Position among the processes of all parties; what a script slices its data by.
        processes: How many there are in all parties.

    Raises:
        ConfigError: The job's sync policy does not exchange gradients of all parties together.
        NodeLost: A node of the job died.
    """

    def __init__(self, model: torch.nn.Module, store: kv.KVStore | None = None) -> None:
        self._inside, self._outside = dist.new_group(), dist.new_group()
        self._here = dist.get_world_size()
        self._send = ThreadPoolExecutor(1, "geomx-send")
        self._answer = ThreadPoolExecutor(1, "geomx-answer")
        self._store: kv.KVStore | None = None
        self._exchange: TensorExchange | None = None
        trained = [each for each in model.parameters() if each.requires_grad]
        # This party's place, and of how many; where a group of NCCL can broadcast it.
        place = torch.zeros(2, dtype=torch.int64, device=trained[0].device)
        if dist.get_rank() == 0:
            self._store = store or kv.create()
            _check(self._store)
            self._exchange = claimed(self._store, copy=True)
            place[0], place[1] = self._store.global_rank, self._store.num_all_workers
        self._introduce(trained)
        dist.broadcast(place, 0, group=self._inside)
        party, self._parties = place.tolist()
        self.rank = party * self._here + dist.get_rank()
        self.processes = self._parties * self._here

    def _introduce(self, parameters: list[torch.Tensor]) -> None:
        """Start everywhere from the first party's values; the n-th parameter has key n."""
        self._keys = {id(parameter): key for key, parameter in enumerate(parameters)}
        if self._store is not None and self._exchange is not None:
            self._store.init(list(range(len(parameters))), list(map(shaped, parameters)))
            for key, parameter in enumerate(parameters):
                self._exchange.pull(key, [parameter])
        for parameter in parameters:
            dist.broadcast(parameter.detach(), 0, group=self._inside)

    def close(self) -> None:
        """Leave the job, once all parties are done; before the process group is destroyed."""
        self._send.shutdown()
        self._answer.shutdown()
        if self._store is not None:
            self._store.close()

    @staticmethod
    def average(state: "PartyHook", bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """DDP's communication hook: the mean of one bucket over all processes of all parties.

        Args:
            state: The hook's state, of this process.
            bucket: Gradients that DDP has put together.

        Returns:
            A future of the mean, in the bucket's shape.
        """
        buffer = bucket.buffer()
        devices = [buffer.device] if buffer.is_cuda else None  # whose streams will wait for it
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)
        buffer.div_(state._here)
        work = dist.all_reduce(buffer, group=state._inside, async_op=True)
        keys = [state._keys[id(parameter)] for parameter in bucket.parameters()]
        pieces = list(zip(keys, bucket.gradients(), strict=True))

        def send() -> None:
            work.wait()
            if state._exchange is not None:
                for key, gradient in pieces:
                    state._exchange.push(key, gradient, priority=-key)
            state._answer.submit(_reporting, done, buffer, answer)

        def answer() -> None:
            if state._exchange is not None:
                for key, gradient in pieces:
                    state._exchange.pull(key, [gradient])
                buffer.div_(state._parties)
            dist.broadcast(buffer, 0, group=state._outside)
            done.set_result(buffer)

        state._send.submit(_reporting, done, buffer, send)
        return done


def _reporting(
    done: torch.futures.Future[torch.Tensor], buffer: torch.Tensor, action: Callable[[], None]
) -> None:
    """Carry out `action` where `buffer` lies; what goes wrong is DDP's to raise."""
    try:
        with torch.cuda.device_of(buffer):
            action()
    except Exception as error:
        done.set_exception(error)


def _check(store: kv.KVStore) -> None:
    policy, (name, _) = store.member.policy, store.member.spec.sync
    if policy.exchange != "gradients" or not policy.together:
        raise ConfigError(
            "sync",
            name,
            "DDP wants everyone's gradient every step; choose a policy that waits for all, or "
            "geomx.torch.Optimizer, which follows any",
        )
