"""Studies and sweeps: variants, comparison, resumption, and files."""

from __future__ import annotations

import csv
import functools
import html
import json
import os
import re
import shlex
import subprocess
import sys
import xml.dom.minidom
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from geomx.cli import main as cli
from geomx.cli import runs
from geomx.config import compose, composition
from geomx.errors import ConfigError, GeomxError
from geomx.experiment.experiment import Experiment
from geomx.options.schema import StudyOptions
from geomx.pages.commands import repeating
from geomx.pages.comparison import Comparison, Entry
from geomx.plugin.registration import DEFAULT_SYNC
from geomx.plugin.registry import Registry
from geomx.results.results import Results
from geomx.study import variants as study
from tests.conftest import present
from tests.laws import registry_with

pytestmark = pytest.mark.slow

BASIC = "hydra/launcher=basic"  # in this process
QUICK = ["iterations=4", "numerics=false"]
BASELINE = (f"sync={DEFAULT_SYNC}", "accel=[]")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def asked(*variants: str) -> str:
    return f"study.variants=[{','.join(repr(words) for words in variants)}]"


def plan(*words: str, **options: Any) -> list[study.Variant]:
    return study.plan(words, StudyOptions(**options), Path("here"))


# ---- variants ----


def test_every_installed_plugin_is_a_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = registry_with(stranger=("accel", object()))
    monkeypatch.setattr(Registry, "discover", classmethod(lambda cls: registry))
    variants = plan("seed=3", each=["sync", "accel"])
    own = [variant.own for variant in variants]
    assert own[0] == BASELINE
    assert ("accel=[stranger]",) in own
    syncs = [plugin.name for plugin in registry.plugins("sync")]
    accels = [plugin.name for plugin in registry.plugins("accel")]
    # The default sync plugin is the baseline, and not a second variant.
    assert len(own) == 1 + len(syncs) - 1 + len(accels)
    assert all(v.overrides[:2] == ("seed=3", "study=null") for v in variants)
    assert len({variant.directory for variant in variants}) == len(variants)


def test_overrides_of_a_variant_replace_those_of_the_study() -> None:
    words = ("+sync=hfa", "sync.k1=4", "hydra.run.dir=x", "study.jobs=1", "+accel=[p3]")
    first, second = plan(*words, variants=["sync=esync seed=2"])
    assert first.overrides == ("sync.k1=4", "study=null", *BASELINE)
    assert second.overrides == ("sync.k1=4", "+accel=[p3]", "study=null", "sync=esync", "seed=2")
    assert second.own == ("sync=esync", "seed=2")


def test_the_baseline_may_be_named() -> None:
    first, second = plan(baseline="seed=1", variants=["seed=2", "seed=1"])
    assert (first.own, second.own) == (("seed=1",), ("seed=2",))


def test_a_variant_of_many_words_has_a_folder_of_its_own() -> None:
    """Which later runs of the study find again."""
    many = "network.note=" + "größe " * 60
    first, second, third = (
        plan(variants=[f"'{many}{end}'"])[1].directory.name for end in ("1", "2", "1")
    )
    assert first == third != second
    assert len(first.encode()) < 200 and first.startswith("network_note_größe_größe")


def test_a_variant_of_earlier_overrides_is_unfinished(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the study was changed, and ended before it was run again."""
    words = ["hydra.run.dir=kept", asked("seed=1"), "study.jobs=1"]
    study.run([*QUICK, *words])

    def interrupted(variants: Any, jobs: int) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(study, "carry_out", interrupted)
    with pytest.raises(KeyboardInterrupt):
        study.run([*QUICK, *words, "costs.send_message_s=0"])
    rows = json.loads(Path("kept/study.json").read_text())["variants"]
    assert [row["status"] for row in rows] == ["unfinished"] * 2


@pytest.fixture
def jobs_used(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many variants at a time each study that follows is to carry out; none is."""
    used: list[int] = []

    def carried_out(variants: Any, jobs: int) -> Any:
        used.append(jobs)
        return iter(())

    monkeypatch.setattr(study, "carry_out", carried_out)
    monkeypatch.setattr("joblib.cpu_count", lambda: 3)
    return used


@pytest.mark.parametrize(
    ("words", "jobs"),
    [
        ([asked("seed=1")], 3),
        ([asked("mode=live"), "study.jobs=2"], 2),
        ([asked("seed=1", "mode=live")], 1),
        ([asked("seed=1", "mode=live"), "mode=both", "study.baseline='mode=sim'"], 1),
        ([asked("mode=sim seed=1"), "mode=live", "study.baseline='mode=sim'"], 3),
    ],
)
def test_live_variants_run_one_at_a_time(words: list[str], jobs: int, jobs_used: list[int]) -> None:
    study.run([*QUICK, *words])
    assert jobs_used == [jobs]


def test_variants_whose_preset_is_live_run_one_at_a_time(
    tmp_path: Path, jobs_used: list[int]
) -> None:
    (tmp_path / "experiment").mkdir()
    for name, text in (("real", "mode: live"), ("other", "seed: 3")):
        file = tmp_path / f"experiment/{name}.yaml"
        file.write_text(f"# @package _global_\n{text}\n")
    words = [*QUICK, f"hydra.searchpath=[file://{tmp_path}]"]
    study.run([*words, asked("experiment=real")])
    study.run([*words, asked("experiment=other")])
    study.run([*words, asked("experiment=real mode=sim")])
    assert jobs_used == [1, 3, 3]


class Dying:
    """Ends the process that receives it."""

    def __reduce__(self) -> Any:
        return os._exit, (1,)


def test_a_killed_process_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    dying: Any = Dying()
    variants = [study.Variant((), (dying,), Path(name)) for name in ("a", "b")]
    with pytest.raises(GeomxError, match=r"killed, perhaps as memory was full; .* is kept"):
        list(study.carry_out(variants, 2))

    def swept() -> None:
        raise BrokenProcessPool

    monkeypatch.setattr(composition, "main", lambda *place: lambda job: swept)
    with pytest.raises(GeomxError, match="run fewer at a time"):
        composition.run_all(["-m"], [], lambda config: None)


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["study.each=[synk]"], "study.each[0]=synk: did you mean sync?"),
        (["study.each=[sync]", "study.jobs=0"], "study.jobs=0: must be 1 or more"),
        (["study.each=[sync]", "study.target_accuracy=2"], "study.target_accuracy=2"),
        (["study.each=[sync]", "iterations=0"], "iterations=0"),
        ([asked("seed=1"), "study.baseline='seed=-1'"], "seed=-1"),
        ([asked("seed=1"), 'study.baseline="it\'s"'], "study.baseline=it's: cannot be divided"),
        (
            [asked("seed=1"), "study.baseline=plain"],
            "study.baseline=plain: must consist of overrides",
        ),
        ([asked("study.each=[sync]")], "study=study.each=[sync]: a variant cannot be a study"),
        (["study=null", "study.jobs=1"], "study.jobs=1: study has no keys of its own"),
        (["study=null", "study={jobs:1}"], "study={'jobs': 1}: study was set to null before, "),
        (["study=null", "study=null", "seed=-1"], "seed=-1: must be"),
        (['study.variants=["seed=1","it\'s"]'], "study.variants[1]=it's: cannot be divided into"),
    ],
)
def test_an_invalid_study_is_refused_in_one_line(
    words: list[str], key: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(words) == cli.WRONG
    err = capfd.readouterr().err
    assert key in err
    assert err.count("\n") == 1


def test_a_study_has_no_single_result() -> None:
    import geomx

    with pytest.raises(ConfigError, match="study=null"):
        geomx.run(["study.each=[sync]"])
    with pytest.raises(ConfigError, match=r"study\.each or study\.variants"):
        study.run(QUICK)


# ---- running ----


def test_a_study_writes_one_report(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two processes and a refused variant; the last line is the path."""
    monkeypatch.setattr("geomx.terminal.progress.FIRST_LINE_S", 1e9)  # none on a slow machine
    variants = asked("network.delay_ms=60", "accel=[nobody]", "iterations=2 seed=1")
    assert cli.run([*QUICK, variants, "study.jobs=2"]) == cli.DONE
    out, err = capfd.readouterr()
    assert err == ""
    directory = Path(out.splitlines()[-1])
    content = json.loads((directory / "study.json").read_text())
    rows = content["variants"]
    assert [row["status"] for row in rows] == ["done", "done", "refused", "done"]
    assert "accel=nobody: no such accel; allowed: " in rows[2]["reason"]
    assert [row["name"] for row in rows[:2]] == ["fsa", "fsa network.delay_ms=60"]
    with (directory / "study.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    base = rows[0]["figures"]
    for row, line in zip(rows, lines, strict=True):
        for field, value in row["figures"].items():
            expected = value / base[field] if value is not None and base[field] else None
            assert row["against_baseline"][field] == expected
            assert line[field] == ("" if value is None else str(value))
            assert line[f"{field}_ratio"] == ("" if expected is None else str(expected))
        if row["status"] == "done":
            took = Results.load(directory / row["directory"]).summary["seconds_per_iteration"]
            assert took["mean"] == row["figures"]["seconds_per_iteration"]
    assert rows[1]["against_baseline"]["seconds_per_iteration"] > 1.2
    assert rows[1]["against_baseline"]["wan_bytes"] == 1
    page = (directory / "report.html").read_text()
    for said in ("fsa network.delay_ms=60", "no such accel", 'href="iterations_2_seed_1/'):
        assert said in page
    order = [row["name"] for row in rows if row["status"] == "done"]
    names = re.findall(r'<th><a href="[^"]*/report.html">([^<]*)', page)
    assert names[0] == order[0] and sorted(names) == sorted(order)
    ranked = {row["name"]: row["figures"] for row in rows}
    later = [ranked[name]["seconds_per_iteration"] for name in names[1:]]  # no target was set
    assert later == sorted(later)
    assert page.count('class="num best"') >= 3  # time per iteration, bytes, samples per second
    xml.dom.minidom.parse(str(directory / "chart.svg"))


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the experiments that are run, and run them in this process."""
    seen: list[Any] = []
    execute = study.execute

    def note(experiment: Any, directory: Path) -> Results:
        seen.append(experiment)
        if experiment.seed == 13:
            raise GeomxError("out of luck")
        return execute(experiment, directory)

    monkeypatch.setattr(study, "execute", note)
    return seen


def test_completed_variants_are_not_run_again(
    executed: list[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    words = [*QUICK, "hydra.run.dir=kept", "study.jobs=1"]
    first = study.run([*words, asked("seed=1", "seed=2")])
    assert len(executed) == 3
    again = study.run([*words, asked("seed=1", "seed=3")])
    assert [made.seed for made in executed[3:]] == [3]
    assert again.rows[:2] == first.rows[:2]
    # Variants with other overrides, and interrupted ones, are run.
    study.run([*words, "costs.send_message_s=0", asked("seed=1")])
    assert [made.seed for made in executed[4:]] == [0, 1]
    path = Path("kept/seed_1/summary.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "aborted": "killed"}))
    study.run([*words, "costs.send_message_s=0", asked("seed=1")])
    assert [made.seed for made in executed[6:]] == [1]


def test_studies_plans_and_runs_do_not_share_a_folder(capfd: pytest.CaptureFixture[str]) -> None:
    """Each would replace the other's report."""
    study.run([*QUICK, "hydra.run.dir=studied", asked("seed=1")])
    assert cli.run([*QUICK, "hydra.run.dir=ran"]) == cli.DONE
    before = Path("studied/report.html").read_text()
    for words in (["hydra.run.dir=studied"], ["hydra.run.dir=ran", asked("seed=1")]):
        assert cli.run([*QUICK, *words]) == cli.WRONG
        assert f"{words[0]}: already holds a run" in capfd.readouterr().err.replace(
            f"{Path.cwd()}/", ""
        )
    assert cli.run(["-m", *QUICK, "hydra.sweep.dir=studied", "seed=1,2"]) == cli.WRONG
    assert Path("studied/report.html").read_text() == before
    assert cli.run(["-m", *QUICK, BASIC, "hydra.sweep.dir=swept", "seed=1,2"]) == cli.DONE
    for own in ([], [asked("seed=1")]):
        assert cli.run([*QUICK, "hydra.run.dir=swept", *own]) == cli.WRONG
    Path("planned").mkdir()
    Path("planned/plan.json").touch()
    for own in ([], [asked("seed=1")]):
        assert cli.run([*QUICK, "hydra.run.dir=planned", *own]) == cli.WRONG
    assert cli.run(["-m", *QUICK, "hydra.sweep.dir=planned", "seed=1,2"]) == cli.WRONG


def test_relative_paths_are_relative_to_the_studys_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Worker processes are reused by the next study, which may have another working directory."""
    seconds = []
    for name, mbps in (("wide", 100), ("narrow", 25)):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        site = {"uplink_mbps": mbps, "downlink_mbps": mbps}
        central = {"name": "hub", "global_servers": 1, "workers": 0, **site}
        wan = {"central": central, "parties": {"a": {"workers": 1, **site}}, "delay_ms": 1}
        Path("wan.yaml").write_text(json.dumps(wan))
        made = study.run([*QUICK, "network=wan.yaml", asked("seed=1"), "study.jobs=2"])
        assert [row.status for row in made.rows] == ["done", "done"]
        seconds.append(made.rows[0].figures["seconds_per_iteration"])
    assert seconds[0] < seconds[1]


def test_a_failing_variant_does_not_affect_the_others(
    executed: list[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    words = [*QUICK, asked("seed=13", "seed=2"), "study.jobs=1", "hydra.run.dir=kept"]
    assert cli.run(words) == cli.FAILED
    out, err = capfd.readouterr()
    assert err == "fsa seed=13 failed: out of luck\n"
    directory = Path(out.splitlines()[-1])
    rows = json.loads((directory / "study.json").read_text())["variants"]
    assert [row["status"] for row in rows] == ["done", "failed", "done"]
    assert "Traceback" in (directory / "seed_13/failure.txt").read_text()
    assert cli.run(words) == cli.FAILED  # only the failed variant is run again
    assert [made.seed for made in executed] == [0, 13, 2, 13]


@pytest.mark.needs("hfa", "p3")
def test_a_sweep_writes_the_same_report(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["-m", *QUICK, "sync=hfa,fsa", "+accel=[p3],[]"]) == cli.DONE
    directory = Path(capfd.readouterr().out.splitlines()[-1])
    content = json.loads((directory / "study.json").read_text())
    assert content["baseline"] == "fsa"
    assert content["words"] == ["-m", *QUICK, "sync=hfa,fsa", "+accel=[p3],[]"]
    command = f"python -m geomx {shlex.join(content['words'])}"
    assert html.escape(command, quote=False) in (directory / "report.html").read_text()
    names = [row["name"] for row in content["variants"]]
    assert names == ["fsa", "hfa + p3", "hfa", "fsa + p3"]
    assert [row["directory"] for row in content["variants"]] == ["3", "0", "1", "2"]


def test_jobs_with_names_are_in_the_report(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With those of an earlier sweep in the same folder."""
    words = ["-m", *QUICK, f"hydra.sweep.dir={tmp_path / 'both'}"]
    words += ["hydra.sweep.subdir=${mode}/seed${seed}", BASIC]
    for seeds, names in (("seed=1,2", ["1", "2"]), ("seed=3", ["1", "2", "3"])):
        assert cli.run([*words, seeds]) == cli.DONE
        assert Path(capfd.readouterr().out.splitlines()[-1]) == tmp_path / "both"
        rows = json.loads((tmp_path / "both/study.json").read_text())["variants"]
        assert [row["name"] for row in rows] == [f"fsa seed={name}" for name in names]
        assert [row["directory"] for row in rows] == [f"sim/seed{name}" for name in names]


def test_the_last_line_of_a_sweep_is_its_directory() -> None:
    words = ["-m", "hydra/launcher=joblib", *QUICK, "seed=1,2,-1"]
    command = [sys.executable, "-m", "geomx", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    directory = Path(done.stdout.splitlines()[-1])
    rows = json.loads((directory / "study.json").read_text())["variants"]
    assert [row["name"] for row in rows] == ["fsa seed=1", "fsa seed=2", "fsa seed=-1"]
    assert done.returncode == cli.WRONG
    reason = f"seed=-1: must be between 0 and {2**64 - 1}"
    assert reason in done.stderr
    assert [row["status"] for row in rows] == ["done", "done", "refused"]
    assert rows[2]["reason"] == reason


@pytest.mark.needs("hfa", "p3")
def test_a_refused_job_of_a_sweep_is_a_row(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also the first one, which is no baseline; and its folder says so."""
    places = [f"hydra.sweep.dir={tmp_path}", "hydra.sweep.subdir=k${sync.k1}"]
    places += ["hydra.output_subdir=null"]  # no other file is in the folder of a refused job
    words = ["-m", *QUICK, BASIC, "sync=hfa", "accel=[p3]", *places]
    assert cli.run([*words, "sync.k1=0,1"]) == cli.WRONG
    out = capfd.readouterr().out
    assert re.search(r"^hfa \+ p3 sync.k1=0: refused: sync.k1=0: must be", out, re.MULTILINE)
    assert "2 variants against hfa + p3 sync.k1=1" in out
    content = json.loads((tmp_path / "study.json").read_text())
    assert content["baseline"] == "hfa + p3 sync.k1=1"
    assert [row["status"] for row in content["variants"]] == ["done", "refused"]
    assert "sync.k1=0: must be" in (tmp_path / "report.html").read_text()
    for command in ("explain", "report"):
        assert cli.main([command, str(tmp_path / "k0")]) == cli.WRONG
        assert "the job was refused: sync.k1=0: must be" in capfd.readouterr().err
    with pytest.raises(GeomxError, match=r"has no summary.json; the job was refused: sync.k1=0"):
        Results.load(tmp_path / "k0")


@pytest.mark.needs("hfa", "fp16", "halos")
def test_refused_variants_are_named_after_what_the_studys_file_chooses(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    text = "# @package _global_\ndefaults:\n- override /sync: hfa\n- override /accel: [fp16]\n"
    (tmp_path / "experiment/mine.yaml").write_text(text)
    variants = ["seed=-1", "accel=[] seed=-2", "sync=fsa seed=-3", "experiment=paper_halos seed=-4"]
    words = [f"hydra.searchpath=[file://{tmp_path}]", "experiment=mine", asked(*variants)]
    rows = study.run([*QUICK, *words, "study.jobs=1", "workload=tiny"]).rows
    assert [row.name for row in rows] == [
        "fsa", "hfa + fp16 seed=-1", "hfa seed=-2", "fsa + fp16 seed=-3",
        "experiment=paper_halos seed=-4",
    ]  # fmt: skip


@pytest.mark.needs("hfa")
def test_a_refused_baseline_is_said_to_be_one(capfd: pytest.CaptureFixture[str]) -> None:
    words = [*QUICK, "workload=tiny", "sync=hfa", "sync.k1=2", asked("seed=1"), "study.jobs=1"]
    assert cli.run(words) == cli.WRONG
    told = capfd.readouterr().err
    assert told.startswith("sync.k1=2: is an option of sync=hfa, which is not chosen; ")
    assert "study's baseline, sync=fsa accel=[], is refused: study.baseline='sync=NAME'" in told
    assert cli.run([*words, "study.baseline='sync=hfa'"]) == cli.DONE


def test_runs_with_files_of_the_users_can_be_repeated(tmp_path: Path) -> None:
    """By their words alone, as variants of studies and changes of explanations are made."""
    folder = tmp_path / "my own files"
    (folder / "experiment").mkdir(parents=True)
    text = "# @package _global_\nruntime: {pace: false}\n"
    (folder / "experiment/mine.yaml").write_text(text)
    (folder / "experiment/some.yaml").write_text(text + "study: {variants: [seed=1]}\n")
    own = ["--config-dir", str(folder), *QUICK]
    assert cli.run([*own, "experiment=some", "study.jobs=1", "hydra.run.dir=studied"]) == cli.DONE
    rows = json.loads(Path("studied/study.json").read_text())["variants"]
    assert [row["status"] for row in rows] == ["done", "done"]
    places = [BASIC, "hydra.sweep.dir=swept"]
    assert cli.run(["-m", *own, *places, "experiment=mine", "seed=1"]) == cli.DONE
    for place in ("studied/seed_1", "swept/0"):
        words = json.loads(Path(place, "summary.json").read_text())["words"]
        again, _ = compose.compose(repeating(words))
        assert (again.runtime.pace, again.seed) == (False, 1)


def test_studies_may_be_swept_by_experiments(tmp_path: Path) -> None:
    """Also side by side, in processes of joblib, in which it can start no others."""
    (tmp_path / "experiment").mkdir()
    for seed in (1, 2):
        study = f"study: {{variants: [seed={seed}], jobs: 2}}"
        (tmp_path / f"experiment/e{seed}.yaml").write_text(f"# @package _global_\n{study}\n")
    words = ["-m", f"hydra.searchpath=[file://{tmp_path}]", *QUICK, "workload=tiny"]
    words += ["experiment=e1,e2", "hydra.sweep.dir=swept", "hydra.launcher.n_jobs=2"]
    subprocess.run([sys.executable, "-m", "geomx", *words], check=True, capture_output=True)
    for job in "01":
        rows = json.loads(Path("swept", job, "study.json").read_text())["variants"]
        assert [row["status"] for row in rows] == ["done", "done"]


def test_a_sweep_of_refused_jobs_leaves_a_report(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["-m", *QUICK, BASIC, f"hydra.sweep.dir={tmp_path}", "seed=-1,-2"]) == cli.WRONG
    told = capfd.readouterr().out
    assert "2 variants, none of which has results" in told
    assert told.count("fsa seed=-1") == 1  # beside its reason, and not above it, too
    rows = json.loads((tmp_path / "study.json").read_text())["variants"]
    assert [row["status"] for row in rows] == ["refused", "refused"]
    page = (tmp_path / "report.html").read_text()
    assert "seed=-2: must be" in page
    assert "At a glance" not in page


def test_a_failed_job_of_a_sweep_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(experiment: Experiment, directory: Path) -> None:
        if experiment.seed == 13 and not fixed:
            raise ZeroDivisionError("unlucky")
        runs._run_one(experiment, directory)

    fixed: list[bool] = []
    folder = tmp_path / "swept"
    words = ["-m", *QUICK, BASIC, f"hydra.sweep.dir={folder}"]
    words += ["hydra.sweep.subdir=seed${seed}"]
    ignored = functools.partial(compose.main, job=fail, swept=study.gather)
    with pytest.raises(ZeroDivisionError):
        ignored([*words, "seed=1,13"])
    rows = json.loads((folder / "study.json").read_text())["variants"]
    assert [(row["status"], row["reason"]) for row in rows] == [
        ("done", ""), ("failed", "ZeroDivisionError: unlucky"),
    ]  # fmt: skip
    fixed.append(True)  # the same job, in the same folder
    ignored([*words, "seed=13"])
    rows = json.loads((folder / "study.json").read_text())["variants"]
    assert [row["status"] for row in rows] == ["done", "done"]
    assert not (folder / "seed13/refused.json").exists()


# ---- comparison ----


def results(accuracies: list[float], seconds: float, wan_bytes: int) -> Results:
    """Return the results of a run that was evaluated every second."""
    summary = {
        "sync": {"name": "<b>"}, "accel": [], "mode": "sim", "geomx": "0", "seed": 0,
        "iterations": 1, "workload": {"name": "w", "elements": 1},
        "network": {"name": "n", "parties": 1, "workers": 1},
        "seconds_per_iteration": {"mean": seconds}, "samples_per_second": 1 / seconds,
        "bytes": {"wan_push": wan_bytes, "wan_pull": wan_bytes},
        "accuracy": {"final": accuracies[-1], "best": max(accuracies)},
    }  # fmt: skip
    rows = [{"time_s": float(at), "accuracy": value} for at, value in enumerate(accuracies, 1)]
    return Results(Path(), summary, [], rows, [])


@pytest.mark.parametrize(
    ("target", "expected", "times"), [(None, 0.76, (3.0, 2.0)), (0.5, 0.5, (2.0, 1.0))]
)
def test_time_to_accuracy(
    target: float | None, expected: float, times: tuple[float, float], tmp_path: Path
) -> None:
    """By default 95 % of the baseline's best; the first evaluation at or above it counts."""
    entries = [
        Entry.of(results([0.4, 0.6, 0.8, 0.7], 2.0, 100), "slow <b>", ["seed=1"], "a"),
        Entry.of(results([0.5, 0.76], 0.5, 5), "fast", ["seed=2"], "b"),
        Entry.of(results([0.1, 0.2], 1.0, 0), "never", ["seed=3"], "c"),
    ]
    made = Comparison.write(tmp_path, entries, target, ["iterations=9"], "study")
    assert made.target == pytest.approx(expected)
    slow, fast, never = made.rows
    assert slow.figures["seconds_to_target"] == times[0]
    assert fast.figures["seconds_to_target"] == times[1]
    assert fast.against_baseline["seconds_to_target"] == times[1] / times[0]
    assert never.figures["seconds_to_target"] is never.against_baseline["seconds_to_target"] is None
    assert fast.against_baseline["seconds_per_iteration"] == 0.25
    assert fast.against_baseline["wan_bytes"] == 0.05
    assert fast.against_baseline["samples_per_second"] == 4
    page, chart = ((tmp_path / name).read_text() for name in ("report.html", "chart.svg"))
    for text in (page, chart):
        assert "slow <b>" not in text
        assert "slow &lt;b" in text
        assert "not reached" in text
        assert ">0.500 s<" in text and "500 ms" not in text  # in the unit of the baseline
    shown = made.table()
    names, seconds = (list(shown.columns[number].cells) for number in (0, 1))
    assert list(map(str, names)) == ["slow <b>", "fast", "never"]
    assert [str(cell.style) for cell in seconds] == ["", "bold", ""]


def test_the_built_in_study_compares_installed_plugins() -> None:
    """Composition only: its plugins, and the installed ones of its lists."""
    from geomx.config.compose import compose

    made, directory = compose(["experiment=accelerators"])
    assert made.study is not None
    variants = study.plan(made.overrides, made.study, directory)
    installed = {plugin.name for plugin in Registry.discover().plugins("accel")}
    assert {f"accel=[{name}]" for name in installed} <= {w for v in variants for w in v.own}
    if present("fp16", "dgt", "p3", "bisparse", "multigps", "hfa", "mixedsync"):
        for variant in variants:
            compose(variant.overrides, directory=variant.directory)
