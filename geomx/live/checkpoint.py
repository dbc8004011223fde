"""What a live run has learned, as another run begins with it.

``resume=DIR network=OTHER`` starts a run whose nodes, links and rounds are new. Its tensors have
the values of the run in DIR, the optimizers on its servers have their states, and its workers begin
with the local step after the synchronisations that were completed. All of that is in the journals
of the servers. What workers had computed since then is lost, and so is what only they kept: the
residuals of codecs, and the states of their own optimizers.
"""

from __future__ import annotations

import dataclasses
import io
import secrets
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomx import _core
from geomx.cluster import NodeSpec
from geomx.errors import ConfigError, GeomxError
from geomx.experiment.native_parts import state_refusal
from geomx.live.files import checkpoint_file, durable, experiment_file
from geomx.live.journal import opened
from geomx.live.member import Member
from geomx.live.restarts import begun
from geomx.live.spec import Spec
from geomx.results.files import read_arrays, read_json, write_arrays
from geomx.terminal.log import tell

KEY = "resume"
NO_JOURNALS = (
    "has no journals; a run can be continued that was started with faults.durable=log, "
    "in the folder of that run"
)

VALUE, STATE, CUTS, ROUNDS = "value", "state", "cuts", "rounds"


@dataclass(frozen=True)
class Checkpoint:
    """Tensors and what belongs to them.

    Attributes:
        rounds: Synchronisations that workers have completed.
        values: Of the tensors, flat, by key number.
        states: Of the servers' optimizers, by (key, shard); empty where one has made no update.
        cuts: Elements of each shard of a tensor, by key.
    """

    rounds: int
    values: dict[int, NDArray[np.float32]]
    states: dict[tuple[int, int], bytes]
    cuts: dict[int, tuple[int, ...]]

    def write(self, path: Path) -> None:
        """Write it as an archive of arrays (`numpy.savez`), whose entries have checksums."""
        arrays: dict[str, NDArray[Any]] = {ROUNDS: np.array(self.rounds)}
        for key, value in self.values.items():
            arrays[f"{VALUE}.{key}"] = value
            arrays[f"{CUTS}.{key}"] = np.array(self.cuts[key], np.int64)
        for (key, shard), state in self.states.items():
            arrays[f"{STATE}.{key}.{shard}"] = np.frombuffer(state, np.uint8)
        write_arrays(path, arrays)

    @classmethod
    def read(cls, path: Path) -> Checkpoint:
        """Read what `write` has written.

        Raises:
            GeomxError: The file is missing or damaged.
        """
        values: dict[int, NDArray[np.float32]] = {}
        states: dict[tuple[int, int], bytes] = {}
        cuts: dict[int, tuple[int, ...]] = {}
        try:
            arrays = read_arrays(io.BytesIO(path.read_bytes()))
            rounds = int(arrays[ROUNDS])
            for name, array in arrays.items():
                kind, *numbers = name.split(".")
                if kind == VALUE:
                    values[int(numbers[0])] = array.astype(np.float32, copy=False)
                elif kind == CUTS:
                    cuts[int(numbers[0])] = tuple(int(size) for size in array)
                elif kind == STATE:
                    states[int(numbers[0]), int(numbers[1])] = array.tobytes()
        except FileNotFoundError as error:
            raise GeomxError(
                f"{path} is not on this machine: with {KEY}=DIR the launcher writes it, and the "
                "first worker reads it; let their machines share the folder of the run, or give "
                "both one machine"
            ) from error
        except (OSError, ValueError, KeyError, EOFError, IndexError, zipfile.BadZipFile) as error:
            raise GeomxError(f"{path} is no checkpoint, or is damaged: {error}") from error
        return cls(rounds, values, states, cuts)

    def value(self, key: int, elements: int) -> NDArray[np.float32]:
        """Return a tensor's values.

        Raises:
            GeomxError: It had other sizes.
        """
        value = self.values.get(key, np.empty(0, np.float32))
        if value.size != elements:
            raise GeomxError(
                f"{KEY}: tensor {key} had {value.size} elements in the run that this one begins "
                f"with, and has {elements} here: initialise the same tensors in the same order"
            )
        return value

    def load_states(
        self, member: Member, optimizer: str, cuts: Mapping[int, Sequence[int]]
    ) -> None:
        """Have the optimizers on the servers continue from their states, as the master worker.

        Those of tensors that are cut into other shards begin anew, and all do if the servers ran
        another optimizer; a line says so.

        Args:
            member: The master worker, to whom the initial values have come.
            optimizer: The optimizer that the servers were told to run, as text; empty for none.
            cuts: Elements of each shard, by key.
        """
        states = {at: state for at, state in self.states.items() if state and at[0] in cuts}
        if member.selection.update_at_party(member.spec.cluster):
            states = {}
        anew = {key for key, _ in states if self.cuts[key] != tuple(cuts[key])}
        same = {at: state for at, state in states.items() if at[0] not in anew}
        if same and (why := _refusal(member, optimizer, same, cuts)):
            return tell(f"the optimizers on the servers begin anew: {why}", "warning")
        for (key, shard), state in same.items():
            member.load_state(key, shard, state)
        if anew:
            tell(
                f"the optimizers of {len(anew)} tensors begin anew: their shards differ", "warning"
            )


def _refusal(
    member: Member,
    optimizer: str,
    states: Mapping[tuple[int, int], bytes],
    cuts: Mapping[int, Sequence[int]],
) -> str:
    """Return why an optimizer cannot go on from states of one optimizer; empty if it can."""
    if not optimizer:
        return "they have none in this run"
    (key, shard), state = min(states.items(), key=lambda item: len(item[1]))
    return state_refusal(member.selection, optimizer, state, cuts[key][shard])


def begun_with(spec: Spec, folder: str, directory: Path) -> Spec:
    """Let a run begin with the checkpoint of another, which does not run any more.

    Args:
        spec: The experiment that is to run.
        folder: The folder of the other run, as the user has typed it.
        directory: The folder of this run, which gets the checkpoint.

    Returns:
        The experiment with its checkpoint.

    Raises:
        ConfigError: There is no such checkpoint, or it does not fit; the message says why.
    """
    before = Path(folder).absolute()
    if not (before / "durable").is_dir():
        raise ConfigError(KEY, folder, NO_JOURNALS)
    try:
        path = experiment_file(before)
        read_json(path)  # names it if it is damaged
        checkpoint = taken(before, Spec.from_json(path.read_text(encoding="utf-8")))
    except (OSError, GeomxError) as error:
        raise ConfigError(KEY, folder, f"has no state to begin with: {error}") from error
    sizes = {key: value.size for key, value in checkpoint.values.items()}
    expected = {key: tensor.elements for key, tensor in enumerate(spec.tensors or ())}
    if spec.tensors is not None and sizes != expected:
        remedy = "choose its workload, with its options"
        raise ConfigError(KEY, folder, f"trained tensors of other sizes than this run: {remedy}")
    path = checkpoint_file(directory)
    path.parent.mkdir(parents=True, exist_ok=True)
    checkpoint.write(path)
    tell(f"begins with {checkpoint.rounds} rounds of {folder}")
    rounds = checkpoint.rounds
    return dataclasses.replace(spec, checkpoint=str(path.resolve()), rounds_before=rounds)


def starting(spec: Spec) -> Checkpoint | None:
    """Return the checkpoint with which a run begins; None: with initial values.

    Raises:
        GeomxError: Its file is damaged.
    """
    return Checkpoint.read(Path(spec.checkpoint)) if spec.checkpoint else None


def taken(directory: Path, spec: Spec) -> Checkpoint:
    """Take the checkpoint of a run that does not run any more.

    Args:
        directory: Directory of the run, which had ``faults.durable=log``.
        spec: The experiment that it ran.

    Returns:
        The checkpoint.

    Raises:
        GeomxError: A journal is missing, in use or damaged, or there are no values yet.
    """
    cluster = spec.cluster
    shards = [each for node in cluster.global_servers for each in _saved(spec, directory, node)]
    parties = [node for node in cluster.nodes if node.role == "server"]
    recorded = [node for node in parties if begun(durable(directory, node.name))]
    completed = partial(_completed, alike=spec.tensors is not None)
    local = max((_saved(spec, directory, node) for node in recorded), key=completed, default=[])
    if local and all(shard.value is None for shard in shards):
        shards = local  # parties keep the weights
    if not shards or any(shard.value is None for shard in shards):
        raise GeomxError("it had not begun to train: the servers have no values")
    if local:
        rounds = completed(local)
    else:
        member = Member(_loop(), spec, parties[0].name, {})
        rounds = member.config().party_rounds(completed(shards))
        member.close()
    rounds += spec.rounds_before
    parts: dict[int, list[Any]] = {}
    for shard in sorted(shards, key=lambda shard: (shard.key, shard.number)):
        parts.setdefault(shard.key, []).append(shard.value)
    return Checkpoint(
        rounds,
        values={key: np.concatenate(part) for key, part in parts.items()},
        states={(shard.key, shard.number): shard.state for shard in shards},
        cuts={key: tuple(len(each) for each in part) for key, part in parts.items()},
    )


class _Saved(NamedTuple):
    """What a server holds of a shard."""

    key: int
    number: int
    round: int
    value: NDArray[np.float32] | None
    state: bytes


def _completed(shards: Sequence[_Saved], alike: bool) -> int:
    """The rounds that all shards have completed.

    A script may push some tensors less often than others, or never, unless they are `alike`: those
    count that it pushes in every step, whose rounds are at most one apart.
    """
    rounds = [shard.round for shard in shards]
    often = [each for each in rounds if alike or each >= max(rounds) - 1]
    return min(often, default=0)


def _saved(spec: Spec, directory: Path, node: NodeSpec) -> list[_Saved]:
    """What the journal of a server says that it holds."""
    path = durable(directory, node.name)
    if not begun(path):
        raise GeomxError(f"it has no journal of {node.name}")
    member = Member(_loop(), spec, node.name, {})
    try:
        shards = _core.reopened(member.loop, member.config(), opened(path))
    except RuntimeError as error:
        raise GeomxError(str(error)) from error
    finally:
        member.close()
    return [_Saved(*shard) for shard in shards]


def _loop() -> _core.Loop:
    """A loop that takes part in nothing."""
    return _core.Loop("127.0.0.1", 0, secrets.token_hex(16))
