"""Events of a scenario that a run does not reach, and times that no run can have."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import pytest

from geomx import runner, study
from geomx.errors import ConfigError, PluginError
from geomx.experiment.unreached import (
    ScenarioWarning,
    warn_of_unreached,
    warn_of_unreached_in_many,
)
from geomx.network.files import read_network
from geomx.scenario import Scenario, read_scenario
from geomx.sim.world import World
from tests.test_scenario import NETWORK, SMALL, run

RESET: dict[str, Any] = {"reset": ["east", "hub"]}


def scenario(*events: dict[str, Any]) -> Scenario:
    cluster = read_network(NETWORK)
    return Scenario(read_scenario([RESET | event for event in events], cluster), cluster, 0)


def told(warn: Any, *given: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn(*given)
    return [str(each.message) for each in caught if each.category is ScenarioWarning]


def test_events_beyond_the_end_are_told_in_one_line() -> None:
    events = {"at_s": 2}, {"every_s": 1}, {"at_s": 30}, {"every_s": 2.5}
    assert told(warn_of_unreached, scenario(*events), 30.0) == []
    assert told(warn_of_unreached, scenario(*events), 2.5) == [
        "scenario[2] (at_s=30): the run ended before it, after 2.5 s"
    ]
    assert told(warn_of_unreached, scenario(*events), 0.26) == [
        "scenario[0] (at_s=2), scenario[1] (every_s=1), scenario[2] (at_s=30), and 1 more: "
        "the run ended before them, after 0.26 s"
    ]


def test_many_runs_are_told_of_in_one_line() -> None:
    events = scenario({"at_s": 2}, {"at_s": 3})
    assert told(warn_of_unreached_in_many, events, [(3.0, 9), (4.0, 9)]) == []
    assert told(warn_of_unreached_in_many, events, [(2.5, 9), (4.0, 9)]) == [
        "scenario[1] (at_s=3): 1 of 2 runs ended before it"
    ]
    assert told(warn_of_unreached_in_many, events, [(2.5, 9), (1.0, 9), (4.0, 9)]) == [
        "scenario[0] (at_s=2), scenario[1] (at_s=3): 2 of 3 runs ended before them, or some of them"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sim", "live"])
def test_a_run_tells_of_events_that_it_did_not_reach(tmp_path: Path, mode: str) -> None:
    """A time in the wrong unit does not read as a run that survives the fault."""
    given = "[{at_s: 0.1, reset: [east, hub]}, {at_s: 300, kill: hub/global_server0}]"
    with pytest.warns(ScenarioWarning) as caught:
        results = run(tmp_path / "run", mode, given, *SMALL, "iterations=5")
    (line,) = [str(each.message) for each in caught if each.category is ScenarioWarning]
    assert line.startswith("scenario[1] (at_s=300): the run ended before it, after ")
    assert [row["what"] for row in results.summary["faults"]] == ["reset"]


@pytest.mark.slow
def test_a_study_tells_once_for_all_runs(tmp_path: Path) -> None:
    words = ["workload=tiny", "iterations=3", 'study.variants=["accel=[fp16]"]', "study.jobs=2"]
    given = "scenario=[{at_s: 300, reset: [beijing, hub]}]"
    with pytest.warns(ScenarioWarning) as caught:
        study.run([*words, given, f"hydra.run.dir={tmp_path}"])
    lines = [str(each.message) for each in caught if each.category is ScenarioWarning]
    assert lines == ["scenario[0] (at_s=300): 2 of 2 runs ended before it"]


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        ({"at_s": 1e300}, r"\.at_s=1e\+300: must be between 0 and 1000000000"),
        ({"every_s": 1e10}, r"\.every_s=1.*: must be between 0.001 and 1000000000"),
        (
            {"reset": None, "pause": "east/server", "at_s": 1, "for_s": 1e300},
            r"\.for_s=1e\+300: must be more than 0 and at most 1000000000",
        ),
        (
            {"reset": None, "kill": "east/server", "at_s": 1, "restart_s": 2e9},
            r"\.restart_s=2.*: must be more than 0 and at most 1000000000",
        ),
        (
            {"reset": None, "slow": "east/server", "at_s": 1, "for_s": 1, "times": 1e7},
            r"\.times=1.*: must be more than 0 and at most 1000000",
        ),
        (
            {"reset": None, "set": ["east", "hub"], "at_s": 1, "mbps": 1e-300},
            r"\.mbps=1e-300: must be 1e-06 or more, or 0",
        ),
        (
            {"reset": None, "traffic": ["east", "hub"], "at_s": 1, "bytes": 1e300},
            r"\.bytes=1e\+300: must be more than 0 and at most 1e\+18",
        ),
    ],
)
def test_figures_beyond_their_bounds_are_refused(event: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=rf"scenario\[0\]{sentence}"):
        scenario(event)


def test_the_largest_figures_are_simulated(tmp_path: Path) -> None:
    given = (
        "[{at_s: 1e9, pause: east/server, for_s: 1e9},"
        " {every_s: 1e9, random: true, reset: [east, hub]},"
        " {at_s: 0.1, slow: east/worker0, times: 1e6, for_s: 0.01}]"
    )
    with pytest.warns(ScenarioWarning, match=r"\(at_s=1000000000\), scenario\[1\]"):
        results = run(tmp_path / "run", "sim", given, *SMALL, "iterations=5")
    assert results.summary["seconds"] < 1e6


@pytest.mark.parametrize("for_s", [math.inf, math.nan, 0, -1, 2e9])
def test_programs_pause_and_restart_nodes_for_a_time(tmp_path: Path, for_s: float) -> None:
    def pause(world: World) -> None:
        world.nodes["beijing/server"].pause(for_s)

    def kill(world: World) -> None:
        world.nodes["beijing/server"].kill(restart_s=for_s)

    words = "workload=tiny", "iterations=1"
    for program, name in ((pause, "for_s"), (kill, "restart_s")):
        with pytest.raises(PluginError, match=f"{name}={for_s}: must be above 0 and at most 1e"):
            runner.run(*words, f"hydra.run.dir={tmp_path / name}", world=program)
