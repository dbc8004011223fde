"""Global rounds that close without late parties: ``faults.quorum``, and policies that decide."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from geomx import runner
from geomx.errors import PluginError
from geomx.options.schema import FaultOptions
from geomx.results.results import Results
from tests.late import (
    Buffer,
    Confused,
    costs_the_deadline,
    in_python,
    is_refused,
    rows_of,
    same_parameters,
    took_part,
    words_of,
)
from tests.laws import Build, same

FAST = ["east/worker0", "west/worker0"]


def words(
    folder: Path, speed: float, *more: str, quorum: Sequence[str] = ("faults.quorum=2",)
) -> list[str]:
    """Return the words of a run of three parties of one worker, the third of which is slower."""
    parties: dict[str, dict[str, Any]] = {name: {"workers": 1} for name in ("east", "west")}
    return words_of(folder, {**parties, "south": {"workers": 1, "speed": [speed]}}, quorum, *more)


def test_a_round_ends_at_the_deadline_after_the_quorum(tmp_path: Path) -> None:
    """A slow party costs the deadline: an iteration of the others is longer by just that."""
    alone = runner.run(*words(tmp_path / "alone", 1.0, "faults.deadline_s=5"))
    slow = runner.run(*words(tmp_path / "slow", 0.01, "faults.deadline_s=0.2"))
    costs_the_deadline(alone, slow, FAST, slice(10))


def test_a_slow_party_makes_the_steps_that_the_others_make(tmp_path: Path) -> None:
    results = runner.run(*words(tmp_path / "run", 0.25, "faults.deadline_s=0.02"))
    steps = [row["iteration"] for row in rows_of(results, "south/worker0")]
    assert steps == sorted(set(steps))
    assert len(steps) < 12
    assert steps[-1] == 11
    assert len(rows_of(results, FAST[0])) == 12
    fast_s, slow_s = (rows_of(results, name)[-1]["end_s"] for name in (FAST[0], "south/worker0"))
    assert slow_s < fast_s + 2 * 0.03 / 0.25 + 0.1


@pytest.mark.needs("diloco")
def test_a_slow_party_keeps_up_with_fragments_in_flight(tmp_path: Path) -> None:
    """It leaves steps out, of all fragments alike; the others never wait for it."""
    more = ["+sync=diloco", "sync.h=4", "sync.fragments=2", "sync.tau=2", "iterations=40"]
    deadline = "faults.deadline_s=0.01"
    results = runner.run(*words(tmp_path / "run", 0.3, deadline, *more))
    steps = [row["iteration"] for row in rows_of(results, "south/worker0")]
    assert steps == sorted(set(steps))
    assert 8 < len(steps) < 30
    assert steps[-1] == 39
    for worker in FAST:
        assert [row["iteration"] for row in rows_of(results, worker)] == list(range(40))
        assert rows_of(results, worker)[35]["end_s"] < 36 * 0.03 + 18 * 0.01
    assert results.summary["participation"]["late"] > 0


@pytest.mark.slow(4)
@pytest.mark.needs("diloco")
def test_simulated_and_live_runs_agree_on_who_took_part_and_on_every_bit(tmp_path: Path) -> None:
    """The slow party's first step takes several times as long as all steps of the others."""
    found, runs = {}, []
    quorum = ("+sync=diloco", "sync.h=1", "sync.quorum=2", "sync.weights=tokens")
    for mode in ("sim", "live"):
        folder = tmp_path / mode
        results = runner.run(*words(folder, 0.01, "iterations=4", f"mode={mode}", quorum=quorum))
        runs.append(results)
        found[mode] = took_part(folder)
        assert results.summary["participation"]["late"] > 0
        steps = [row["iteration"] for row in rows_of(results, "south/worker0")]
        assert steps == [0, 3]
    assert found["sim"] == found["live"]
    assert same_parameters(*runs)


@pytest.mark.parametrize(
    ("key", "more"),
    [
        ("faults.quorum", ["faults.on_loss=wait", "faults.deadline_s=1"]),
        ("faults.quorum", []),
        ("faults.quorum", ["faults.quorum=4", "faults.deadline_s=1"]),
        ("faults.quorum", ["faults.quorum=1.5", "faults.deadline_s=1"]),
        ("faults.deadline_s", ["faults.quorum=null", "faults.deadline_s=1"]),
        ("faults.quorum", ["faults.deadline_s=1", "+sync=mixedsync"]),
        ("faults.quorum", ["faults.deadline_s=1", "+sync=esync"]),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, key: str, more: list[str]) -> None:
    is_refused(words(tmp_path / "run", 1.0, *more), key)


def test_a_share_is_rounded_up() -> None:
    options = FaultOptions(on_loss="continue", quorum=0.5, deadline_s=1)
    assert [options.quorum_of(parties) for parties in (2, 3, 4)] == [1, 2, 2]


# ---- policies of sync algorithms ----

DILOCO = ["+sync=diloco", "sync.h=4", "iterations=24"]


def trained(folder: Path, speed: float, *more: str) -> Results:
    return runner.run(*words(folder, speed, *DILOCO, *more, quorum=()))


@pytest.mark.slow
@pytest.mark.needs("diloco")
def test_a_quorum_of_all_parties_changes_no_bit(tmp_path: Path) -> None:
    """Nor do weights by tokens, where all make the same steps."""
    plain = trained(tmp_path / "plain", 0.3)
    for number, more in enumerate((["sync.quorum=3"], ["sync.weights=tokens"])):
        assert same_parameters(trained(tmp_path / str(number), 0.3, *more), plain)


@pytest.mark.needs("diloco")
def test_late_changes_count_but_close_no_round(tmp_path: Path) -> None:
    """Each round has its quorum in time, until the others have ended; `on_loss` does not matter."""
    folder = tmp_path / "run"
    more = ["sync.quorum=2", "sync.deadline_s=0", "faults.on_loss=stop"]
    results = trained(folder, 0.3, *more)
    rounds = [row for row in took_part(folder) if row[1] == "hidden.weight"]
    assert len(rounds) > 3
    assert any(late for *_, late in rounds)
    last = max(int(number) for _, _, _, number, _, _ in rounds)
    assert all(absent == "south/server" for *_, number, absent, _ in rounds if int(number) < last)
    rows = rows_of(results, FAST[0])
    assert rows[-1]["end_s"] < 24 * 0.03 + 0.5


@pytest.mark.slow
@pytest.mark.needs("diloco")
def test_weights_count_the_steps_of_fragments_that_are_left_out(tmp_path: Path) -> None:
    """The slow party leaves steps out, so that some of its changes are of fewer than h steps."""
    more = ["sync.quorum=2", "sync.deadline_s=0.01", "sync.fragments=2", "sync.tau=1"]
    equal = trained(tmp_path / "equal", 0.3, *more)
    tokens = trained(tmp_path / "tokens", 0.3, *more, "sync.weights=tokens")
    assert took_part(tmp_path / "equal") == took_part(tmp_path / "tokens")
    assert not same_parameters(equal, tokens)


@pytest.mark.slow
@pytest.mark.needs("diloco")
def test_cuts_and_kills_cost_a_round_the_deadline_at_most(tmp_path: Path) -> None:
    """No round waits longer than the deadline for a silent party that is not declared lost yet."""
    scenario = (
        "scenario=[{cut: [south, hub], at_s: 0.2, for_s: 1.5},"
        "{kill: west/server, at_s: 2.2},{kill: any worker, at_s: 2.9}]"
    )
    more = ["iterations=120", "faults.suspect_s=0.6", scenario]
    longest = []
    for number, quorum in enumerate(([], ["sync.quorum=1", "sync.deadline_s=0.05"])):
        results = trained(tmp_path / str(number), 1.0, *more, *quorum)
        rows = rows_of(results, FAST[0])
        longest.append(max(row["end_s"] - row["start_s"] for row in rows))
    assert longest[0] > 0.5
    assert longest[1] < 0.05 + 0.2


@pytest.mark.parametrize(
    ("key", "more"),
    [
        ("faults.quorum", ["faults.quorum=2", "faults.deadline_s=1", "sync.quorum=2"]),
        ("faults.durable", ["faults.on_loss=wait", "faults.durable=log", "sync.quorum=2"]),
        ("sync.quorum", ["sync.quorum=4"]),
        ("sync.deadline_s", ["sync.deadline_s=1"]),
    ],
)
@pytest.mark.needs("diloco")
def test_a_policy_that_cannot_work_is_refused(tmp_path: Path, key: str, more: list[str]) -> None:
    is_refused(words(tmp_path / "run", 1.0, *DILOCO, *more, quorum=()), key)


@pytest.mark.slow
@pytest.mark.needs("fedbuff", "diloco")
def test_a_buffer_of_all_parties_is_federated_averaging(tmp_path: Path) -> None:
    """Also where one is slow; with a smaller buffer, the others do not wait for it."""
    mean = ["sync.outer_lr=1", "sync.outer_momentum=0"]
    averaged = trained(tmp_path / "averaged", 0.2, *mean)
    found = {}
    for k in (3, 2):
        more = ["+sync=fedbuff", "sync.h=4", f"sync.k={k}", "iterations=24", "faults.on_loss=wait"]
        found[k] = runner.run(*words(tmp_path / str(k), 0.2, *more, quorum=()))
    assert same_parameters(found[3], averaged)
    end_s = {k: rows_of(results, FAST[0])[20]["end_s"] for k, results in found.items()}
    assert end_s[2] < 0.5 * end_s[3]
    assert found[2].summary["participation"]["late"] > 0


@pytest.mark.needs("fedbuff")
def test_a_policy_in_python_does_the_same(network: Build, tiny: Any, simulate: Build) -> None:
    net = network(1, 2, 1, speed=[(1.0,), (1.0, 0.9), (0.13,)])
    native = simulate(net, tiny, ("fedbuff", {"h": 2, "k": 2, "oldest": 2}), iterations=40)
    registry = in_python("round_policy", lambda policy, cluster: Buffer(2, 2), h=2)
    python = simulate(net, tiny, ("own", {}), iterations=40, registry=registry)
    assert native.bytes == python.bytes
    assert same(native.parameters, python.parameters)
    participation = native.results.summary["participation"]
    assert participation["dropped"] > 0
    assert python.results.summary["participation"] == participation
    registry = in_python("round_policy", lambda policy, cluster: Confused(2, 2), h=2)
    with pytest.raises(PluginError, match=r"Confused.weigh gave 0 weights for 2 contributions"):
        simulate(net, tiny, ("own", {}), iterations=4, registry=registry)
