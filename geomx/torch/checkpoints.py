"""What a checkpoint of `geomx.torch.Optimizer` holds of the optimizers on the global servers.

Their state (momentum, for example) is fetched by the first worker, whose checkpoint continues a
training bit for bit where nothing else keeps state (accelerators' residuals do).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch

from geomx import kv
from geomx.kv import states
from geomx.kv.keys import Entry
from geomx.torch.choice import Choice

_SERVERS = "servers"


def fetched(store: kv.KVStore, choice: Choice, name: str) -> dict[str, Any]:
    """Return the state of the servers' optimizers, as part of a checkpoint.

    Args:
        store: Of a worker whose pushes have been answered.
        choice: What servers and workers run.
        name: Of the wrapped optimizer, for a warning.

    Returns:
        Bytes as a tensor, which `torch.save` and ``torch.load(weights_only=True)`` take; nothing if
        servers keep no state, on workers other than the first, and, with a warning, where the
        parties keep the weights.

    Raises:
        NodeLost: A node of the job died.
    """
    if choice.servers is None or not choice.kept_away:
        return {}
    member = store.member
    if member.selection.update_at_party(member.spec.cluster):
        remedy = "geomx.torch.Optimizer(..., update='worker') keeps it here"
        if choice.steps_locally:
            name, remedy = str(choice.servers["name"]), "it begins anew after a restart"
        warnings.warn(
            f"the parties keep the weights and the state of {name}, which is not in a checkpoint: "
            f"{remedy}",
            stacklevel=3,
        )
        return {}
    if not store.is_master_worker:
        return {}
    content = states.fetched(member, _entries(store), True)
    return {_SERVERS: torch.frombuffer(bytearray(content), dtype=torch.uint8)}


def restore(
    store: kv.KVStore, choice: Choice, own: Mapping[str, Any] | None, of_workers: bool
) -> None:
    """Have the servers' optimizers continue from a checkpoint, if it holds their state.

    On the first worker, warns if a state in the checkpoint is not used, or if it lacks the servers'
    state.

    Args:
        store: Of a worker.
        choice: What servers and workers run.
        own: A checkpoint's part that `fetched` is in; None if PyTorch's optimizer wrote it.
        of_workers: Whether the checkpoint has a state of an optimizer that ran on workers.

    Raises:
        GeomxError: The state is damaged, or of another optimizer or other tensors.
        NodeLost: A node of the job died.
    """
    has_theirs = own is not None and _SERVERS in own
    wrong = ""
    if has_theirs and choice.kept_away:
        assert own is not None
        content = own[_SERVERS].cpu().numpy().tobytes()
        states.load(store.member, _entries(store), choice.text, content, store.is_master_worker)
    elif has_theirs:
        wrong = (
            "the checkpoint holds the state (momentum, for example) of optimizers on the global "
            "servers, which begins anew here: continue with the sync policy and the update of the "
            "run that saved it"
        )
    elif choice.kept_away and of_workers and not choice.steps_locally:
        wrong = (
            "the checkpoint holds no state of the global servers' optimizers, which begin anew "
            "(momentum, for example): geomx.torch.Optimizer(..., update='worker') continues from "
            "the workers' state that it holds"
        )
    elif choice.kept_away and own is not None:
        wrong = (
            "the checkpoint holds no state of the global servers' optimizers, which begin anew: "
            "save what the first worker's state_dict() returns"
        )
    if wrong and store.is_master_worker:
        warnings.warn(wrong, stacklevel=3)


def _entries(store: kv.KVStore) -> list[Entry]:
    return [store.entry(key) for key in store.keys]
