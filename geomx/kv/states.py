"""Saves and loads the state of the optimizers that run on the global servers.

A worker asks the servers for the state of every shard (momentum, for example) and writes one file:
an archive as of `numpy.savez` with one entry ``KEY.SHARD`` per shard, the bytes of which have their
own checksum (docs/journal.md). Weights are not included: every worker has them.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable
from typing import Any

import numpy as np

from geomx.errors import GeomxError
from geomx.experiment.native_parts import state_refusal
from geomx.kv.keys import Entry
from geomx.kv.values import optimizer_numbers
from geomx.live.member import Member, naming_the_lost
from geomx.plugin.parts import optimizer_text


def fetched(member: Member, entries: Iterable[Entry], master: bool) -> bytes:
    """Fetch the state of all optimizers, which have applied every push that was answered.

    Args:
        member: A worker whose pushes have been answered.
        entries: All keys.
        master: Whether this is the master worker: servers answer no other.

    Returns:
        The content of a file.

    Raises:
        GeomxError: This is not the master worker, there are no keys, or parties keep the weights.
        NodeLost: A node of the job died.
    """
    _check(member)
    if not master:
        raise GeomxError(
            "optimizer states are saved by the master worker: call it where is_master_worker holds"
        )
    missing = {(entry.key, shard) for entry in entries for shard in range(len(entry.shards))}
    if not missing:
        raise GeomxError("there are no optimizer states to save: no key was initialised")
    found: dict[tuple[int, int], bytes] = {}
    with naming_the_lost(member.loop):
        member.ask_states()
        while missing:
            key, shard, number, parts, content = member.wait_state()
            found[key, shard] = found.get((key, shard), b"") + content
            if number + 1 == parts:
                missing.discard((key, shard))
    file = io.BytesIO()
    arrays = {f"{key}.{shard}": np.frombuffer(found[key, shard], np.uint8) for key, shard in found}
    np.savez(file, **dict(sorted(arrays.items())))
    return file.getvalue()


def text_of(optimizer: Any) -> str:
    """Return what servers are told of an optimizer, as for `geomx.kv.KVStore.set_optimizer`."""
    return optimizer_text(optimizer_numbers(optimizer, {}))


def load(member: Member, entries: Iterable[Entry], text: str, content: bytes, master: bool) -> None:
    """Have the optimizers on the global servers continue from a state, before the next push.

    Args:
        member: A worker.
        entries: All keys.
        text: What the servers run, as of `text_of`.
        content: Of `fetched`.
        master: Whether this worker sends it; others only check it.

    Raises:
        GeomxError: It is damaged, or of another optimizer or other tensors.
        NodeLost: A node of the job died.
    """
    _check(member)
    elements = {
        f"{entry.key}.{index}": count
        for entry in entries
        for index, (_, count, _, _) in enumerate(entry.shards)
    }
    saved = _read(content)
    if saved.keys() != elements.keys():
        raise GeomxError(
            f"optimizer states cannot be loaded: they are of {len(saved)} shards of tensors, and "
            f"this job has {len(elements)}; load them where tensors and servers are the same"
        )
    for name, state in saved.items():
        why = state_refusal(member.selection, text, state, elements[name]) if state else ""
        if why:
            raise GeomxError(f"optimizer states cannot be loaded: of {name}, {why}")
    if master:
        with naming_the_lost(member.loop):
            for name, state in saved.items():
                key, _, shard = name.partition(".")
                member.load_state(int(key), int(shard), state)


def _read(content: bytes) -> dict[str, bytes]:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return {name: archive[name].tobytes() for name in archive.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise GeomxError(
            f"optimizer states cannot be loaded: they are damaged, or of something else ({error})"
        ) from error


def _check(member: Member) -> None:
    if member.selection.update_at_party(member.spec.cluster):
        raise GeomxError(
            "optimizer states cannot be saved or loaded: the parties keep the weights under the "
            "job's accelerators; let workers update (update_on_kvstore=False, update='worker')"
        )
