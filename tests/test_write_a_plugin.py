"""Generated, example and built-in plugins satisfy the laws of ``geomx check``; a violation is
reported with the expected and the actual result, and the seed."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import geomx
from geomx.cli.main import main
from geomx.errors import ConfigError
from geomx.plugin.registry import Registry
from geomx.plugin.scaffold import KINDS, new_plugin
from geomx.testing import CheckFailed, check_plugin
from tests.laws import registry_with
from tests.strangers import name_it, on_path

INTERPRETED = [kind for kind in KINDS if kind != "native"]
ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples" / "plugins"
PURE = ("signsgd", "lowrank", "outer", "pings")
SMALL = (
    "adabelief",
    "apart",
    "branches",
    "crowd",
    "ratings",
    "stalls",
    "tails",
)  # modules of examples/plugins/kinds
OURS = [
    plugin
    for plugin in Registry.discover().plugins()
    if (plugin.factory.__module__.startswith("geomx.") and plugin.name in ("tiny", "synthetic"))
    or plugin.kind in ("accel", "sync")
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("plugin", OURS, ids=lambda plugin: plugin.name)
def test_built_in_plugins_satisfy_the_laws(plugin: Any, seed: int) -> None:
    """In simulations; other tests run all of them live."""
    assert len(check_plugin(plugin.name, kind=plugin.kind, modes=["sim"], seed=seed)) > 10


# ---- generated plugins ----


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generate a plugin of every kind, and install them as pip would."""
    folder, projects = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("projects")
    for kind in INTERPRETED:
        files = new_plugin(f"new_{kind}", kind, projects)
        assert sorted(file.name for file in files) == sorted(
            ["README.md", f"geomx_new_{kind}.py", "pyproject.toml", f"test_new_{kind}.py"]
        )
        shutil.copy(files[0].parent / f"geomx_new_{kind}.py", folder)
        name_it(folder, f"geomx_new_{kind}", {f"new_{kind}": f"geomx_new_{kind}"})
    for example in PURE:
        shutil.copy(EXAMPLES / example / f"geomx_{example}.py", folder)
        name_it(folder, f"geomx_{example}", {example: f"geomx_{example}"})
    shutil.copytree(EXAMPLES / "kinds" / "geomx_kinds", folder / "geomx_kinds")
    name_it(folder, "geomx_kinds", {name: f"geomx_kinds.{name}" for name in SMALL})
    return folder


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    on_path(site, monkeypatch)
    return site


@pytest.mark.slow
@pytest.mark.parametrize("name", [*(f"new_{kind}" for kind in INTERPRETED), *PURE, *SMALL])
def test_generated_and_example_plugins_satisfy_the_laws(
    name: str, installed: Path, seed: int
) -> None:
    """Each in combination with built-in ones; all combinations would take minutes."""
    registry = Registry()
    module = f"geomx_kinds.{name}" if name in SMALL else f"geomx_{name}"
    for loaded in ("geomx.plugins", "geomx.workloads", module):
        registry.load(loaded)
    assert registry.broken == []
    check_plugin(name, modes=["sim"], seed=seed, registry=registry)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "option"),
    [
        ("geomx_new_codec", "NewCodecCodec", 127),
        ("geomx_new_packed", "NewPackedCodec", 7),
        ("geomx_signsgd", "Signs", True),
        ("geomx_lowrank", "LowRank", 2),
    ],
)
def test_codecs_with_error_feedback_report_what_they_keep(
    module: str, name: str, option: int, installed: Path
) -> None:
    codec = getattr(importlib.import_module(module), name)(option)
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    assert codec.residual_norm() == 0
    left = values - codec.decode(codec.encode({"values": values}), len(values))["values"]
    assert codec.residual_norm() == pytest.approx(np.linalg.norm(left), rel=1e-3)
    assert np.linalg.norm(left) > 0


@pytest.mark.slow
def test_a_generated_plugin_of_every_kind_works_in_both_modes(
    installed: Path, tmp_path: Path
) -> None:
    parts = "new_codec,new_slicer,new_placement,new_overlay,new_optimizer"
    words = ["workload=new_workload", "network=new_network", "network.sites=2", "sync=new_sync"]
    words += [f"accel=[{parts}]", "sync.steps=2", "iterations=4", "evaluate_every=4"]
    simulated = geomx.run([*words, f"hydra.run.dir={tmp_path / 'sim'}"])
    live = geomx.run([*words, "mode=live", f"hydra.run.dir={tmp_path / 'live'}"])
    assert live.summary["bytes"]["wan_push"] == simulated.summary["bytes"]["wan_push"]
    for name, value in simulated.parameters().items():
        assert np.allclose(live.parameters()[name], value, atol=1e-6)
    costs = live.summary["python"]["accel new_codec: geomx_codec"]
    assert costs["calls"] > 0
    assert 0 < costs["seconds"] < live.summary["seconds_per_iteration"]["mean"]
    assert simulated.summary["python"] == {}


@pytest.mark.slow
def test_examples_work_in_both_modes(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["workload=ratings", "network=pings", "network.workers=1", "sync=outer", "sync.h=2"]
    words += ["accel=[lowrank,signsgd,branches]", "iterations=4", "evaluate_every=4"]
    monkeypatch.setenv("GEOMX_TRACE_HOOKS", "1")
    simulated = geomx.run([*words, f"hydra.run.dir={tmp_path / 'sim'}"])
    live = geomx.run([*words, "mode=live", f"hydra.run.dir={tmp_path / 'live'}"])
    for kind in ("wan_push", "wan_pull", "lan"):
        assert live.summary["bytes"][kind] == simulated.summary["bytes"][kind]
    for name, value in simulated.parameters().items():
        assert np.array_equal(live.parameters()[name], value)
    log = (tmp_path / "live" / "nodes" / "ohio-server.log").read_text(encoding="utf-8")
    assert "sync outer: geomx_sync_policy(cluster=Cluster pings) -> OuterPolicy(" in log


@pytest.mark.slow
@pytest.mark.parametrize(
    "mine",
    [
        ["sync=new_sync", "sync.steps=2"],
        ["sync=outer", "sync.h=2", "sync.outer_lr=1", "sync.momentum=0"],
    ],
    ids=["new_sync", "outer"],
)
def test_local_steps_go_on_without_a_lost_worker(
    mine: list[str], installed: Path, tmp_path: Path
) -> None:
    """The sum of the party's parameters then stands for all of its workers, as hfa's does."""
    words = ["workload=tiny", "network=two_parties", "iterations=12", "evaluate_every=12"]
    words += ["faults.on_loss=continue", "scenario=[{at_iteration: 5, kill: beijing/worker1}]"]
    hfa = ["sync=hfa", "sync.k1=2", "sync.k2=1"]
    known = geomx.run([*words, *hfa, f"hydra.run.dir={tmp_path / 'hfa'}"])
    made = geomx.run([*words, *mine, f"hydra.run.dir={tmp_path / 'mine'}"])
    assert made.summary["participation"] == known.summary["participation"]
    for name, value in known.parameters().items():
        assert made.parameters()[name] == pytest.approx(value, abs=1e-5)


@pytest.mark.slow
def test_examples_own_tests_pass(installed: Path) -> None:
    """Without those of geomx's laws, which are tested above."""
    files = [str(EXAMPLES / name / f"test_{name}.py") for name in (*PURE, "kinds")]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n0",
        "-p",
        "no:cacheprovider",
        "-k",
        "not laws",
        *files,
    ]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=120, cwd=installed
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-500:]


@pytest.mark.slow
def test_pip_installs_generated_plugins_and_the_codec_in_cpp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("scikit_build_core")
    projects = [new_plugin("new_codec", "codec", tmp_path)[0].parent, EXAMPLES / "eightbit"]
    projects += [new_plugin("new_native", "native", tmp_path)[0].parent]
    target = tmp_path / "target"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps"]
    command += ["--no-index", "--target", str(target), *map(str, projects)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    if "No module named pip" in done.stderr:
        pytest.skip("pip is not installed")
    assert done.returncode == 0, done.stderr[-2000:]
    on_path(target, monkeypatch)
    origins = {plugin.name: plugin.origin for plugin in Registry.discover().plugins()}
    assert origins["new_codec"] == "geomx_new_codec (geomx-new-codec 0.1.0)"
    assert origins["new_native"] == "geomx_new_native (geomx-new-native 0.1.0)"
    check_plugin("new_native", modes=["sim"])
    check_plugin("eightbit")


# ---- refusals ----


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("mine", "codecs", "kind=codecs: did you mean codec?"),
        ("My-Codec", "codec", "name=My-Codec: must be small letters"),
        ("class", "codec", "name=class: is a word of Python's own; choose another name"),
        (OURS[0].name, OURS[0].kind if OURS[0].kind == "sync" else "codec", "exists: "),
    ],
)
def test_an_invalid_name_or_kind_is_refused(
    name: str, kind: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        new_plugin(name, kind, tmp_path)
    assert words in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_not_changed(tmp_path: Path) -> None:
    new_plugin("mine", "codec", tmp_path)
    with pytest.raises(ConfigError, match="already exists"):
        new_plugin("mine", "slicer", tmp_path)


class Half:
    whole = frozenset[str]()
    survives_holes = True

    def layout(self, spec: Any) -> Any:
        return {"values": (spec["values"][0], "f2")}

    def encode(self, parts: Any) -> Any:
        return {"values": parts["values"].astype(np.float16)}

    def decode(self, parts: Any, length: int) -> Any:
        return {"values": parts["values"].astype(np.float32)}


class Longer(Half):
    def encode(self, parts: Any) -> Any:
        return {"values": parts["values"].astype(np.float32)}


class Tenth(Half):
    def encode(self, parts: Any) -> Any:
        return {"values": (parts["values"] / 10).astype(np.float16)}


class Shared(Half):
    seen: list[int] = []  # noqa: RUF012 (that it is shared is the mistake)

    def encode(self, parts: Any) -> Any:
        self.seen.append(1)
        return {"values": (parts["values"] + len(self.seen)).astype(np.float16)}


class Drawing(Half):
    def encode(self, parts: Any) -> Any:
        return {"values": np.random.standard_normal(len(parts["values"])).astype(np.float16)}


class Greedy(Half):
    def encode(self, parts: Any) -> Any:
        np.zeros(100 * len(parts["values"]) + 10**6)
        return super().encode(parts)


class Scaled(Half):
    def layout(self, spec: Any) -> Any:
        return {"values": (spec["values"][0], "f2"), "scale": (1, "u4")}

    whole = frozenset({"scale"})

    def encode(self, parts: Any) -> Any:
        return {**super().encode(parts), "scale": np.ones(1, np.uint32)}

    def decode(self, parts: Any, length: int) -> Any:
        return {"values": parts["values"].astype(np.float32) * parts["scale"][0]}


class Keeping(Half):
    """Error feedback that keeps a NaN for ever."""

    def __init__(self) -> None:
        self.residual: Any = np.float32(0)

    def encode(self, parts: Any) -> Any:
        values = parts["values"] + self.residual
        sent = values.astype(np.float16)
        self.residual = values - sent
        return {"values": sent}


class Choosy(Half):
    """Refuses bytes by another exception than `geomx.Refused`."""

    def decode(self, parts: Any, length: int) -> Any:
        if not (np.abs(parts["values"]) < 100).all():
            raise ValueError("no such value is sent")
        return super().decode(parts, length)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("codec", "words"),
    [
        (
            Choosy,
            "expected a vector, or a refusal by geomx.Refused (in C++ geomx::plugin::Refused)",
        ),
        (Keeping, "inf in round 1, round 2: expected finite values"),
        (Longer, "layout did not promise"),
        (Tenth, "expected the sum of the values, within half, got 90% off"),
        (Shared, "expected the same bytes as alone, got different ones"),
        (Drawing, "expected the same"),
        (Greedy, "bytes of memory, got"),
        (Scaled, "KeyError: 'scale'"),
    ],
)
def test_a_codec_that_breaks_a_law_is_found(codec: type, words: str) -> None:
    class Plugin:
        """A plugin that violates a law."""

        @geomx.hookimpl
        def geomx_codec(self, link: Any) -> Any:
            return codec() if link.kind == "wan" and link.direction == "push" else None

    registry = registry_with(bad=("accel", Plugin()))
    with pytest.raises(CheckFailed) as caught:
        check_plugin("bad", registry=registry, modes=["sim"], seed=7)
    assert words in str(caught.value)
    assert "(seed 7)" in str(caught.value)


@pytest.mark.slow
def test_a_tracker_that_fails_is_found() -> None:
    class Plugin:
        """A plugin that follows runs."""

        def __init__(self, server: bool) -> None:
            self.server = server

        @geomx.hookimpl
        def geomx_track(self, run: Any) -> Any:
            class Tracker(geomx.Tracker):
                server = self.server

                def end(self, summary: Any) -> None:
                    assert self.server, "no answer"

            return Tracker()

    registry = registry_with(good=("track", Plugin(True)), bad=("track", Plugin(False)))
    check_plugin("good", registry=registry)
    with pytest.raises(CheckFailed) as caught:
        check_plugin("bad", registry=registry, modes=["sim"])
    assert "expected no failure, got geomx_track failed, and follows" in str(caught.value)


@pytest.mark.slow
def test_geomx_check_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "tiny", "--modes", "sim"]) == 0
    assert "tiny: all" in capsys.readouterr().out
    assert main(["check", "tini"]) == 2
    assert "did you mean tiny?" in capsys.readouterr().err
    assert main(["check", "tiny", "--modes", "fast"]) == 2
    assert capsys.readouterr().err == "modes=fast: must be sim, live or sim,live\n"


@pytest.mark.slow
def test_laws_of_runs_are_those_of_the_modes() -> None:
    simulated, live, both = (
        {finding.law for finding in check_plugin("tiny", modes=modes)}
        for modes in (["sim"], ["live"], ["sim", "live"])
    )
    assert simulated | live == both
    assert "all options have valid defaults" in simulated & live
    assert "the model learns" in simulated - live
    assert live - simulated == {"a live run has the predicted traffic, and learns"}
