"""Which optimizers the global servers and the workers of a job run for a script's optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from geomx import kv
from geomx.errors import ConfigError, GeomxError
from geomx.experiment.native_parts import OF_SCRIPT, check_optimizer, chosen_optimizers
from geomx.plugin.parts import optimizer_text
from geomx.torch.exchange import NO_WEIGHTS
from geomx.torch.numbers import groups, keeps_state, translated
from geomx.torch.slots import Slot


@dataclass(frozen=True)
class Choice:
    """Optimizers of servers and workers.

    Attributes:
        steps_locally: Whether every step of a worker is one of the script's optimizer alone.
        servers: Name and numbers of what the global servers run; None: they add up gradients.
        told: Options of the script's optimizer that they were told; None if they run their own.
    """

    steps_locally: bool = False
    servers: Mapping[str, Any] | None = None
    told: list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        """What the servers run, as they are told it."""
        return "" if self.servers is None else optimizer_text(self.servers)

    @property
    def kept_away(self) -> bool:
        """Whether servers have a state (momentum) that no worker has."""
        return self.servers is not None and keeps_state(self.servers)


def chosen(
    store: kv.KVStore,
    optimizer: torch.optim.Optimizer,
    slots: Iterable[Slot],
    in_worker: bool,
    tells: bool = True,
) -> Choice:
    """Choose what servers and workers run; the master worker tells the servers, if it `tells` any.

    Args:
        store: Store of a worker.
        optimizer: The script's optimizer.
        slots: The parameters that it trains.
        in_worker: Whether every worker updates with the mean of all gradients. If not, the job's
            sync policy chooses.
        tells: Whether servers are told, who otherwise run what they run.

    Raises:
        ConfigError: Servers cannot run the optimizer, or the policy does not allow `in_worker`.
        GeomxError: With `in_worker`, this worker is to continue from weights that only other
            workers have.
        NodeLost: A node of the job died.
    """
    member = store.member
    if in_worker:
        if member.late or store.rounds:
            raise GeomxError(NO_WEIGHTS)
        if not member.policy.together:
            name, _ = member.spec.sync
            raise ConfigError("update", "worker", f"sync={name} updates on the global servers")
        return Choice()
    by_gradients = member.policy.exchange == "gradients"
    keys = {id(slot.parameter): slot.key for slot in slots}
    numbers = translated(optimizer, keys) if by_gradients else OF_SCRIPT
    at_servers, here = chosen_optimizers(member.spec.cluster, member.selection, numbers)
    check_optimizer(member.selection, at_servers)
    choice = Choice(here is not None, at_servers, groups(optimizer) if by_gradients else None)
    if at_servers is not None and tells:
        store.run_optimizer(choice.text)
    return choice
