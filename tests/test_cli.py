"""The command line: one line and the right exit status for everything that can be asked wrongly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from joblib.externals.loky import get_reusable_executor

from geomx import cli
from geomx.errors import GeomxError, NodeLost
from geomx.experiment import Experiment
from geomx.registry import KINDS, Registry

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


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "unreachable.yaml").write_text(UNREACHABLE)


INSTALLED = {plugin.name for plugin in Registry.discover().plugins()}


def needs(text: str) -> None:
    """Skip a test that speaks of a plugin whose folder has been deleted."""
    for name in ("hfa", "dgt", "p3", "fp16"):
        if name in text and name not in INSTALLED:
            pytest.skip(f"no plugin {name}")


WRONG = [
    ("+sync=hfaa", "sync=hfaa: no such sync; did you mean hfa? allowed: "),
    ("+sync=hfa sync.k1=0", "sync.k1=0: must be 1 or more"),
    ("sync.k1=0", "sync.k1=0: unknown key; "),
    ("+sync=hfa sync.k1=x", "sync.k1=x: must be a whole number"),
    ("sync=null", "sync=null: must be a name"),
    ("+accel=[dgt] accel.dgt.k=1.5", "accel.dgt.k=1.5: must be"),
    ("+accel=[dgt] accel.dgt.kk=1", "accel.dgt.kk=1: unknown key; did you mean k? allowed: "),
    ("+accel=[dgt] accel.p3.slice_elements=1", "accel.p3.slice_elements=1: p3 is not chosen; "),
    ("+accel=[dgt,dgt]", "accel=[dgt,dgt]: dgt is listed twice"),
    ("+accel=[dgt,px]", "accel=px: no such accel; did you mean p3? allowed: "),
    ("+accel=dgt,p3", "accel=dgt,p3: several values are a sweep"),
    ("+accel=[dgt", "accel=[dgt: "),
    ("accel=null", "accel=null: no accelerator is written []"),
    ("network=missing.yaml", "network=missing.yaml: there is no such file"),
    ("network=missing", "network=missing: no such network; "),
    ("network=unreachable.yaml", "network=unreachable.yaml: "),
    ("network.delay=5", "network.delay=5: unknown key; did you mean delay_ms? allowed: "),
    ("network.delay_ms=-5", "network=two_parties: delay_ms is -5; it must be 0 or more"),
    ("workload=foo", "workload=foo: no such workload; allowed: "),
    ("workload=resnet50 numerics=true", "numerics=true: workload resnet50 has sizes and times"),
    ("experiment=foo", "experiment=foo: no such experiment; "),
    ("iterations=-1", "iterations=-1: must be 1 or more"),
    ("iterations=0", "iterations=0: must be 1 or more"),
    ("iterations=many", "iterations=many: must be a whole number"),
    ("iterations=1,2", "iterations=1,2: several values are a sweep, which needs -m"),
    ("seed=-1", "seed=-1: must be 0 or more"),
    ("seed=null", "seed=null: must not be null"),
    ("+seed=1", "seed=1: it exists already; leave the + out"),
    ("numerics=maybe", "numerics=maybe: must be true or false"),
    ("mode=simm", "mode=simm: did you mean sim? allowed: both, live, sim"),
    ("runtime=3", "runtime=3: holds several options"),
    ("runtime.port=70000", "runtime.port=70000: must be between 0 and 65535"),
    ("tcp.congestion=bbrr", "tcp.congestion=bbrr: did you mean bbr? allowed: "),
    ("costs.send_byte_s=-1", "costs.send_byte_s=-1.0: must be 0 or more"),
    ("sede=1", "sede=1: unknown key; did you mean seed? allowed: "),
    ("+sede=1", "sede=1: unknown option; did you mean seed? allowed: "),
    ("sim", "word=sim: must be of the form key=value"),
    ("--wat", "flags=--wat: unrecognized arguments"),
    ("-m +sync=fsa,hfaa", "sync=hfaa: no such sync; did you mean hfa?"),
]


@pytest.mark.parametrize(("words", "line"), WRONG)
def test_wrong_requests(words: str, line: str, capfd: pytest.CaptureFixture[str]) -> None:
    needs(words + line)
    assert cli.run(words.split()) == 2
    out, err = capfd.readouterr()
    assert err.startswith(line)
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert out == ""


def test_the_unreachable_pair_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["network=unreachable.yaml"]) == 2
    assert "s cannot reach g: there is no path of edges" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("failure", "status", "line"),
    [
        (NodeLost("beijing/worker0", "killed"), 1, "node beijing/worker0 was lost: killed\n"),
        (GeomxError("two\nlines"), 1, "two lines\n"),
        (KeyboardInterrupt(), 1, "interrupted\n"),
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

    monkeypatch.setattr(cli, "_run_one", job)
    assert cli.run(["seed=1"]) == status
    assert capfd.readouterr() == ("", line)


def test_what_geomx_does_not_know_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def job(experiment: Experiment, directory: Path) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "_run_one", job)
    with pytest.raises(ZeroDivisionError):
        cli.run(["seed=1"])


@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_every_failing_job_of_a_sweep_has_a_line(
    launcher: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whether jobs run in this process or, as they do unless told otherwise, in others."""
    needs("hfa")
    get_reusable_executor().shutdown()  # an earlier test's processes are in its folder
    chosen = ["hydra/launcher=basic"] if launcher == "basic" else []
    words = ["iterations=2", "numerics=false", "sync=hfa", "sync.k1=0,1", "seed=1,2"]
    assert cli.run(["-m", *chosen, *words, "hydra.sweep.dir=swept"]) == 2
    assert {path.parent.name for path in Path("swept").glob("*/iterations.csv")} == {"2", "3"}
    lines = sorted(capfd.readouterr().err.splitlines())
    assert len(lines) == 2
    for seed, line in zip((1, 2), lines, strict=True):
        assert f" sync=hfa sync.k1=0 seed={seed}: sync.k1=0: must be" in line


def test_no_room_for_the_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert cli.run(["hydra.run.dir=file/run"]) == 1
    err = capfd.readouterr().err
    assert err.startswith("the run's directory cannot be made: ")
    assert err.count("\n") == 1


def geomx(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "geomx", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_run_ends_with_its_directory() -> None:
    done = geomx("workload=resnet50", "iterations=1")
    assert (done.returncode, done.stderr) == (0, "")
    directory = Path(done.stdout.splitlines()[-1])
    assert (directory / "summary.json").is_file()
    assert (directory / ".hydra" / "overrides.yaml").is_file()


def test_a_wrong_request_from_a_shell() -> None:
    done = geomx("+sync=faa")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("sync=faa: ")
    assert done.stderr.count("\n") == 1


def test_help_lists_the_choices() -> None:
    done = geomx("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "five_regions, geomx_demo" in done.stdout
    for kind in (kind for kind in KINDS if kind != "network"):  # files, above
        names = [plugin.name for plugin in Registry.discover().plugins(kind)]
        assert f"{kind}: {', '.join(names)}\n" in done.stdout
    assert "congestion: bbr" in done.stdout


def test_plugins_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plugins"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in INSTALLED)
    assert "could not be loaded" not in out


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info"]) == 0
    assert "compiled core: /" in capsys.readouterr().out


def test_run_is_a_command_too(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "iterations=0"]) == 2
    assert capfd.readouterr().err.startswith("iterations=0: ")


@pytest.mark.parametrize("words", [[], ["foo"], ["plugins", "--foo"]])
def test_wrong_commands(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    err = capfd.readouterr().err
    assert err.count("\n") == 1
    assert "see --help" in err


def test_live_processes_need_no_hydra() -> None:
    code = (
        "import sys, geomx.registry, geomx.config, geomx.experiment, geomx.network\n"
        "geomx.registry.Registry.discover().select(None, [])\n"
        "print(sorted({'hydra', 'omegaconf', 'mxnet', 'sklearn', 'simpy'} & set(sys.modules)))"
    )
    text = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60)
    assert text == "[]\n"
