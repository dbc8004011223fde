"""The programs in examples/world/: each has its parts, runs by its file, and shows what it says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import geomx

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "world"
DOCS = FOLDER.parents[1] / "docs"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "common")


@pytest.fixture
def example(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[ModuleType, Any, Any]]:
    """Run an example's words without and with its program; return its module and both results."""
    monkeypatch.syspath_prepend(str(FOLDER))
    module = __import__(request.param)
    module.lines.clear()
    words = list(getattr(module, "words", module.WORDS if hasattr(module, "WORDS") else ()))
    words = words or list(__import__("common").WORDS)
    steps = {"daily_cycle": 40, "strict_priority": 30}.get(request.param, 12)
    words = [*(w for w in words if not w.startswith("iterations=")), f"iterations={steps}"]
    runs = [
        geomx.run([*words, f"hydra.run.dir={tmp_path / name}"], world=world)
        for name, world in (("calm", None), ("with", module.world))
    ]
    yield module, *runs
    for name in (request.param, "common"):
        sys.modules.pop(name, None)


def values(line: list[tuple[float, float]], start: float = 0.0, end: float = 1e9) -> list[float]:
    """Return a line's values between two times."""
    return [value for time_s, value in line if start <= time_s <= end]


def test_every_example_has_its_parts_and_is_on_the_page() -> None:
    assert len(NAMES) == 5
    page = (DOCS / "world.md").read_text(encoding="utf-8")
    for name in NAMES:
        text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
        docstring = text.split('"""')[1]
        for heading in ("Covers:", "Scenario:", "Look at:", f"    python examples/world/{name}.py"):
            assert heading in docstring, (name, heading)
        assert f"examples/world/{name}.py" in page
        picture = (DOCS / "world" / f"{name}.svg").read_text(encoding="utf-8")
        assert picture.startswith("<svg") and len(re.findall("<path|<polyline", picture)) >= 1
        assert f"(world/{name}.svg)" in page


@pytest.mark.slow
@pytest.mark.parametrize("example", ["background_traffic"], indirect=True)
def test_files_of_others_delay_training(example: Any) -> None:
    module, calm, busy = example
    assert busy.summary["seconds"] > calm.summary["seconds"]
    assert max(values(module.lines["load"])) <= 100 + 1e-6
    assert max(values(module.lines["files"])) > 40


@pytest.mark.slow
@pytest.mark.parametrize("example", ["rerouting"], indirect=True)
def test_traffic_returns_to_the_repaired_way(example: Any) -> None:
    module, calm, failed = example
    cut_s = next(t for t, load in module.lines["south"] if load > 0) - module.CONVERGES_S
    assert not any(values(module.lines["north"], cut_s + 0.05, module.REPAIRED_S))
    assert any(values(module.lines["south"], cut_s, module.REPAIRED_S))
    assert not any(values(module.lines["south"], module.REPAIRED_S + 0.5))
    longer = failed.summary["seconds"] - calm.summary["seconds"]
    assert module.CONVERGES_S * 0.5 < longer < module.CONVERGES_S + 1


@pytest.mark.slow
@pytest.mark.parametrize("example", ["stragglers"], indirect=True)
def test_all_wait_for_the_slowest(example: Any) -> None:
    module, _, slow = example
    east, west = (module.lines[f"{party}/worker0"] for party in ("east", "west"))
    assert [took for _, took in east] == pytest.approx([took for _, took in west], rel=0.1)
    taken = [row["compute_s"] for row in slow.iterations if row["worker"] == module.SLOW]
    assert max(taken) > 2 * sorted(taken)[len(taken) // 2]


@pytest.mark.slow
@pytest.mark.parametrize("example", ["strict_priority"], indirect=True)
def test_a_background_copy_costs_nothing_and_an_urgent_one_its_time(example: Any) -> None:
    module, calm, busy = example
    alone_s = module.COPY_BYTES / (100e6 / 8 * 1448 / 1500)
    longer = busy.summary["seconds"] - calm.summary["seconds"]
    assert 0.5 * alone_s < longer < 1.1 * alone_s


@pytest.mark.slow
@pytest.mark.parametrize("example", ["daily_cycle"], indirect=True)
def test_iterations_follow_the_time_of_day(example: Any) -> None:
    module, _, _ = example
    took = module.lines["iteration_in_10_ms"]
    night, noon = values(took, 1.6, 5), values(took, 11, 16)  # the first one sends initial values
    assert max(noon) > 2 * max(night)


def test_a_program_may_be_divided_into_files(tmp_path: Path) -> None:
    words = [f"network={FOLDER / 'sites.yaml'}", "workload=tiny", "iterations=2"]
    words += [f"scenario={FOLDER / 'background_traffic.py'}", f"hydra.run.dir={tmp_path / 'run'}"]
    before = list(sys.path)
    assert geomx.run(words).summary["rounds"] == 2
    assert sys.path == before
