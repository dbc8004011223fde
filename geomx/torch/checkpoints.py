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

_SERVERS = "servers"


def fetched(store: kv.KVStore, name: str) -> dict[str, Any]:
    """Return the state of the servers' optimizers, as part of a checkpoint.

    Args:
        store: Of a worker whose pushes have been answered.
        name: Of the wrapped optimizer, for a warning.

    Returns:
        Bytes as a tensor, which `torch.save` and ``torch.load(weights_only=True)`` take; nothing on
        workers other than the first, and, with a warning, where the parties keep the weights.

    Raises:
        NodeLost: A node of the job died.
    """
    member = store.member
    if member.selection.update_at_party(member.spec.cluster):
        warnings.warn(
            f"the parties keep the weights and the state of {name}, which is not in a checkpoint: "
            "geomx.torch.Optimizer(..., update='worker') keeps it here",
            stacklevel=3,
        )
        return {}
    if not store.is_master_worker:
        return {}
    content = states.fetched(member, _entries(store), True)
    return {_SERVERS: torch.frombuffer(bytearray(content), dtype=torch.uint8)}


def restore(store: kv.KVStore, text: str, own: Mapping[str, Any]) -> None:
    """Have the servers' optimizers continue from a checkpoint, if it holds their state.

    Args:
        store: Of a worker.
        text: What the servers run, as of `geomx.plugin.parts.optimizer_text`.
        own: A checkpoint's part that `fetched` is in.

    Raises:
        GeomxError: The state is damaged, or of another optimizer or other tensors.
        NodeLost: A node of the job died.
    """
    if _SERVERS in own:
        content = own[_SERVERS].cpu().numpy().tobytes()
        states.load(store.member, _entries(store), text, content, store.is_master_worker)
        return
    if store.is_master_worker:
        warnings.warn(
            "the checkpoint holds no state of the global servers' optimizers, which begin anew: "
            "save what the first worker's state_dict() returns",
            stacklevel=3,
        )


def _entries(store: kv.KVStore) -> list[Entry]:
    return [store.entry(key) for key in store.keys]
