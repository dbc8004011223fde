"""Failures of programs of the world and of WAN models are errors that name the function."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from geomx import runner
from geomx.errors import ConfigError, PluginError
from geomx.events import StepEnded
from geomx.sim.world import World

DIVIDES = r"failed: ZeroDivisionError: division by zero"
EXITS = r"failed: it ends the process \(3\)"


def run(folder: Path, *words: str, world: Any = None) -> None:
    runner.run("workload=tiny", "iterations=3", f"hydra.run.dir={folder}/run", *words, world=world)


def divides(*_: Any) -> float:
    return 1 / 0


def exits(*_: Any) -> None:
    sys.exit(3)


def later(world: World, function: Callable[[], Any]) -> Generator[Any, Any, None]:
    yield world.env.timeout(world.seconds(0.01))
    function()


def after_an_event(world: World, function: Callable[[Any], Any]) -> None:
    callbacks = world.env.timeout(world.seconds(0.01)).callbacks
    assert callbacks is not None
    callbacks.append(function)


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        (lambda w: w.compute.set(None, divides), rf"times of world.compute divides .*{DIVIDES}"),
        (lambda w: w.compute.set(None, lambda step: -1), r"failed: ValueError: times=-1: must be"),
        (lambda w: w.compute.set(None, lambda step: None), r"ValueError: times=None: must be"),
        (lambda w: w.compute.set(None, lambda step: "x"), r"ValueError: times='x': must be"),
        (lambda w: w.events.subscribe(StepEnded, divides), rf"world.events divides .*{DIVIDES}"),
        (lambda w: w.events.subscribe(StepEnded, exits), rf"world.events exits .*{EXITS}"),
        (lambda w: w.events.next(StepEnded, divides), rf"world.events divides .*{DIVIDES}"),
        (lambda w: w.when(lambda: w.now_s > 0 and divides()), rf"world.when .*{DIVIDES}"),
        (lambda w: w.when(divides, every_s=0.01), rf"world.when divides .*{DIVIDES}"),
        (lambda w: after_an_event(w, divides), rf"SimPy callback divides .*{DIVIDES}"),
        (lambda w: after_an_event(w, exits), rf"SimPy callback exits .*{EXITS}"),
        (lambda w: w.process(later(w, exits)) and None, rf"SimPy process later .*{EXITS}"),
        (exits, rf"world=exits {EXITS}"),
    ],
)
def test_functions_that_fail_are_named(tmp_path: Path, program: Any, sentence: str) -> None:
    def world(world: World) -> None:
        program(world)

    with pytest.raises(PluginError, match=sentence):
        run(tmp_path, world=exits if program is exits else world)


@pytest.mark.parametrize("option", ["scenario", "sim.wan"])
def test_files_that_end_the_process_are_refused(tmp_path: Path, option: str) -> None:
    """Status 0 without a run would read as a run."""
    file = tmp_path / "ends.py"
    file.write_text("import sys; sys.exit(0)\n")
    sentence = r"ends.py: cannot be imported: it ends the process \(0\)"
    with pytest.raises(ConfigError, match=sentence):
        run(tmp_path, f"{option}={file}")


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("def start(self, connection, size): 1 / 0", rf"WAN model Mine.start .*{DIVIDES}"),
        ("def begin(self, wire): import sys; sys.exit(3)", rf"WAN model Mine.begin .*{EXITS}"),
        (
            "def start(self, connection, size):\n"
            "        self.wire.left(connection); self.wire.left(connection)",
            r"Mine: wire.left of the connection .* -> .* has no message to end; the model must",
        ),
        (
            "def start(self, connection, size): self.wire.rate(connection, -1.0)",
            r"WAN model Mine.start .*bytes_per_s=-1.0: must be 0 or more",
        ),
    ],
)
def test_wan_models_that_fail_are_named(tmp_path: Path, body: str, sentence: str) -> None:
    file = tmp_path / "mine.py"
    model = f"class Mine(geomx.WanModel):\n    {body}\n"
    file.write_text(f"import geomx\n{model}\ndef wan_model():\n    return Mine()\n")
    with pytest.raises(PluginError, match=sentence):
        run(tmp_path, f"sim.wan={file}")
