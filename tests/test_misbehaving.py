"""Plugins that break a rule, in every hook and in both modes: the run ends in time with an error
that names plugin and hook."""

from __future__ import annotations

import threading
import time
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import geomx
from geomx.errors import GeomxError, PluginError
from geomx.limits import rules
from geomx.limits.watchdog import own_process
from geomx.plugin.api import api_version, check_version
from geomx.plugin.calling import hooks
from geomx.plugin.registry import Registry
from geomx.runner import execute
from geomx.testing.worlds import FAST, NETWORK, SMALLEST, build
from tests.laws import Plain, registry_with
from tests.strangers import accel, install

pytestmark = pytest.mark.usefixtures("of_geomx")


@pytest.fixture
def of_geomx() -> Iterator[None]:
    """Set the limits of the command line: an alarm for hooks, and a memory limit."""
    with own_process():
        yield


ALL = [hook for hook in hooks() if hook != "geomx_register"]
SOLO = {
    **NETWORK,
    "central": {"name": "hub", **FAST},
    "parties": {"east": {"workers": 1, **FAST}},
}


def run(registry: Registry, folder: Path, **options: Any) -> Any:
    """Run a small experiment with the plugin `bad`."""
    options = {"network": SOLO, "iterations": 3, **options}
    return execute(build(registry, accel=[("bad", {})], **options), folder)


def plugin(hook: str, answer: Any) -> Any:
    """Return a plugin with one hook, whose result is that of `answer`."""
    arguments = ", ".join(["self", *hooks()[hook]])
    space: dict[str, Any] = {"answer": answer}
    exec(f"def {hook}({arguments}): return answer()", space)
    return type("Bad", (), {hook: geomx.hookimpl(space[hook])})()


def oh(*given: Any) -> Any:
    raise ZeroDivisionError("oh")


@pytest.mark.parametrize("hook", ALL)
def test_a_hook_that_raises_or_returns_a_wrong_type_is_an_error(hook: str, tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=f"accel bad: {hook} failed: ZeroDivisionError: oh"):
        run(registry_with(bad=("accel", plugin(hook, oh))), tmp_path, network=NETWORK)
    with pytest.raises(PluginError, match=f"accel bad: {hook} must return .*not object"):
        run(registry_with(bad=("accel", plugin(hook, object))), tmp_path, network=NETWORK)


def leave(*given: Any) -> Any:
    raise SystemExit("a package is missing")


def test_a_plugin_that_ends_the_process_is_an_error(tmp_path: Path) -> None:
    said = "SystemExit: a package is missing"
    with pytest.raises(PluginError, match=f"accel bad: geomx_cluster failed: {said}"):
        run(registry_with(bad=("accel", plugin("geomx_cluster", leave))), tmp_path)
    registry = registry_with()

    @geomx.hookimpl
    def geomx_register(register: Any) -> None:
        register("accel", "bad", Plain, leave)

    registry.ask(types.SimpleNamespace(__name__=__name__, geomx_register=geomx_register))
    with pytest.raises(PluginError, match=f"accel bad: could not be built: {said}"):
        run(registry, tmp_path)


@pytest.mark.parametrize(
    "hook", [ALL[0], *(pytest.param(hook, marks=pytest.mark.slow) for hook in ALL[1:])]
)
def test_a_hook_that_sleeps_is_an_error(
    hook: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "HOOK_LIMIT_S", 0.2)
    awake = threading.Event()
    sleeping = plugin(hook, lambda: awake.wait(60))
    words = f"accel bad: {hook} failed: (TimeoutError: )?did not return for 0.2 s"
    began = time.monotonic()
    try:
        with pytest.raises(PluginError, match=words):
            run(registry_with(bad=("accel", sleeping)), tmp_path, network=NETWORK)
        assert time.monotonic() - began < 10
    finally:  # Python looks for the exception of the interrupted thread until it has been raised
        awake.set()


@pytest.mark.slow
def test_a_module_that_sleeps_during_import_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", "stranger_sleeps", "import time\ntime.sleep(60)\n", monkeypatch)
    monkeypatch.setattr(rules, "HOOK_LIMIT_S", 0.5)
    broken = {one.origin: one.error for one in Registry.discover().broken}
    assert "did not return for 0.5 s" in broken["stranger_sleeps (stranger_sleeps 1.0)"]


class Policy(geomx.SyncPolicy):
    def after_step(self, step: int, steps: int) -> bool:
        raise ZeroDivisionError("oh")


class Place(geomx.Placement):
    def server(self, key: int, shard: int, shards: Any) -> int:
        raise ZeroDivisionError("oh")


class Gone(geomx.Placement):
    def server(self, key: int, shard: int, shards: Any) -> int:
        raise SystemExit("missing")


class Mover:
    def update(self, weight: Any, gradient: Any, learning_rate: float) -> Any:
        return weight[1:]


class Mind:
    def on_report(self, source: int, values: Any, now_s: float) -> Any:
        return 3


class Cuts:
    def cut(self, slices: Any, row_bytes: float, round_number: int) -> Any:
        return [(0, 1, 0, 0)]


class Huge:
    whole = frozenset[str]()
    survives_holes = True

    def layout(self, spec: Any) -> Any:
        return {"values": (2**40, "f4")}

    encode = decode = oh


class Hungry(Huge):
    def layout(self, spec: Any) -> Any:
        return spec

    def encode(self, parts: Any) -> Any:
        raise MemoryError("Unable to allocate 8 EiB")


def overlay() -> geomx.Overlay:
    from geomx.testing.worlds import cluster

    return geomx.Overlay(geomx.Site(cluster().scheduler, Mind()))


class Immovable(Mind):
    """A coordinator that cannot be copied."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


def immovable() -> geomx.Overlay:
    return geomx.Overlay(geomx.Site(overlay().site.host, Immovable()))


class Reporting(geomx.WorkerSync):
    coordinator = 0

    def after_step(self, step: int) -> bool:
        return True

    def finished(self, step: int) -> bool:
        return step == 2

    def report(self, step_s: float) -> list[float]:
        return [step_s]


class Minded(geomx.SyncPolicy):
    def coordinators(self, cluster: Any) -> Any:
        return [geomx.Site(cluster.scheduler, Mind())]

    def worker(self, cluster: Any, worker: Any, steps: int) -> Any:
        return Reporting()


@pytest.mark.parametrize(
    ("hook", "answer", "words"),
    [
        ("geomx_sync_policy", Policy, "accel bad: geomx_sync_policy: Policy.after_step .*oh"),
        ("geomx_placement", Place, "accel bad: geomx_placement: Place.server .*oh"),
        ("geomx_placement", Gone, "accel bad: geomx_placement: Gone.server .*SystemExit: missing"),
        (
            "geomx_optimizer",
            Mover,
            "accel bad: geomx_optimizer: Mover.update made .* values of",
        ),
        ("geomx_slicer", Cuts, "accel bad: geomx_slicer: Cuts.cut made slices that do not cover"),
        ("geomx_overlay", overlay, "accel bad: geomx_overlay: Mind.on_report"),
        ("geomx_overlay", immovable, "accel bad: geomx_overlay: Immovable: .*cannot pickle"),
        ("geomx_sync_policy", Minded, "accel bad: geomx_sync_policy: Mind.on_report"),
        ("geomx_codec", Huge, "accel bad: geomx_codec: Huge.layout promises 1099511627776 items"),
        ("geomx_codec", Hungry, "accel bad: geomx_codec: Hungry.encode: MemoryError: Unable"),
    ],
)
def test_an_object_that_breaks_a_rule_is_an_error(
    hook: str, answer: Any, words: str, tmp_path: Path
) -> None:
    bad = type(plugin(hook, answer))
    bad.__module__ = __name__
    registry = registry_with()

    @geomx.hookimpl
    def geomx_register(register: Any) -> None:
        register("accel", "bad", Plain, factory)

    def factory(config: Any) -> Any:
        return bad()

    registry.ask(types.SimpleNamespace(__name__=__name__, geomx_register=geomx_register))
    with pytest.raises(PluginError, match=words):
        run(registry, tmp_path, network=NETWORK)


SLEEPS = accel(
    "bad",
    """
@geomx.hookimpl
def geomx_codec(self, link):
    codec = Half()
    codec.__class__ = Sleepy
    return codec if link.kind == "wan" and link.direction == "push" else None
""",
).replace(
    "class Base",
    "class Sleepy(Half):\n    def encode(self, parts):\n        time.sleep(60)\n\nclass Base",
)
HUNGRY = SLEEPS.replace(
    "time.sleep(60)",
    "self.kept = [np.empty(10**7) for _ in range(10**6)]",
)
MINDLESS = accel(
    "bad",
    """
@geomx.hookimpl
def geomx_overlay(self, group):
    if group.level == "global":
        return geomx.Overlay(geomx.Site(group.scheduler, Mind()))
""",
).replace("class Base", "class Mind:\n    def on_report(self, *said):\n        1 / 0\n\nclass Base")
SLEEPLESS = SLEEPS.replace("time.sleep(60)", "raise KeyboardInterrupt")
RAISES = SLEEPS.replace("time.sleep(60)", 'raise ZeroDivisionError("oh")')
LEAVES = accel(
    "bad",
    """
@geomx.hookimpl
def geomx_sync_policy(self, cluster):
    return Leaving()
""",
).replace(
    "class Base",
    "class Leaving(geomx.SyncPolicy):\n    def after_step(self, step, steps):\n"
    '        raise SystemExit("missing")\n\nclass Base',
)
INTERRUPTS = LEAVES.replace('SystemExit("missing")', "KeyboardInterrupt")
SIMULATED = ("geomx_sim", "geomx_scenario", "geomx_wan_model")
LIVE = [hook for hook in ALL if hook not in SIMULATED]


def answering(hook: str, answer: str) -> str:
    """Return the source of a third-party plugin with one hook that returns an expression."""
    arguments = ", ".join(["self", *hooks()[hook]])
    return accel("bad", f"@geomx.hookimpl\ndef {hook}({arguments}):\n    return {answer}\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "mode", "words"),
    [
        (SLEEPS, "sim", "accel bad: geomx_codec: encode did not return for"),
        (
            SLEEPS,
            "live",
            "east/server was lost: .*accel bad: geomx_codec: encode did not return for",
        ),
        (LEAVES, "live", "accel bad: geomx_sync_policy: Leaving.after_step .*SystemExit: missing"),
        (INTERRUPTS, "sim", "accel bad: geomx_sync_policy: Leaving.after_step .*KeyboardInterrupt"),
        (INTERRUPTS, "live", "accel bad: geomx_sync_policy: Leaving.after_step .*KeyboardInterru"),
        (SLEEPLESS, "sim", "accel bad: Sleepy.encode .*KeyboardInterrupt"),
        (SLEEPLESS, "live", "accel bad: geomx_codec: Sleepy.encode: KeyboardInterrupt"),
        (RAISES, "live", "accel bad: geomx_codec: Sleepy.encode: ZeroDivisionError: oh"),
        (MINDLESS, "live", "accel bad: geomx_overlay: Mind.on_report: ZeroDivisionError"),
        (HUNGRY, "sim", "accel bad: geomx_codec: Sleepy.encode: .*MemoryError: Unable to allocate"),
        (HUNGRY, "live", "accel bad: geomx_codec: Sleepy.encode: .*MemoryError: Unable to alloc"),
    ],
    ids=[
        "sleeps-sim",
        "sleeps-live",
        "leaves-live",
        "interrupts-sim",
        "interrupts-live",
        "interrupts-codec-sim",
        "interrupts-codec-live",
        "raises-live",
        "coordinator-live",
        "hungry-sim",
        "hungry-live",
    ],
)
def test_a_third_party_plugin_that_sleeps_or_raises_is_an_error(
    source: str, mode: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", "bad_stranger", source, monkeypatch)
    network = NETWORK if source is MINDLESS else SOLO
    experiment = build(
        Registry.discover(), accel=[("bad", {})], network=network, iterations=3, mode=mode
    )
    monkeypatch.setattr(rules, "MEMORY_SHARE", 0.02)
    runtime = replace(experiment.runtime, failure_timeout_s=1.5)
    began = time.monotonic()
    with pytest.raises(GeomxError, match=words):
        execute(replace(experiment, runtime=runtime), tmp_path / "run")
    assert time.monotonic() - began < 30


@pytest.mark.slow
@pytest.mark.parametrize("hook", LIVE)
def test_a_live_hook_that_raises_or_returns_a_wrong_type_is_an_error(
    hook: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some hooks are called in the processes of nodes only."""
    odd = LIVE.index(hook) % 2
    source = answering(hook, "object()" if odd else "1 / 0")
    words = f"accel bad: {hook} " + ("must return .*not object" if odd else "failed: ZeroDivision")
    install(tmp_path / "site", "bad_stranger", source, monkeypatch)
    network = SMALLEST if hook == "geomx_overlay" else SOLO  # a group needs two members
    began = time.monotonic()
    with pytest.raises(GeomxError, match=words):
        run(Registry.discover(), tmp_path / "run", mode="live", network=network)
    assert time.monotonic() - began < 60


TALKS = accel(
    "bad",
    """
print("imported", flush=True)

@geomx.hookimpl
def geomx_slicer(self, link):
    print("asked", flush=True)
""",
)


def test_what_a_plugin_prints_is_in_the_logs_of_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher reads the scheduler's address from its standard output, and nothing else."""
    install(tmp_path / "site", "bad_stranger", TALKS, monkeypatch)
    run(Registry.discover(), tmp_path / "run", mode="live", network=SMALLEST)
    logs = {log.stem: log.read_text() for log in (tmp_path / "run" / "nodes").glob("*.log")}
    assert len(logs) > 3
    assert all({"imported", "asked"} & set(text.splitlines()) for text in logs.values())


def test_a_missing_self_and_an_unknown_argument_are_named() -> None:
    def selected(**methods: Any) -> None:
        bad = type("Bad", (), methods)
        registry_with(bad=("accel", bad())).select(None, [("bad", {})])

    def geomx_codec(link: Any) -> None: ...
    def geomx_slicer(self: Any, lnk: Any) -> None: ...
    def gomx_codec(self: Any, link: Any) -> None: ...

    with pytest.raises(PluginError, match=r"lacks self before link; it is geomx_codec\(link\)"):
        selected(geomx_codec=geomx.hookimpl(geomx_codec))
    with pytest.raises(PluginError, match=r"no argument lnk; did you mean link\?"):
        selected(geomx_slicer=geomx.hookimpl(geomx_slicer))
    with pytest.raises(PluginError, match=r"unknown hook gomx_codec; did you mean geomx_codec\?"):
        selected(gomx_codec=geomx.hookimpl(gomx_codec))


def test_a_missing_method_of_a_codec_is_named() -> None:
    class Lacking:
        whole = frozenset[str]()

        def encode(self, parts: Any) -> Any: ...

    registry = registry_with(bad=("accel", plugin("geomx_codec", Lacking)))
    selection = registry.select(None, [("bad", {})])
    with pytest.raises(PluginError, match="lacks decode, layout, survives_holes of a Codec"):
        selection.codecs(None)  # type: ignore[arg-type]


def test_hook_calls_are_traced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("GEOMX_TRACE_HOOKS", "1")
    registry = registry_with(bad=("accel", plugin("geomx_update", lambda: None)))
    run(registry, tmp_path)
    assert "accel bad: geomx_update(cluster=Cluster check) -> None" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("99.0", "written for version 99.0 of geomx's plugin interface, this geomx has"),
        ("0.9", "update the plugin"),
        (f"{api_version.split('.')[0]}.99", "update geomx"),
        ("new", "geomx_api='new' is no version"),
    ],
)
def test_a_plugin_for_another_version_is_refused_by_name(wanted: str, words: str) -> None:
    module = types.SimpleNamespace(__name__="made_up", geomx_api=wanted)
    with pytest.raises(PluginError, match=f"made_up: .*{words}"):
        Registry().ask(module)
    check_version("made_up", api_version)
    check_version("made_up", None)


@pytest.mark.slow
def test_broken_third_party_plugins_are_listed_and_affect_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from geomx.cli.main import main

    site = tmp_path / "site"
    install(site, "stranger_fails", "import nothing_of_this_name\n", monkeypatch)
    install(site, "stranger_ends", "raise SystemExit(3)\n", monkeypatch)
    install(site, "stranger_old", 'geomx_api = "0.1"\n', monkeypatch)
    install(site, "stranger_one", accel("same", "pass"), monkeypatch)
    install(site, "stranger_two", accel("same", "pass"), monkeypatch)
    install(site, "stranger_good", accel("good", "pass"), monkeypatch)
    assert main(["plugins"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "stranger_good" in shown
    for words in (
        "stranger_fails (stranger_fails 1.0) could not be loaded: ModuleNotFoundError",
        "stranger_ends (stranger_ends 1.0) could not be loaded: it ends the process",
        "stranger_old: written for version 0.1",
        "accel same is registered twice: by stranger_one (stranger_one 1.0) and by stranger_two",
    ):
        assert words in shown
    assert main(["run", "workload=tiny", "accel=[same]", f"hydra.run.dir={tmp_path / 'run'}"]) == 2
    assert "stranger_one 1.0) and by stranger_two" in capsys.readouterr().err
