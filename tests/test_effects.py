"""Warnings about plugins that change nothing in an experiment, with the reason."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

import geomx
from geomx.experiment.idle_plugins import PluginWarning
from geomx.plugin.registry import Registry
from geomx.study.variants import Variant, carry_out
from geomx.testing.worlds import NETWORK, build
from tests.laws import registry_with

ALONE = {**NETWORK, "central": {**NETWORK["central"], "global_servers": 1}}


class Packed:
    """A codec with one whole part, which leaves no values."""

    whole = frozenset({"bits"})
    survives_holes = True

    def layout(self, spec: Any) -> Any:
        return {"bits": (4 * spec["values"][0], "u1")}

    def encode(self, parts: Any) -> Any:
        return {"bits": parts["values"].view("u1")}

    def decode(self, parts: Any, length: int) -> Any:
        return {"values": parts["bits"].view("f4")}


class Half(Packed):
    whole = frozenset[str]()

    def layout(self, spec: Any) -> Any:
        return {"values": (spec["values"][0], "f2")}


class Mind:
    def on_report(self, source: int, values: Any, now_s: float) -> Any:
        return []


class Codes:
    """Encodes pushes over the WAN."""

    def __init__(self, codec: Any = None) -> None:
        self.codec = codec

    @geomx.hookimpl
    def geomx_codec(self, link: Any) -> Any:
        return self.codec if (link.kind, link.direction) == ("wan", "push") else None


class Ring:
    @geomx.hookimpl
    def geomx_overlay(self, group: Any) -> Any:
        if group.level == "global":
            return geomx.Overlay(geomx.Site(group.scheduler, Mind()), push=False)
        return None


class Asks:
    @geomx.hookimpl
    def geomx_update(self, cluster: Any) -> Any:
        return "party"


class Turns(geomx.Placement):
    def server(self, key: int, shard: int, shards: Any) -> int:
        return 0


class Places:
    @geomx.hookimpl
    def geomx_placement(self, cluster: Any, tensors: Any) -> Any:
        return Turns()


class Watches:
    """Observes only, so it is not expected to change anything."""

    @geomx.hookimpl
    def geomx_events(self, events: Any) -> None:
        pass


class Acts(Codes):
    """Encodes nothing, but acts on simulations."""

    @geomx.hookimpl
    def geomx_scenario(self, world: Any) -> None:
        pass


class Costs(Codes):
    """Encodes nothing, but changes a simulation as `act` does."""

    def __init__(self, act: Any) -> None:
        super().__init__()
        self.act = act

    @geomx.hookimpl
    def geomx_sim(self, simulation: Any) -> None:
        self.act(simulation)


def charge(simulation: Any) -> None:
    simulation.charge("charges", geomx.CodecCosts(encode_byte_s=1e-9, basis="a guess"))


REGISTRY = registry_with(
    slows=("accel", Costs(lambda simulation: simulation.costs.update(update=(0.1, 0.0)))),
    waits=("accel", Costs(lambda simulation: simulation.env.timeout(1))),
    charges=("accel", Costs(charge)),
    looks=("accel", Costs(lambda simulation: simulation.costs["update"])),
    acts=("accel", Acts()),
    packed=("accel", Codes(Packed())),
    half=("accel", Codes(Half())),
    nowhere=("accel", Codes()),
    loop=("accel", Ring()),
    asks=("accel", Asks()),
    places=("accel", Places()),
    watches=("accel", Watches()),
)


def doubts(*accel: Any, **options: Any) -> list[str]:
    """Return the warnings of an experiment."""
    chosen = [(name, {}) if isinstance(name, str) else name for name in accel]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        build(REGISTRY, accel=chosen, **options)
    return [str(each.message) for each in caught if each.category is PluginWarning]


SMALL_BLOCKS = ("dgt", {"block_bytes": 64})
APART = {"sync": ("mixedsync", {})}
NONE = "accel {} changes nothing in this experiment: "


@pytest.mark.parametrize("mode", ["sim", "live"])
@pytest.mark.parametrize(
    ("accel", "options", "said"),
    [
        (["loop"], APART, "under sync=mixedsync parties do not update together, so their servers"),
        ([("tsengine", {"intra": False})], APART, "parties do not update together"),
        (["asks"], APART, "so the optimizer stays at the global server"),
        (["packed", "half"], {}, "its codec comes after accel packed, which leaves no float32"),
        (
            ["packed", SMALL_BLOCKS],
            {},
            "its slicer neither cuts nor reorders what accel packed makes",
        ),
        (["dgt"], {}, "its slicer neither cuts nor reorders what is sent"),
        (["nowhere"], {}, "it encodes nothing on any link"),
        (
            ["places"],
            {"network": ALONE},
            "with 1 global server every shard is where it is without it",
        ),
        ([("p3", {"prioritise": False})], {}, "it leaves every tensor as it is"),
    ],
)
def test_a_plugin_that_changes_nothing_causes_a_warning(
    accel: Any, options: Any, said: str, mode: str
) -> None:
    (line,) = doubts(*accel, mode=mode, **options)
    name = accel[-1] if isinstance(accel[-1], str) else accel[-1][0]
    assert line.startswith(NONE.format(name))
    assert said in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("accel", "options"),
    [
        ([plugin.name], {"workload": ("digits_cnn", {})})
        for plugin in Registry.discover().plugins("accel")
    ]
    + [
        (["loop"], {}),
        (["asks"], {}),
        (["half", "fp16"], {}),  # fp16 encodes answers
        (["half", SMALL_BLOCKS], {}),
        (["places"], {}),
        (["watches"], {}),
        (["acts"], {}),
        (["tsengine"], APART),  # it works inside parties
    ],
    ids=str,
)
def test_a_plugin_that_changes_something_causes_no_warning(accel: Any, options: Any) -> None:
    assert doubts(*accel, **options) == []


@pytest.mark.parametrize("mode", ["sim", "both", "live"])
def test_what_geomx_sim_does_is_an_effect_of_simulations(mode: str) -> None:
    for name, acts in (("slows", True), ("waits", True), ("charges", False), ("looks", False)):
        said = doubts(name, mode=mode)
        assert len(said) == (mode == "live" or not acts), name
        assert all(line.startswith(NONE.format(name)) for line in said)
    by_plugin = doubts("charges", mode=mode, costs={"by_plugin": True})
    assert bool(by_plugin) == (mode == "live")


@pytest.mark.slow
def test_exceptions_during_the_check_are_attributed_to_the_plugin() -> None:
    class Broken(geomx.Partitioner):
        def cut(self, tensor: Any, priority: int, shards: Any) -> Any:
            raise ZeroDivisionError("oh")

    class Plugin:
        @geomx.hookimpl
        def geomx_partitioner(self, cluster: Any) -> Any:
            return Broken()

    with pytest.raises((geomx.PluginError, ZeroDivisionError), match="oh"):
        build(registry_with(bad=("accel", Plugin())), accel=[("bad", {})])


@pytest.mark.slow
def test_a_study_does_not_repeat_the_warning(tmp_path: Path) -> None:
    words = ("workload=tiny", "numerics=false", "iterations=2", "accel=[dgt]", "study=null")
    variants = [Variant(words, ("accel=[dgt]",), tmp_path / str(n)) for n in range(2)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [reason for _, reason in carry_out(variants, 1)] == ["", ""]
    assert [each for each in caught if each.category is PluginWarning] == []
