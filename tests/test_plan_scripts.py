"""`geomx plan ... -- COMMAND` ranks combinations for a script, and simulates it with the best."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from geomx.cli import main as cli
from geomx.errors import GeomxError
from geomx.planning import scripts
from geomx.results.results import Results
from tests.test_simulate import NETWORK, TRAIN

LOSSY = TRAIN.replace("2000", "50000").replace(
    "step / 10", "float(np.unique(values[0]).size > 40000)"
)
"""A script whose accuracy falls if values are rounded."""


def script(folder: Path, text: str) -> list[str]:
    (folder / "pair.yaml").write_text(NETWORK)
    (folder / "train.py").write_text(text)
    return [sys.executable, str(folder / "train.py")]


@pytest.mark.slow
def test_a_script_is_simulated_with_the_best_by_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = script(tmp_path, LOSSY)
    words = ["network=pair.yaml", "plan.sync=[fsa,esync]", "plan.accel=[fp16,p3]", "plan.tried=1"]
    words += ["plan.together=1", "plan.options=false", "accel.p3.slice_elements=20000"]
    made = scripts.make([*words, "hydra.run.dir=here"], command, "constant:0.05")
    rows = {row["name"]: row for row in made.content["candidates"]}
    # The script gives the store an optimizer, which esync refuses: its workers have their own.
    refused = [name for name, row in rows.items() if row["status"] == scripts.REFUSED]
    assert [name.split(" ")[0] for name in refused] == ["esync"]
    # The fastest rounds values; the fastest that does not is tried as well, and is chosen.
    assert rows["fsa + fp16"]["status"] == scripts.LOSES and not rows["fsa + fp16"]["lossless"]
    names = list(rows)
    assert set(names[:2]) == {"fsa + p3", "fsa"}
    assert rows["fsa + p3"]["lossless"] and "accel.p3.slice_elements=20000" in str(rows)
    for name in ("fsa", "fsa + p3", "fsa + fp16"):
        run = Results.load(Path(rows[name]["directory"])).summary
        assert run["seconds_per_iteration"]["mean"] == rows[name]["seconds_per_iteration"]
        assert run["accuracy"]["final"] == rows[name]["accuracy"]
    launch = shlex.split(made.content["command"])
    assert launch[:2] == ["geomx", "launch"] and launch[-2:] == command
    assert launch[2:-3] == ["network=pair.yaml", *rows[names[0]]["words"]]
    said = list(made.verdict())
    assert said[-1] == made.content["command"]
    assert any(sentence.startswith("fsa + fp16: ends 100.0 % below fsa") for sentence in said)
    assert json.loads(Path("here/script.json").read_text()) == made.content


@pytest.mark.slow
def test_a_plan_with_shadows_runs_the_script_once_per_combination(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its times are those of a plan without them, since all workers make the same calls.

    Paths that have to be quoted make no difference.
    """
    folder = tmp_path / "größe (a, b): 1=x's & more"
    folder.mkdir()
    monkeypatch.chdir(folder)
    command = script(folder, TRAIN)
    words = ["network=pair.yaml", "plan.sync=[fsa]", "plan.accel=[p3]", "plan.options=false"]
    made = [
        scripts.make([*words, f"hydra.run.dir={where}"], command, "constant:0.05", where == "some")
        for where in ("some", "all")
    ]
    times_s = [
        {row["name"]: row["seconds_per_iteration"] for row in plan.content["candidates"]}
        for plan in made
    ]
    assert times_s[0] == times_s[1] and set(times_s[0]) == {"fsa", "fsa + p3"}
    for row in made[0].content["candidates"]:
        assert Results.load(Path(row["directory"])).summary["script"]["shadows"] > 0
    told = [any("its shadows" in sentence for sentence in plan.verdict()) for plan in made]
    assert told == [True, False]


@pytest.mark.slow
def test_a_baseline_that_is_not_to_be_chosen_is_not_launched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = script(tmp_path, TRAIN)
    words = ["network=pair.yaml", "plan.sync=[esync]", "plan.accel=[]", "plan.options=false"]
    made = scripts.make([*words, "hydra.run.dir=here"], command, "constant:0.05")
    rows = {row["name"]: row["status"] for row in made.content["candidates"]}
    assert rows == {"fsa": scripts.BASE, "esync": scripts.REFUSED}  # its workers have optimizers
    assert made.content["command"] is None
    assert list(made.verdict())[-1].startswith("no combination of plan.sync can be chosen; fsa is")


@pytest.mark.parametrize(
    "word", ["workload=tiny", "iterations=3", "plan.live=1", "plan.target=0.5"]
)
def test_what_does_not_apply_to_scripts_is_refused(
    word: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["plan", word, "--", "python", "train.py"]) == cli.WRONG
    assert capfd.readouterr().err.startswith(f"{word}: ")


@pytest.mark.slow
def test_a_script_that_fails_has_no_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = script(tmp_path, "raise SystemExit('no data')")
    with pytest.raises(GeomxError, match="here/worker0 was lost: exit status 1"):
        scripts.make(["network=pair.yaml", "hydra.run.dir=here"], command, "constant:0.05")
    assert not Path("here/script.json").exists()
