"""The command line: for every invalid request, one line and the correct exit status."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from joblib.externals.loky import get_reusable_executor

from geomx.cli import main as cli
from geomx.cli import runs
from geomx.errors import ConfigError, GeomxError, NodeLost
from geomx.experiment.experiment import Experiment
from geomx.network.named import named_networks
from geomx.options.schema import PlanOptions
from geomx.plugin.registration import KINDS
from geomx.plugin.registry import Registry
from geomx.results.recorder import Recorder
from geomx.results.results import Results
from geomx.runner import run
from geomx.version import SUMMARY_SCHEMA, __version__

UNREACHABLE = """
directed: true
nodes:
  - {id: g, kind: global_server, party: hub}
  - {id: w, kind: worker, party: far}
  - {id: s, kind: server, party: far}
  - {id: r, kind: router}
links:
  - {source: w, target: r, bandwidth_mbps: 1}
  - {source: r, target: w, bandwidth_mbps: 1}
  - {source: s, target: r, bandwidth_mbps: 1}
  - {source: r, target: s, bandwidth_mbps: 1}
  - {source: g, target: r, bandwidth_mbps: 1}
"""
ONE_WAY = {
    "directed": True,
    "nodes": [
        {"id": "g", "kind": "global_server", "party": "hub"},
        {"id": "s", "kind": "server", "party": "far"},
        {"id": "w", "kind": "worker", "party": "far"},
    ],
    "links": [
        {"source": "s", "target": "w", "bandwidth_mbps": 1},
        {"source": "w", "target": "s", "bandwidth_mbps": 1},
        {"source": "s", "target": "g", "bandwidth_mbps": 1},
    ],
}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "unreachable.yaml").write_text(UNREACHABLE)
    (tmp_path / "one_way.json").write_text(json.dumps(ONE_WAY))


INSTALLED = {plugin.name for plugin in Registry.discover().plugins()}


def needs(text: str) -> None:
    """Skip a test of a plugin whose folder has been deleted."""
    for name in ("hfa", "dgt", "p3", "fp16"):
        if name in text and name not in INSTALLED:
            pytest.skip(f"no plugin {name}")


WRONG = [
    ("+sync=hfaa", "sync=hfaa: no such sync; did you mean hfa? allowed: "),
    ("+sync=hfa sync.k1=0", "sync.k1=0: must be 1 or more"),
    ("sync.k1=0", "sync.k1=0: is an option of sync=hfa, which is not chosen; "),
    ("+sync=hfa sync.k1=x", "sync.k1=x: must be a whole number"),
    ("sync=null", "sync=null: must be a name"),
    ("+accel=[dgt] accel.dgt.k=1.5", "accel.dgt.k=1.5: must be"),
    ("+accel=[dgt] accel.dgt.kk=1", "accel.dgt.kk=1: unknown key; did you mean k? allowed: "),
    ("+accel=[dgt] accel.p3.slice_elements=1", "accel.p3.slice_elements=1: p3 is not chosen; "),
    ("+accel=[dgt,dgt]", "accel=[dgt,dgt]: dgt is listed twice"),
    ("+accel=[[p3]]", "accel=[[p3]]: must be a list of names, [a,b]"),
    ("costs.send_message_s=1e30", "costs.send_message_s=1e+30: must be between 0 and 1000000.0"),
    ("+accel=3", "accel=3: must be a list of names, [a,b]"),
    ("network=[two_parties]", "network=[two_parties]: must be a name"),
    ("+accel=[dgt,px]", "accel=px: no such accel; did you mean p3? allowed: "),
    ("+accel=dgt,p3", "accel=dgt,p3: several values are a sweep"),
    ("+accel=[dgt", "accel=[dgt: "),
    ("name=größe", "name=größe: has characters that must be quoted: 'name=\"größe\"'"),
    ("accel=null", "accel=null: must be []; this is how to choose no accelerator"),
    ("network=missing.yaml", "network=missing.yaml: there is no such file"),
    ("network=missing", "network=missing: no such network; "),
    ("network=unreachable.yaml", "network=unreachable.yaml: "),
    ("network=one_way.json", "network=one_way.json: "),
    ("network.delay=5", "network.delay=5: unknown key; did you mean delay_ms? allowed: "),
    ("network.delay_ms=-5", "network=two_parties: delay_ms is -5; it must be 0 or more"),
    ("workload=foo", "workload=foo: no such workload; allowed: "),
    ("workload=resnet50 numerics=true", "numerics=true: workload resnet50 has sizes and times"),
    ("experiment=foo", "experiment=foo: no such experiment; "),
    ("iterations=-1", "iterations=-1: must be 1 or more"),
    ("iterations=0", "iterations=0: must be 1 or more"),
    ("iterations=many", "iterations=many: must be a whole number"),
    ("iterations=1,2", "iterations=1,2: several values are a sweep, which needs -m"),
    ("seed=-1", "seed=-1: must be between 0 and 18446744073709551615"),
    ("seed=null", "seed=null: must not be null"),
    ("+seed=1", "seed=1: it already exists; leave out the +"),
    ("numerics=maybe", "numerics=maybe: must be true or false"),
    ("mode=simm", "mode=simm: did you mean sim? allowed: both, live, sim"),
    ("runtime=3", "runtime=3: holds several options"),
    ("runtime.port=70000", "runtime.port=70000: must be between 0 and 65535"),
    ("tcp.congestion=bbrr", "tcp.congestion=bbrr: did you mean bbr? allowed: "),
    ("costs.send_byte_s=-1", "costs.send_byte_s=-1.0: must be between 0 and 1000000.0"),
    ("sede=1", "sede=1: unknown key; did you mean seed? allowed: "),
    ("+sede=1", "sede=1: unknown option; did you mean seed? allowed: "),
    ("mode=[sim]", "mode=[sim]: must be one value, not a list"),
    ("mode.x=3", "mode.x=3: mode is one value, which has no keys of its own"),
    ("scenario={a:1}", "scenario={a:1}: must be a list: scenario=[{a:1}]"),
    ("faults.absent=abc", "faults.absent=abc: must be a list: faults.absent=[abc]"),
    ("faults.absent=[null]", "faults.absent=[null]: must not contain null"),
    ("runtime=[1]", "runtime=[1]: holds several options"),
    ("costs.codecs=0", "costs.codecs=0: must be a table, {key: value}"),
    ("costs.codecs=[1]", "costs.codecs=[1]: must be a table, {key: value}"),
    ("costs.codecs={a:3}", "costs.codecs={a:3}: a is not there yet; add it with a +: '+costs.c"),
    ("accel.p3=3", "accel.p3=3: p3 is not chosen; add '+accel=[p3]'"),
    ("seed=${nosuch}", "seed=${nosuch}: refers to nosuch, which is not an option"),
    ("seed=${oc.env:NONE}", "seed=${oc.env:NONE}: cannot be resolved: "),
    ("=3", "override==3: must be of the form key=value"),
    ("@=3", "override=@=3: must be of the form key=value"),
    ("hydra=3", "override=hydra=3: must be of the form key=value"),
    ("~sync", "override=~sync: cannot be removed; choose another one: sync=NAME"),
    ("~nosuch", "override=~nosuch: there is no such key, or it has another value"),
    ("~accel", "override=~accel: there is no such key, or it has another value"),
    ("sim", "override=sim: must be of the form key=value"),
    ("--wat", "flags=--wat: unrecognized arguments"),
    ("--resolve", "flags=--resolve: --resolve is for --cfg; see --help"),
    ("-m --cfg job", "flags=-m --cfg job: --multirun and --cfg exclude each other; see --help"),
    ("--shell-completion", "flags=--shell-completion: --shell-completion needs install=SHELL"),
    ("-sc query=bash", "flags=-sc query=bash: query is called by shells"),
    ("--experimental-rerun x", "flags=--experimental-rerun x: there is no file x; see --help"),
    ("-m +sync=fsa,hfaa", "sync=hfaa: no such sync; did you mean hfa?"),
]


@pytest.mark.parametrize(("words", "line"), WRONG)
def test_invalid_requests_are_one_line(
    words: str, line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    needs(words + line)
    assert cli.run(words.split()) == 2
    out, err = capfd.readouterr()
    assert err.startswith(line)
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert out == ""


def test_an_unreachable_pair_of_sites_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["network=unreachable.yaml"]) == 2
    assert "s cannot reach g: there is no path of edges" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("failure", "status", "line"),
    [
        (NodeLost("beijing/worker0", "killed"), 1, "node beijing/worker0 was lost: killed\n"),
        (GeomxError("two\nlines"), 1, "two lines\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (
            OSError(28, "No space left on device", "a/trace.json"),
            1,
            "a/trace.json: No space left on device; make room, and run it again\n",
        ),
    ],
)
def test_failures(
    failure: BaseException,
    status: int,
    line: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def job(experiment: Experiment, directory: Path) -> None:
        raise failure

    monkeypatch.setattr(runs, "_run_one", job)
    assert cli.run(["seed=1"]) == status
    assert capfd.readouterr() == ("", line)


def test_unexpected_exceptions_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def job(experiment: Experiment, directory: Path) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(runs, "_run_one", job)
    with pytest.raises(ZeroDivisionError):
        cli.run(["seed=1"])


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_every_failing_job_of_a_sweep_has_a_line(
    launcher: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """With jobs in this process, and in others, which is the default."""
    needs("hfa")
    get_reusable_executor().shutdown()  # its processes work in an earlier test's folder
    chosen = ["hydra/launcher=basic"] if launcher == "basic" else []
    words = ["iterations=2", "numerics=false", "sync=hfa", "sync.k1=0,1", "seed=1,2"]
    assert cli.run(["-m", *chosen, *words, "hydra.sweep.dir=swept"]) == 2
    assert {path.parent.name for path in Path("swept").glob("*/iterations.csv")} == {"2", "3"}
    lines = sorted(capfd.readouterr().err.splitlines())
    assert len(lines) == 2
    for seed, line in zip((1, 2), lines, strict=True):
        assert f" sync=hfa sync.k1=0 seed={seed}: sync.k1=0: must be" in line


@pytest.mark.parametrize("folder", ["file/run", "/proc/run"])
@pytest.mark.parametrize(
    "words",
    ["", 'study.variants=["seed=1"]', "plan workload=tiny", "launch -- true", "simulate -- true"],
)
def test_a_run_directory_that_cannot_be_created_is_one_line(
    words: str, folder: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    before, *after = words.partition("--")
    given = [*before.split(), f"hydra.run.dir={folder}", *" ".join(after).split()]
    assert cli.module(given) == 1
    err = capfd.readouterr().err
    assert err.startswith("the run's directory cannot be made: ")
    assert err.count("\n") == 1


def geomx(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    command = [sys.executable, "-m", "geomx", *words]
    return subprocess.run(command, text=True, timeout=120, check=False, **streams)


BRIEF = ("workload=resnet50", "iterations=1")


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_output_works_in_any_encoding(encoding: str) -> None:
    done = geomx(*BRIEF, env={**os.environ, "PYTHONIOENCODING": encoding}, encoding=encoding)
    assert (done.returncode, done.stderr) == (0, "")
    assert "time per iteration" in done.stdout


@pytest.mark.slow
def test_an_output_without_space_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = geomx(*BRIEF, stdout=full)
    line = "standard output: No space left on device; make room, and run it again\n"
    assert (done.returncode, done.stderr) == (1, line)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting takes root")
@pytest.mark.parametrize("options", ["ro", "size=64k"])
def test_read_only_and_full_disks_are_one_line(options: str, tmp_path: Path) -> None:
    """On a disk that becomes full, the files remain readable."""
    inside = f"mount -t tmpfs -o {options} none disk && cd disk && exec {sys.executable} -m geomx"
    (tmp_path / "disk").mkdir()
    words = ["unshare", "--mount", "sh", "-c", f"{inside} iterations=50 numerics=false; ls -R"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    if done.stderr.startswith(("unshare:", "mount:")):
        pytest.skip(f"no mounts here: {done.stderr}")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    if options == "ro":
        assert done.stderr.startswith("the run's directory cannot be made: ")
        assert "hydra.run.dir=FOLDER" in done.stderr
    else:
        assert ": No space left on device; make room" in done.stderr
        assert "; results up to then are in " in done.stderr


# ---- both entry points, geomx and python -m geomx ----


DOORS = [cli.main, cli.module]


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS)
def test_both_entry_points_accept_commands_and_experiments(
    door: Callable[[list[str]], int],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert door(["networks"]) == 0
    assert "two_parties" in capfd.readouterr().out
    assert door(["launch", "network=missing.yaml", "--", "true"]) == 2
    assert capfd.readouterr().err.startswith("network=missing.yaml: ")
    assert door(["+iterations=0"]) == door(["run", "+iterations=0"]) == 2
    door(["launhc"])
    assert "geomx launhc: no such command; did you mean launch? " in capfd.readouterr().err
    assert door(["--version"]) == 0
    assert capfd.readouterr().out == f"geomx {__version__}\n"
    seen: list[Any] = []
    monkeypatch.setattr("geomx.config.compose.main", lambda words, *rest: seen.append(words))
    for words in (["+sync=hfa", "seed=1"], ["-m", "seed=1,2"], ["~seed"]):
        assert door(words) == 0
        assert seen.pop() == words


@pytest.mark.slow
def test_without_arguments_geomx_lists_commands_and_the_module_runs_the_default(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    for words in ([], ["--help"]):
        assert cli.main(words) == 0
        told.append(capfd.readouterr().out)
    assert told[0] == told[1]
    assert all(f"    {name} " in told[0] for name in ("plan", "launch", "run", "plugins"))
    assert "geomx +sync=" in told[0]
    seen: list[Any] = []
    monkeypatch.setattr("geomx.config.compose.main", lambda words, *rest: seen.append(words))
    assert cli.module([]) == cli.module(["--help"]) == 0
    assert seen == [[], ["--help"]]


@pytest.mark.slow
def test_an_unbuilt_source_folder_is_one_line(tmp_path: Path) -> None:
    """As after ``pip install .`` in the checkout, whose folder shadows the installed package."""
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(Path(cli.__file__).parents[1], tmp_path / "geomx", ignore=ignored)
    found = os.pathsep.join(path for path in sys.path if path.endswith("site-packages"))
    # Without site, so that an editable installation is not found.
    for words in (["-m", "geomx", "plugins"], ["-m", "geomx"], ["-c", "import geomx.kv"]):
        done = subprocess.run(
            [sys.executable, "-S", *words], capture_output=True, text=True, timeout=60,
            check=False, env={**os.environ, "PYTHONPATH": found},
        )  # fmt: skip
        assert done.returncode == 1
        line = done.stderr.splitlines()[-1]
        assert f"{tmp_path / 'geomx'} is a source folder without geomx's compiled core" in line
        assert "start Python in another folder" in line
        assert "Traceback" not in done.stderr or words[0] == "-c"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_run_with_its_status_and_names_its_folder(
    number: signal.Signals, tmp_path: Path
) -> None:
    words = ["iterations=100000", "numerics=false", "sim.skip=false", "hydra.run.dir=cut"]
    command = [sys.executable, "-m", "geomx", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 60
        rows = tmp_path / "cut" / "iterations.csv"
        while time.monotonic() < until and not (rows.exists() and rows.stat().st_size > 1000):
            time.sleep(0.05)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert err == f"interrupted; results up to then are in {tmp_path / 'cut'}\n"
    assert Results.load(tmp_path / "cut").iterations


@pytest.mark.slow
def test_explain_reports_a_killed_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    header = {"schema": SUMMARY_SCHEMA, "mode": "sim"}
    Recorder(tmp_path / "killed", header)  # the files of a process killed now
    assert cli.main(["explain", str(tmp_path / "killed")]) == 2
    err = capfd.readouterr().err
    assert "left no timeline to explain (the run was killed before it could end)" in err
    assert "Errno" not in err


@pytest.mark.slow
def test_a_refused_run_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    refused = [*BRIEF, "+sync=hfa", "sync.k1=-3"]
    assert cli.run(refused) == 2
    assert list(empty.iterdir()) == []
    assert cli.run([*refused, "hydra.run.dir=."]) == 2
    assert list(empty.iterdir()) == []
    assert cli.run([*refused, f"hydra.run.dir={tmp_path / 'elsewhere'}"]) == 2
    assert not (tmp_path / "elsewhere").exists()
    (empty / "mine").mkdir()
    (empty / "mine" / "notes.txt").touch()
    assert cli.run([*refused, "hydra.run.dir=mine"]) == 2
    assert (empty / "mine" / "notes.txt").exists()
    assert capfd.readouterr().err.count("sync.k1=-3") == 4


@pytest.mark.slow
def test_no_run_overwrites_another(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = [*BRIEF, "hydra.run.dir=here"]
    assert cli.run(words) == 0
    page = (tmp_path / "here" / "report.html").read_text()
    shown = page.split('class="command"')[1].split("</code>")[0]
    assert "workload=resnet50" in shown
    assert "hydra" not in shown  # so the command to copy does not contain it either
    before = (tmp_path / "here" / "summary.json").read_bytes()
    capfd.readouterr()
    assert cli.run(words) == 2
    refusal = f"hydra.run.dir={tmp_path / 'here'}: already holds a run; "
    assert capfd.readouterr().err.startswith(refusal)
    with pytest.raises(ConfigError, match="already holds a run"):
        run(words)
    assert (tmp_path / "here" / "summary.json").read_bytes() == before


@pytest.mark.slow
def test_no_sweep_overwrites_another(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "swept"
    words = ["-m", "hydra/launcher=basic", "workload=tiny", f"hydra.sweep.dir={folder}"]
    folder.mkdir()  # an empty folder is welcome, and a sweep may come in batches
    assert cli.run([*words, "iterations=2,3", "hydra.sweeper.max_batch_size=1"]) == 0
    shutil.rmtree(folder / "0")  # what is left is enough to refuse
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    capfd.readouterr()
    assert cli.run([*words, "seed=1,2"]) == 2
    told = capfd.readouterr()
    refusal = f"hydra.sweep.dir={folder}: already holds a run; choose another folder, or delete it"
    assert (told.out, told.err.splitlines()) == ("", [refusal])
    assert cli.run(["-m", "seed=1,2", f"hydra.sweep.dir={folder / '1'}"]) == 2
    assert capfd.readouterr().err.count("already holds a run") == 1
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_a_sweep_may_add_to_one_whose_jobs_have_names(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["-m", "hydra/launcher=basic", "workload=tiny", "iterations=1", "sim.max_spans=0"]
    places = ["hydra.sweep.dir=swept", "hydra.sweep.subdir=seed${seed}"]
    assert cli.run([*words, *places, "seed=1,2"]) == 0
    assert cli.run([*words, *places, "seed=3"]) == 0
    assert cli.run([*words, *places, "seed=2,4"]) == 2
    assert capfd.readouterr().err.count("already holds a run") == 1
    found = {path.parent.name for path in (tmp_path / "swept").glob("*/summary.json")}
    assert found == {f"seed{seed}" for seed in (1, 2, 3, 4)}


@pytest.mark.slow
def test_the_last_line_of_a_run_is_its_directory() -> None:
    done = geomx("workload=resnet50", "iterations=1")
    assert (done.returncode, done.stderr) == (0, "")
    directory = Path(done.stdout.splitlines()[-1])
    assert (directory / "summary.json").is_file()
    assert (directory / ".hydra" / "overrides.yaml").is_file()


@pytest.mark.slow
def test_an_invalid_request_from_a_shell_is_one_line() -> None:
    done = geomx("+sync=faa")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("sync=faa: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_help_lists_the_choices() -> None:
    done = geomx("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "five_regions, geomx_demo" in done.stdout
    for kind in (kind for kind in KINDS if kind != "network"):  # files, above
        names = [plugin.name for plugin in Registry.discover().plugins(kind, variants=True)]
        assert f"{kind}: {', '.join(names)}\n" in done.stdout
    assert "congestion: bbr" in done.stdout


def test_plugins_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plugins"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in INSTALLED)
    assert "could not be loaded" not in out


@pytest.mark.slow
@pytest.mark.parametrize("command", ["plugins", "networks"])
@pytest.mark.parametrize("columns", ["30", "40", "80", "300", None])
def test_lists_are_complete_at_any_width(
    command: str,
    columns: str | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    assert cli.main([command]) == 0
    out = capsys.readouterr().out
    assert "…" not in out
    names = {
        "plugins": [plugin.name for plugin in Registry.discover().plugins()],
        "networks": [network.name for network in named_networks()],
    }[command]
    lines = out.splitlines()
    for name in names:
        (line,) = [line for line in lines if name in line.split()[:2] and line[0] != " "]
        assert columns is not None or len(line.split()) > 8  # in a pipe, each row is one line
    if columns:
        assert max(map(len, lines)) <= max(int(columns), 80)
    if columns in ("30", "40"):  # descriptions have their own line
        prose = [line for line in lines if line.startswith("  ")]
        assert sum(len(line.split()) == 1 for line in prose) < len(prose) / 3


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("plan", [f"plan.{field.name}=" for field in dataclasses.fields(PlanOptions)]),
        ("launch", ["JOB.yaml", "OVERRIDES", "COMMAND", "network=", "+sync=", "nodes/"]),
        ("compat", ["COMMAND", "DMLC_ROLE"]),
        ("explain", ["RUN"]),
        ("check", ["--modes"]),
    ],
)
def test_help_of_a_command_lists_its_arguments(
    command: str, told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert [word for word in told if word not in out] == []


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info"]) == 0
    assert "compiled core: /" in capsys.readouterr().out


@pytest.mark.slow
def test_run_is_a_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "iterations=0"]) == 2
    assert capfd.readouterr().err.startswith("iterations=0: ")


@pytest.mark.parametrize(
    "words",
    [
        ["foo"],
        ["plugins", "--foo"],
        ["plugins", "x"],
        ["report", "x", "--serve", "y"],
        ["calibrate", "--foo"],
        ["manifest", "x", "--image", "y", "z=1", "--foo"],
    ],
)
def test_invalid_commands_are_one_line(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    err = capfd.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith(f"geomx {' '.join(words)}: ") and err.endswith("see --help\n")


def test_overrides_may_stand_behind_options() -> None:
    words = ["manifest", "job.yaml", "seed=1", "--image", "x", "mode=sim"]
    read = cli._parser(words).parse(words, [])
    assert (read.job, read.image, read.overrides) == ("job.yaml", "x", ["seed=1", "mode=sim"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["launch", "+sync=fsa"], "geomx launch +sync=fsa: needs a command: geomx launch ... -- "),
        (["simulate"], "geomx simulate: needs a command: geomx simulate ... -- COMMAND"),
        (["compat", "bash"], "geomx compat bash: needs a command: geomx compat -- COMMAND"),
        (["launch", "--"], "geomx launch --: there is no command after --"),
        (["simulate", "seed=1", "--"], "geomx simulate seed=1 --: there is no command after --"),
        (["plan", "--"], "geomx plan --: there is no command after --"),
    ],
)
def test_a_missing_command_is_named(
    words: list[str], sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    err = capfd.readouterr().err
    assert err.count("\n") == 1 and err.startswith(sentence)


@pytest.mark.slow
def test_live_processes_need_no_hydra() -> None:
    code = (
        "import sys, geomx.plugin.registry, geomx.options.schema\n"
        "import geomx.experiment.experiment, geomx.network.files\n"
        "geomx.plugin.registry.Registry.discover().select(None, [])\n"
        "print(sorted({'hydra', 'omegaconf', 'mxnet', 'sklearn', 'simpy'} & set(sys.modules)))"
    )
    text = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60)
    assert text == "[]\n"
