"""The plugin registry: order, exclusivity, isolation, and errors."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import geomx
from geomx.cli.main import main
from geomx.cluster import Cluster
from geomx.errors import ConfigError, PluginError
from geomx.network.files import read_network
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.parts import ByTurns, Native
from geomx.plugin.registration import KINDS
from geomx.plugin.registry import Registry
from geomx.plugin.sync import SyncPolicy
from tests.strangers import HEAD, install

pytestmark = pytest.mark.interpreter  # entry points and inspect


@dataclass
class Plain:
    """A plugin's options: none."""


@dataclass(frozen=True)
class Tuned:
    """Options of every type."""

    k: float = 0.5
    count: int = 1
    name: str = "a"
    limit: float | None = None
    sizes: tuple[int, ...] = (1, 2)
    table: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.k <= 1:
            raise ConfigError("k", self.k, "must be between 0 and 1")
        if self.count < 1:
            raise ValueError("count must be 1 or more")


class Slicing:
    """Returns a slicer with its own name.

    More text, which tables do not show.
    """

    label = "?"

    def __init__(self, config: Any) -> None:
        self.config = config

    @hookimpl
    def geomx_slicer(self, link: Any) -> Native | None:
        return Native("slicer", self.label) if link.kind == "wan" else None


def slicing(name: str) -> type:
    return type(name, (Slicing,), {"label": name, "__doc__": Slicing.__doc__})


class Policy:
    def __init__(self, config: Any) -> None:
        pass

    @hookimpl
    def geomx_sync_policy(self, cluster: Cluster) -> SyncPolicy:
        return SyncPolicy()


def registry(**more: tuple[str, type, Any]) -> Registry:
    """Return a registry of a synthetic module: a default policy, three slicers and `more`."""
    plugins = {
        "fsa": ("sync", Plain, Policy),
        "other": ("sync", Plain, Policy),
        "one": ("accel", Plain, slicing("one")),
        "two": ("accel", Tuned, slicing("two")),
        "three": ("accel", Plain, slicing("three")),
        **more,
    }

    @hookimpl
    def geomx_register(register: Any) -> None:
        for name, (kind, config, factory) in plugins.items():
            register(kind, name, config, factory)

    result = Registry()
    result.ask(types.SimpleNamespace(__name__="made_up", geomx_register=geomx_register))
    return result


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return read_network(
        {
            "central": {"global_servers": 2, "uplink_mbps": 10, "downlink_mbps": 10},
            "parties": {"a": {"workers": 1, "uplink_mbps": 1, "downlink_mbps": 1}},
            "delay_ms": 1,
        }
    )


def links(cluster: Cluster) -> tuple[Any, Any]:
    party = cluster.parties[0]
    wan = cluster.link(party.server, cluster.global_servers[0], "push")
    return wan, cluster.link(party.workers[0], party.server, "push")


@pytest.mark.parametrize("order", [["one", "two", "three"], ["three", "one"], ["two", "three"]])
def test_results_are_in_the_order_of_the_command_line(order: list[str], cluster: Cluster) -> None:
    selection = registry().select(None, [(name, {}) for name in order])
    wan, lan = links(cluster)
    assert [slicer.name for slicer in selection.slicers(wan)] == order
    assert selection.slicers(lan) == []
    assert [name for name, _ in selection.accel] == order


def test_a_selection_contains_all_options() -> None:
    selection = registry().select(("other", {}), [("two", {"k": 1, "sizes": [3]})])
    assert selection.sync == ("other", {})
    (choice,) = selection.accel
    assert choice[1] == {
        "k": 1.0, "count": 1, "name": "a", "limit": None, "sizes": (3,), "table": {},
    }  # fmt: skip
    again = registry().select(selection.sync, selection.accel)
    assert (again.sync, again.accel) == (selection.sync, selection.accel)


def test_selections_are_independent(cluster: Cluster) -> None:
    known = registry()
    first = known.select(None, [("one", {})])
    known.select(None, [("two", {}), ("three", {})])
    wan, _ = links(cluster)
    assert [slicer.name for slicer in first.slicers(wan)] == ["one"]


def test_default_sync_and_placement(cluster: Cluster) -> None:
    selection = registry().select(None)
    assert selection.sync == ("fsa", {})
    assert isinstance(selection.sync_policy(cluster), SyncPolicy)
    placement = selection.placement(cluster, ())
    assert placement == ByTurns(2)
    assert [placement.server(3, shard, []) for shard in range(3)] == [1, 0, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kk": 1}, "accel.two.kk=1: unknown option; did you mean k?"),
        ({"k": 1.5}, "accel.two.k=1.5: must be between 0 and 1"),
        ({"count": 0}, "accel.two.count=0: must be 1 or more"),
        ({"k": "x"}, "accel.two.k=x: must be a number"),
        ({"k": True}, "accel.two.k=true: must be a number"),
        ({"count": 1.5}, "accel.two.count=1.5: must be a whole number"),
        ({"name": 3}, "accel.two.name=3: must be text; put it in quotes"),
        ({"limit": "x"}, "accel.two.limit=x: must be a number or null"),
        ({"sizes": [1, "b"]}, "accel.two.sizes[1]=b: must be a whole number"),
        ({"table": {"a": "b"}}, "accel.two.table.a=b: must be a whole number"),
    ],
)
def test_invalid_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        registry().select(None, [("two", options)])
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("sync", "accel", "message"),
    [
        (("fs", {}), [], "sync=fs: no such sync plugin; did you mean fsa? allowed: fsa, other"),
        (None, [("tow", {})], "accel=tow: no such accel plugin; did you mean two?"),
        (None, [("one", {}), ("one", {})], "accel=[one,one]: one is listed twice"),
    ],
)
def test_unknown_names_are_refused(sync: Any, accel: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        registry().select(sync, accel)
    assert str(caught.value).startswith(message)


def test_two_results_of_an_exclusive_hook_are_refused(cluster: Cluster) -> None:
    known = registry(rival=("accel", Plain, Policy), rival2=("accel", Plain, Policy))
    known.select(None, [("rival", {})]).sync_policy(cluster)  # replaces the default's
    with pytest.raises(ConfigError, match="other and rival both decide the sync policy"):
        known.select(("other", {}), [("rival", {})]).sync_policy(cluster)
    with pytest.raises(ConfigError, match="rival and rival2 both decide"):
        known.select(None, [("rival", {}), ("rival2", {})]).sync_policy(cluster)


def bad(**methods: Any) -> type:
    return type("Bad", (), {"__init__": lambda self, config: None, **methods})


def raising(self: Any, link: Any) -> None:
    raise ZeroDivisionError("oh")


def refusing(self: Any, experiment: Any) -> None:
    raise ConfigError("numerics", "false", "this needs numbers")


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        (
            {"geomx_slicers": hookimpl(lambda self, link: None)},
            "accel bad: unknown hook geomx_slicers; did you mean geomx_slicer?",
        ),
        ({"geomx_codec": lambda self, link: None}, "accel bad: geomx_codec lacks the decorator"),
        ({"geomx_codec": hookimpl(lambda self, lnk: None)}, "accel bad: .*lnk"),
        (
            {"geomx_codec": staticmethod(hookimpl(lambda self, link: None))},
            r"takes self, but a static method receives no self; it is geomx_codec\(link\)",
        ),
        ({"geomx_codec": hookimpl(lambda: None)}, r"lacks self; it is geomx_codec\(link\)"),
    ],
)
def test_misspelt_hooks_are_refused(methods: dict[str, Any], message: str) -> None:
    with pytest.raises(PluginError, match=message):
        registry(bad=("accel", Plain, bad(**methods))).select(None, [("bad", {})])


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (
            lambda config: Policy,
            r"sync bad: its factory returned the class Policy; .* such as Policy\(config\)",
        ),
        (lambda config: None, "sync bad: its factory returned None"),
        (
            lambda config: types.SimpleNamespace(
                geomx_sync_policy=hookimpl(lambda self, cluster: SyncPolicy())
            ),
            "geomx_sync_policy takes self, but it is a function of the object, not a method",
        ),
    ],
    ids=["class", "none", "function"],
)
def test_a_factory_that_returns_no_instance_is_an_error(factory: Any, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        registry(bad=("sync", Plain, factory)).select(("bad", {}))


def test_self_in_a_function_of_a_module_is_an_error() -> None:
    module = types.ModuleType("made_up")
    vars(module)["geomx_register"] = hookimpl(lambda self, register: None)
    with pytest.raises(PluginError, match="takes self, but it is a module's function, not a"):
        Registry().ask(module)


def test_exceptions_and_wrong_results_are_attributed_to_the_plugin(cluster: Cluster) -> None:
    wan, _ = links(cluster)

    def selected(**methods: Any) -> Any:
        return registry(bad=("accel", Plain, bad(**methods))).select(None, [("bad", {})])

    with pytest.raises(PluginError, match="accel bad: geomx_codec failed: ZeroDivisionError: oh"):
        selected(geomx_codec=hookimpl(raising)).codecs(wan)
    with pytest.raises(PluginError, match=r"geomx_codec must return Codec or Native .*not int"):
        selected(geomx_codec=hookimpl(lambda self, link: 3)).codecs(wan)
    with pytest.raises(PluginError, match="geomx_sim must return None"):
        selected(geomx_sim=hookimpl(lambda self, simulation: 3)).sim(None)
    with pytest.raises(ConfigError, match="numerics=false: this needs numbers"):
        selected(geomx_validate=hookimpl(refusing)).validate(None)


def test_a_factory_that_fails_is_an_error_of_the_plugin() -> None:
    def factory(config: Any) -> Any:
        raise OSError("no such file")

    with pytest.raises(PluginError, match="accel bad: could not be built: OSError: no such file"):
        registry(bad=("accel", Plain, factory)).select(None, [("bad", {})])


def test_two_plugins_of_one_name_are_refused_naming_both() -> None:
    known = registry()

    @hookimpl
    def geomx_register(register: Any) -> None:
        register("accel", "one", Plain, slicing("one"))

    other = types.SimpleNamespace(__name__="stranger", geomx_register=geomx_register)
    with pytest.raises(PluginError, match=r"registered twice: by .* and by .*stranger 1\.0"):
        known.ask(other, "stranger 1.0")
    with pytest.raises(ConfigError, match=r"accel=one: announced by .* and by .*stranger 1\.0"):
        known.select(None, [("one", {})])
    known.select(None, [("two", {})])


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        (("codec", "x", Plain, Policy), "the kind must be one of"),
        (("accel", "x-y", Plain, Policy), "the name must be a Python identifier"),
        (("accel", "x", dict, Policy), "its config must be a dataclass"),
        (("accel", "x", Plain, None), "its factory must be callable"),
    ],
)
def test_invalid_registrations_are_refused(plugin: Any, message: str) -> None:
    module = types.SimpleNamespace(
        __name__="made_up", geomx_register=hookimpl(lambda register: register(*plugin))
    )
    with pytest.raises(PluginError, match=message):
        Registry().ask(module)


def test_a_broken_module_does_not_affect_others(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "made_up_plugins"
    good = (
        "from dataclasses import dataclass\nimport geomx\n"
        "@dataclass\nclass C: pass\nclass P:\n  def __init__(self, config): pass\n"
        "@geomx.hookimpl\ndef geomx_register(register): register('accel', 'good', C, P)\n"
    )
    files = {
        "__init__": "import geomx\n@geomx.hookimpl\n"
        "def geomx_register(register): register.package(__name__)\n",
        "good": good,
        "helper": "x = 1\n",
        "bad": "import nothing_of_this_name\n",
        "typo": "import geomx\n@geomx.hookimpl\ndef geomx_registr(register): pass\n",
    }
    package.mkdir()
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    known = Registry()
    known.load("made_up_plugins", "made-up 1.0")
    for name in [name for name in sys.modules if name.startswith("made_up_plugins")]:
        monkeypatch.delitem(sys.modules, name)
    assert [plugin.name for plugin in known.plugins()] == ["good"]
    assert known.plugins()[0].origin == "made_up_plugins.good (made-up 1.0)"
    assert [broken.origin for broken in known.broken] == [
        "made_up_plugins.bad (made-up 1.0)", "made_up_plugins.typo (made-up 1.0)",
    ]  # fmt: skip
    assert "nothing_of_this_name" in known.broken[0].error
    assert "did you mean geomx_register" in known.broken[1].error
    with pytest.raises(ConfigError, match=r"accel=bad: made_up_plugins\.bad .*nothing_of"):
        known.find("accel", "bad")
    with pytest.raises(ConfigError, match=r"failed to load: made_up_plugins\.bad .*nothing_of"):
        known.find("accel", "other")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "words"),
    [
        (HEAD.replace("def geomx_register", "def geomx_registre"), "did you mean geomx_register?"),
        (HEAD.replace("@geomx.hookimpl", ""), "geomx_register lacks the decorator @geomx.hookimpl"),
        (
            HEAD.replace('"accel", NAME, Config, Plugin', '"codec", NAME, Config, Base'),
            "the kind must be one of sync, accel",
        ),
        ("import nothing_of_this_name\n", "ModuleNotFoundError: No module named 'nothing_of_this"),
        (HEAD.replace("Plugin", "object()"), "its factory must be callable"),
    ],
    ids=["misspelt", "undecorated", "kind", "import", "factory"],
)
def test_selecting_a_broken_plugin_shows_its_error_in_every_command(
    source: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = f"broken_{abs(hash(source))}"
    install(tmp_path / "site", name, f"NAME = {name!r}\n{source}", monkeypatch)
    said = []
    for command in (["run", "workload=tiny", f"+accel=[{name}]"], ["check", name]):
        assert main(command) == 2
        said.append(capsys.readouterr().err)
        assert f"={name}: {name} ({name} 1.0) could not be loaded: " in said[-1]
        assert words in said[-1]
    assert said[0].partition(": ")[2] == said[1].partition(": ")[2]
    run = ["run", "workload=tiny", "numerics=false", "iterations=2", "accel=[fp16]"]
    assert main([*run, f"hydra.run.dir={tmp_path / 'run'}"]) == 0  # other plugins are not affected
    assert name not in capsys.readouterr().err


def test_summary_is_the_first_line_of_the_factory() -> None:
    assert registry().find("accel", "one").summary == "Returns a slicer with its own name."


def test_all_installed_plugins_load_and_have_a_summary() -> None:
    known = Registry.discover()
    assert known.broken == []
    for plugin in known.plugins():
        assert plugin.kind in KINDS
        assert plugin.summary, plugin
        if plugin.kind == "accel":
            known.select(None, [(plugin.name, {})])


def test_hookimpl_is_public() -> None:
    assert geomx.hookimpl is hookimpl
