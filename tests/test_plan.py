"""Plans: candidates, selection for training, ranking, and certainty."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

import geomx
from geomx import planning
from geomx.cli import main as cli
from geomx.config import compose, sweeps
from geomx.errors import ConfigError
from geomx.options.schema import PlanOptions
from geomx.planning import judge
from geomx.planning.candidates import BASELINE, Candidate, Space
from geomx.planning.certainty import ASSUMED, Certainty, Fidelity, fidelity
from geomx.planning.outcome import DIP, HELD, lasting
from geomx.plugin.parts import Partitioner, Shard, cut_evenly
from geomx.plugin.registration import DEFAULT_SYNC, Register
from geomx.plugin.registry import Registry
from geomx.plugin.sync import SyncPolicy
from geomx.results.results import Results
from geomx.study import variants as study
from geomx.workloads.tiny import TinyWorkload
from tests.laws import short_form


@dataclass(frozen=True)
class Nothing:
    """A plugin's options: none."""


@dataclass(frozen=True)
class CutConfig:
    """Options of `Cutter`."""

    elements: int = field(default=100, metadata={"search": (20, 100)})


@dataclass(frozen=True)
class Even(Partitioner):
    """Divides shards evenly."""

    elements: int

    def cut(self, tensor: Any, priority: int, shards: Sequence[Shard]) -> list[Shard]:
        return [piece for shard in shards for piece in cut_evenly(shard, self.elements)]


class Cutter:
    """Divides tensors into shards of the configured size; lossless."""

    lossless = True

    def __init__(self, config: CutConfig) -> None:
        self.elements = config.elements

    @geomx.hookimpl
    def geomx_partitioner(self, cluster: Any) -> Partitioner:
        return Even(self.elements)


class Sevens:
    """Divides into shards of 70; its order with respect to `Cutter` matters."""

    def __init__(self, config: Nothing) -> None:
        self.config = config

    @geomx.hookimpl
    def geomx_partitioner(self, cluster: Any) -> Partitioner:
        return Even(70)


class Idle:
    """Implements no hook, so its order does not matter."""

    def __init__(self, config: Nothing) -> None:
        self.config = config


class Mute:
    """Lets workers push zeros, so that nothing is learnt."""

    def __init__(self, config: Nothing) -> None:
        self.config = config

    @geomx.hookimpl
    def geomx_sync_policy(self, cluster: Any) -> SyncPolicy:
        class Zeros(SyncPolicy):
            def push_scale(self, cluster: Any, worker: Any) -> float:
                return 0.0

        return Zeros()


STRANGERS = ["plan.sync=[fsa,mute]", "plan.accel=[cutter,sevens,idle]", "plan.jobs=1"]


@pytest.fixture
def registry(tiny: TinyWorkload, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Registry:
    """Return the installed plugins, those above, and a fast workload with numerics."""
    longer = replace(tiny, name="quick", iterations=40)

    @geomx.hookimpl
    def geomx_register(register: Register) -> None:
        register("sync", "mute", Nothing, Mute)
        register("accel", "cutter", CutConfig, Cutter)
        register("accel", "sevens", Nothing, Sevens)
        register("accel", "idle", Nothing, Idle)
        register("workload", "quick", Nothing, lambda config: longer)

    known = Registry.discover()
    known.ask(SimpleNamespace(__name__="stranger", geomx_register=geomx_register))
    monkeypatch.setattr(Registry, "discover", classmethod(lambda cls: known))
    monkeypatch.chdir(tmp_path)
    return known


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the experiments that are run, and run them in this process."""
    seen: list[Any] = []
    execute = study.execute
    monkeypatch.setattr(study, "execute", lambda e, d: (seen.append(e), execute(e, d))[1])
    return seen


def by_name(plan: planning.Plan) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in plan.content["candidates"]}


# ---- candidates ----


def space(registry: Registry, *fixed: str, **options: Any) -> Space:
    base, _ = compose.compose(["workload=quick"], registry)
    return Space(base, PlanOptions(**options), registry, fixed)


def test_only_orders_that_matter_are_candidates(registry: Registry) -> None:
    """The order of two partitioners changes the shards; a plugin without hooks has no order."""
    lists = {
        names: space(registry, sync=["fsa"], accel=list(names), options=False)
        for names in (("cutter", "sevens"), ("cutter", "idle"))
    }
    for names, found in lists.items():
        pairs = [one.accel for one in found.all() if len(one.accel) == 2]
        both = [names, names[::-1]]
        assert pairs == (both if "sevens" in names else both[:1])
        assert len(set(found.all())) == len(list(found.all()))


def test_options_that_plugins_offer_are_searched(registry: Registry) -> None:
    found = list(space(registry, sync=["fsa"], accel=["cutter"]).all())
    cutter = Candidate("fsa", ("cutter",))
    moved = replace(cutter, settings=(("accel.cutter.elements", 20),))
    assert found == [BASELINE, cutter, moved]
    assert moved.overrides == ("sync=fsa", "accel=[cutter]", "accel.cutter.elements=20")
    fixed = space(registry, "accel.cutter.elements=50", sync=["fsa"], accel=["cutter"])
    assert list(fixed.all()) == [BASELINE, cutter]
    assert fixed.overrides(cutter) == [*cutter.overrides, "accel.cutter.elements=50"]
    assert fixed.overrides(BASELINE) == list(BASELINE.overrides)


def test_a_candidate_is_lossless_if_all_its_plugins_are(registry: Registry) -> None:
    found = space(registry)
    assert found.lossless(BASELINE)
    assert found.lossless(Candidate(DEFAULT_SYNC, ("cutter",)))
    assert not found.lossless(Candidate(DEFAULT_SYNC, ("cutter", "idle")))
    assert not found.lossless(Candidate("mute"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sync=fsa"], "plan.sync=[NAME,NAME]"),
        (["+accel=[p3]"], "plan.accel=[NAME,NAME]"),
        (["mode=live"], "plan.live=N"),
        (["plan.by=accuracy"], "plan.by=accuracy: did you mean"),
        (["plan.by=time_to_accuracy", "numerics=false"], "needs real gradients"),
        (["plan.candidates=1"], "plan.candidates=1: must be 2 or more"),
        (["plan.candidate=9"], "plan.candidate=9: unknown option; did you mean candidates?"),
        (["plan.sync=[]"], "plan.sync=[]: must list 1 or more"),
        (["plan.sync=[fsb]"], "plan.sync=fsb: did you mean fsa?"),
        (["accel.nobody.k=1"], "accel.nobody.k=1"),
        (["plan.fidelity=nowhere.json"], "plan.fidelity=nowhere.json: must be a file from"),
        (["iterations=0"], "iterations=0"),
        (
            ["workload=quick", "iterations=20", "evaluate_every=50"],
            "evaluate_every=50: must be at most iterations=20",
        ),
    ],
)
def test_an_invalid_plan_is_refused_in_one_line(
    words: list[str], said: str, registry: Registry, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["plan", *words]) == cli.WRONG
    err = capfd.readouterr().err
    assert said in err
    assert err.count("\n") == 1


# ---- ranking ----


@pytest.mark.slow
def test_plans_without_numerics_rank_by_time(registry: Registry, executed: list[Any]) -> None:
    words = ["workload=quick", "numerics=false", "iterations=5", *STRANGERS]
    words += ["plan.together=1", "hydra.run.dir=here"]
    plan = planning.make(words)
    rows = plan.ranked
    assert len(rows) == 2 * 5  # none, three single ones, and one with another option
    times = [row["seconds"]["mean"] for row in rows]
    assert times == sorted(times)
    for summary in Path("here/candidates").glob("*/sizes_seed0/summary.json"):
        run = Results.load(summary.parent).summary
        same = [r for r in rows if r["words"] == [w for w in run["words"] if w in r["words"]]]
        assert run["seconds_per_iteration"]["mean"] in [row["seconds"]["mean"] for row in same]
    assert not plan.content["numerics"]
    assert any("accuracy is unknown" in sentence for sentence in plan.verdict())
    # Two seeds show that nothing is random, so the third is not run.
    assert {experiment.seed for experiment in executed} == {0, 1}
    assert not any(experiment.numerics for experiment in executed)
    # The same plan resumes, and has nothing left to run.
    before = len(executed)
    assert planning.make(words).content == plan.content
    assert len(executed) == before
    assert json.loads(Path("here/plan.json").read_text()) == plan.content


@pytest.mark.slow
def test_time_to_accuracy_equals_that_of_the_runs(registry: Registry, executed: list[Any]) -> None:
    words = ["workload=quick", *STRANGERS, "plan.together=1", "plan.options=false"]
    plan = planning.make([*words, "plan.target=0.8", "hydra.run.dir=here"])
    found = by_name(plan)
    mute, first = found["mute"], plan.ranked[0]
    assert mute["status"] == "too slow"
    assert "0 of" in mute["reason"]
    assert "within the time of fsa" in mute["reason"]
    assert {"fsa", "fsa + cutter", "fsa + sevens", "fsa + idle"} == {r["name"] for r in plan.ranked}
    for row in plan.ranked:
        folder = "_".join(["sync_fsa_accel", *row["accel"]])
        folders = sorted(Path("here/candidates").glob(f"{folder}/train_seed*"))
        reached = []
        for place in folders:
            rows = Results.load(place).evaluations
            held = [all(e["accuracy"] >= 0.8 - DIP for e in rows[i:]) for i in range(40)]
            good = [e for e, holds in zip(rows, held, strict=False) if holds]
            reached.append(next(e["time_s"] for e in good if e["accuracy"] >= 0.8))
        assert len(reached) == 3
        assert row["seconds"]["mean"] == pytest.approx(sum(reached) / 3)
    command = shlex.split(first["command"])
    assert command[:3] == ["python", "-m", "geomx"]
    made, _ = compose.compose(command[3:])
    assert made.mode == "live"
    assert made.iterations == first["command_iterations"] == first["iterations"] + HELD


CURVES = {
    "at once": ([0.5, 0.9, 0.9, 0.9, 0.9], 1),
    "a lucky evaluation": ([0.9, 0.5, 0.9, 0.9, 0.9, 0.9], 2),
    "noise below it is none": ([0.9, 0.795, 0.9, 0.9, 0.9], 0),
    "noise does not reach it": ([0.795, 0.795, 0.9, 0.9, 0.9, 0.9], 2),
    "too late to know": ([0.5, 0.5, 0.9, 0.9, 0.9], None),
    "lost in the end": ([0.9, 0.9, 0.9, 0.9, 0.9, 0.7], None),
    "never": ([0.5] * 9, None),
}


@pytest.mark.parametrize("name", CURVES)
def test_an_accuracy_is_reached_if_it_lasts(name: str) -> None:
    curve, first = CURVES[name]
    rows = [{"iteration": 10 * i + 9, "accuracy": a} for i, a in enumerate(curve)]
    assert list(lasting(rows, 0.8, held=3)) == (rows[first:] if first is not None else [])
    assert not lasting(rows, None)
    if name == "at once":
        assert lasting([*rows, *rows], 0.5, earliest=21, held=3)[0] is rows[2]


@pytest.mark.slow
@pytest.mark.needs("hfa")
@pytest.mark.parametrize("draw", range(2))
def test_the_recommended_command_reaches_the_target(
    draw: int, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if its last step averages the parties' models."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng([seed, draw])
    workers = [int(count) for count in rng.integers(1, 3, size=2)]
    mbps, delay_ms = float(rng.uniform(1, 20)), float(rng.uniform(5, 50))
    content = short_form(*workers, mbps=mbps, delay_ms=delay_ms)
    Path("drawn.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    noisy = ["workload.batch_size=2", "workload.learning_rate=0.15", "workload.iterations=80"]
    words = ["network=drawn.yaml", "workload=tiny", *noisy, f"seed={draw}", "sync.k1=13"]
    words += ["plan.sync=[fsa,hfa]", "plan.accel=[]", "plan.options=false", "plan.jobs=1"]
    plan = planning.make([*words, "plan.seeds=1"])
    if not plan.ranked:  # with steps of two samples, some draws hold no such accuracy
        assert plan.content["command"] is None
        assert all("with 0 of 1 seeds" in each["reason"] for each in plan.content["candidates"])
        return
    first, target = plan.ranked[0], plan.content["target_accuracy"]
    command = shlex.split(first["command"])[3:]
    experiment, directory = compose.compose([*command, "mode=sim"])
    accuracy = study.execute(experiment, directory).summary["accuracy"]["final"]
    assert accuracy >= target, first["command"]
    assert accuracy == pytest.approx(first["accuracy"])
    assert plan.content["command"] == first["command"]


# ---- one party alone ----


@pytest.mark.slow
@pytest.mark.parametrize(("mbps", "delay_ms", "worth"), [(1, 50, False), (10_000, 0.01, True)])
def test_a_plan_reports_if_one_party_alone_is_faster(
    mbps: float, delay_ms: float, worth: bool, tmp_path: Path
) -> None:
    path = tmp_path / "network.yaml"
    content = short_form(1, 2, mbps=mbps, delay_ms=delay_ms)
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    words = [f"network={path}", "workload=synthetic", "workload.elements=[50000]"]
    words += ["workload.forward_ms=20", "workload.backward_ms=40", "network.lan.mbps=10000"]
    words += ["numerics=false", "iterations=3", "plan.sync=[fsa]", "plan.accel=[]"]
    words += ["plan.seeds=1", "plan.jobs=1", f"hydra.run.dir={tmp_path / 'plan'}"]
    plan = planning.make(words)
    alone, first = plan.content["alone"], plan.ranked[0]
    name = list(content["parties"])[1]  # the party of two workers
    assert alone["name"] == f"{name} alone (no WAN)"
    experiment, _ = compose.compose([*shlex.split(alone["command"])[3:], "mode=sim"])
    assert [party.name for party in experiment.cluster.parties] == [name]
    assert {node.party for node in experiment.cluster.nodes} == {name}
    assert len(experiment.cluster.workers) == 2
    # Two of three workers need 1.5 times the iterations for the same number of samples.
    assert alone["seconds"]["mean"] == pytest.approx(1.5 * alone["seconds_per_iteration"])
    assert (first["seconds"]["mean"] < alone["seconds"]["mean"]) == worth
    said = " ".join(plan.verdict())
    assert ("the WAN is worth it" in said) == worth
    assert ("only if the data cannot be brought to" in said) == (not worth)
    assert alone["name"] not in by_name(plan)


@pytest.mark.slow
def test_an_unreached_target_is_reported(registry: Registry) -> None:
    words = ["workload=quick", "plan.sync=[fsa]", "plan.accel=[]", "plan.jobs=1", "plan.seeds=1"]
    plan = planning.make([*words, "plan.target=1"])
    assert not plan.ranked
    assert "give a lower plan.target or more iterations" in plan.verdict()[0]
    assert "does" not in by_name(plan)["fsa"]["reason"]
    assert plan.content["alone"]["status"] == "too slow"


@pytest.mark.slow
@pytest.mark.needs("hfa")
def test_hopeless_candidates_are_not_trained(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow WAN, synchronising in every step cannot compete with local steps."""
    monkeypatch.setattr(judge, "CHUNK", 2)
    monkeypatch.setattr(judge, "KEPT", 3)
    plan = planning.make(
        ["workload=quick", "plan.sync=[fsa,hfa]", "plan.accel=[cutter,sevens,idle]", "plan.jobs=1",
         "plan.together=1", "plan.options=false", "plan.seeds=1", "plan.max_loss=1",
         "plan.by=seconds_per_iteration"]
    )  # fmt: skip
    trained = {name for name, row in by_name(plan).items() if row["status"] == "ranked"}
    assert trained == {"fsa", "hfa", "hfa + cutter", "hfa + sevens", "hfa + idle"}
    assert plan.content["trained"] == len(trained)
    assert by_name(plan)["fsa + cutter"]["status"] == "untrained"


@pytest.mark.slow
def test_the_loss_of_accuracy_is_limited(registry: Registry) -> None:
    words = ["workload=quick", "plan.sync=[fsa,mute]", "plan.accel=[]", "plan.jobs=1"]
    words += ["plan.by=seconds_per_iteration", "plan.seeds=1"]
    found = by_name(planning.make(words))
    assert found["mute"]["status"] == "loses accuracy"
    assert found["fsa"]["status"] == "ranked"
    lenient = by_name(planning.make([*words, "plan.max_loss=1"]))
    assert lenient["mute"]["status"] == "ranked"


@pytest.mark.slow
def test_a_search_is_deterministic_and_reaches_the_number_of_candidates(registry: Registry) -> None:
    words = ["workload=quick", "numerics=false", "iterations=2", "plan.candidates=8", "seed=3"]
    words += STRANGERS
    one, other = (planning.make(words) for _ in range(2))
    assert not one.content["exhaustive"]
    assert one.content["simulated"] == 8
    assert list(by_name(one)) == list(by_name(other))
    # Every plugin is tried.
    alone = {"fsa", "mute", "fsa + cutter", "fsa + sevens", "fsa + idle"}
    assert alone <= set(by_name(one))


PLAIN = """
import sys
from importlib.metadata import packages_distributions, requires
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

def add(name):
    if name in there:
        return
    there.add(name)
    for line in requires(name) or ():
        wanted = Requirement(line)
        if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
            add(canonicalize_name(wanted.name))

class Absent:
    def find_spec(self, name, path=None, target=None):
        owners = owned.get(name.partition(".")[0])
        if owners and not there.intersection(map(canonicalize_name, owners)):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

there, owned = set(), packages_distributions()
add("geomx")
sys.meta_path.insert(0, Absent())

from geomx.cli import main as cli

sys.exit(cli.main(sys.argv[1:]))
"""
"""The ``geomx`` command with imports restricted to the dependencies of a plain installation."""


@pytest.mark.slow
def test_a_plan_works_in_a_plain_installation(tmp_path: Path) -> None:
    words = ["workload=tiny", "numerics=false", "iterations=2", "plan.jobs=1", "plan.seeds=1"]
    words += ["plan.candidates=3", "hydra.run.dir=here"]
    command = [sys.executable, "-c", PLAIN, "plan", *words]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=tmp_path, timeout=300
    )
    assert done.returncode == cli.DONE, done.stderr
    assert not json.loads((tmp_path / "here/plan.json").read_text())["exhaustive"]


@pytest.mark.slow
def test_the_best_candidates_are_run_live(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["numerics=false", "iterations=3", "plan.sync=[fsa]", "plan.accel=[]"]
    words += ["plan.live=1", f"hydra.run.dir={tmp_path}", "network.delay_ms=1"]
    assert cli.main(["plan", *words]) == cli.DONE
    out = capfd.readouterr().out
    assert Path(out.splitlines()[-1]) == tmp_path
    row = json.loads((tmp_path / "plan.json").read_text())["candidates"][0]
    run = Results.load(next(tmp_path.glob("candidates/*/live_seed0"))).summary
    assert run["mode"] == "live"
    assert row["live"]["seconds"] == run["seconds_per_iteration"]["mean"]


# ---- certainty ----


def test_certainty_depends_on_the_margin() -> None:
    error = Fidelity(0.05, 0.15, "made up")
    equal, close, far = (Certainty.of([[1.0], [1.0 + m]], error) for m in (0, 0.05, 1))
    assert equal.first == pytest.approx(0.5, abs=0.02)
    assert equal.first < close.first < far.first
    assert far.first > 0.999
    assert (far.margin, far.two) == (1.0, 1.0)
    assert close.regret > far.regret
    better = Certainty.of([[1.0], [1.05]], Fidelity(0.01, 0.03, "made up"))
    assert better.first > close.first
    # Differences between seeds reduce certainty.
    drawn = Certainty.of([[0.6, 1.4], [1.05, 1.05]], Fidelity(0.01, 0.03, "made up"))
    assert drawn.first < better.first
    alone = Certainty.of([[1.0]], error)
    assert (alone.margin, alone.first, alone.regret) == (None, 1.0, 0.0)


def test_the_simulators_error_is_read_from_the_fidelity_study(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    rows = [{"error": sign * size} for sign in (-1, 1) for size in (0.02, 0.04, 0.06)]
    studies = [{"emulate": "shaper", "rows": rows}, {"emulate": "netns", "rows": [{"error": 0.3}]}]
    for content in (studies, studies[0]):
        path.write_text(json.dumps(content))
        measured = fidelity(str(path))
        assert measured.median == pytest.approx(0.04)
        assert measured.p95 == pytest.approx(0.06)
        assert measured.sigma == pytest.approx(0.04 / 0.6745)
    path.write_text(json.dumps(studies))
    assert fidelity(str(path), "netns").median == pytest.approx(0.3)
    assert fidelity(str(path), "else").p95 > 0.06
    assert "assumed" in ASSUMED.source


# ---- sweeps on all cores ----


def test_sweeps_use_all_cores_unless_runs_are_live() -> None:
    idle = SimpleNamespace(each=[], variants=[])
    for mode, asked, jobs in (
        ("sim", idle, -1), ("sim", None, -1), ("live", idle, 1), ("both", idle, 1),
        ("sim", SimpleNamespace(each=["sync"], variants=[]), 1),
    ):  # fmt: skip
        assert sweeps.parallel_jobs(_root_=SimpleNamespace(mode=mode, study=asked)) == jobs
    assert sweeps.on_all_cores(["seed=1,2"])[0] == "hydra/launcher=joblib"
    for own in ("hydra/launcher=basic", "mode=sim,live"):
        assert sweeps.on_all_cores(["seed=1,2", own]) == []
    assert sweeps.on_all_cores(["+hydra.launcher.n_jobs=2"]) == ["hydra/launcher=joblib"]
    with pytest.raises(ConfigError, match=r"^hydra.launcher.n_jobs=0: must be 1 or more"):
        sweeps.on_all_cores(["hydra/launcher=joblib", "hydra.launcher.n_jobs=0"])
    with pytest.raises(ConfigError, match=r"^hydra.launcher.n_jobs=-0: must be 1 or more"):
        sweeps.on_all_cores(["hydra.launcher.n_jobs=-0"])


def test_arguments_of_a_plan_must_be_overrides() -> None:
    with pytest.raises(ConfigError, match="key=value"):
        planning.make(["--help"])
