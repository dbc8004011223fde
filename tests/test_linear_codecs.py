"""Linear codecs in complete runs: servers add encoded values, in both modes and in overlays; codecs
that claim to be linear and are not are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import geomx
from geomx.errors import PluginError
from geomx.plugin.registry import Registry
from geomx.runner import execute
from geomx.testing import CheckFailed, check_plugin
from geomx.testing.worlds import FAST, NETWORK, build
from tests.laws import close, registry_with

PARTIES = {"east": {"workers": 2, **FAST}, "west": {"workers": 1, **FAST}}
PARTIES["north"] = PARTIES["south"] = PARTIES["west"]
CENTRAL = {"name": "hub", "global_servers": 2, "workers": 1, **FAST}
FOUR: dict[str, Any] = {**NETWORK, "central": CENTRAL, "parties": PARTIES}


class Pairs:
    """Encodes sums of pairs of neighbours, and decodes them as means."""

    linear = True
    whole = frozenset({"sums"})
    survives_holes = False

    def layout(self, spec: Any) -> Any:
        return {"sums": (-(-spec["values"][0] // 2), "f4")}

    def encode(self, parts: Any) -> Any:
        values = parts["values"]
        return {"sums": np.add.reduceat(values, np.arange(0, len(values), 2))}

    def decode(self, parts: Any, length: int) -> Any:
        return {"values": np.repeat(parts["sums"] / 2, 2)[:length]}


def plugin(codec: Any, at_party: bool = False) -> Any:
    class Plugin:
        """A codec of pushes to global servers."""

        @geomx.hookimpl
        def geomx_codec(self, link: Any) -> Any:
            up = link.source.role == "server" and link.direction == "push"
            return codec(link) if up else None

        @geomx.hookimpl
        def geomx_update(self, cluster: Any) -> Any:
            return "party" if at_party else None

    return Plugin()


def data(results: Any) -> int:
    """Return the bytes of training traffic on all links."""
    return sum(results.summary["bytes"][kind] for kind in ("wan_push", "wan_pull", "lan"))


@pytest.mark.slow
@pytest.mark.parametrize("at_party", [False, True], ids=["weights back", "sums back"])
def test_linear_codecs_have_equal_results_in_trees_and_stars(
    at_party: bool, tmp_path: Path
) -> None:
    if "tsengine" not in {found.name for found in Registry.discover().plugins("accel")}:
        pytest.skip("not installed: tsengine")
    registry = registry_with(pairs=("accel", plugin(lambda link: Pairs(), at_party)))
    runs = [
        execute(build(registry, accel=accel, network=FOUR, **options), tmp_path / name)
        for name, accel, options in (
            ("plain", [], {}),
            ("star", [("pairs", {})], {}),
            ("tree", [("pairs", {}), ("tsengine", {})], {}),
            ("sizes", [("pairs", {}), ("tsengine", {})], {"numerics": False}),
        )
    ]
    plain, star, tree, sizes = runs
    star_ends, tree_ends = (list(run.parameters().values()) for run in (star, tree))
    assert close(star_ends, tree_ends, 1e-5)
    assert data(star) == data(tree) == data(sizes)
    expected = {"wan_push": 0.6, "wan_pull": 0.6 if at_party else 1.0}
    for kind, most in expected.items():
        assert star.summary["bytes"][kind] <= most * plain.summary["bytes"][kind]


@pytest.mark.slow
@pytest.mark.needs("powersgd", "tsengine")
def test_native_ones_have_equal_parameters_in_both_modes(tmp_path: Path) -> None:
    words = ["workload=tiny", "accel=[powersgd,tsengine]", "iterations=4", "evaluate_every=4"]
    words += ["accel.powersgd.min_elements=64"]
    simulated = geomx.run([*words, f"hydra.run.dir={tmp_path / 'sim'}"])
    live = geomx.run([*words, "mode=live", f"hydra.run.dir={tmp_path / 'live'}"])
    assert data(live) == data(simulated)
    for name, value in simulated.parameters().items():
        assert np.allclose(live.parameters()[name], value, rtol=1e-4, atol=1e-5)


# ---- codecs that are not linear ----


class Signs(Pairs):
    def layout(self, spec: Any) -> Any:
        return {"sums": spec["values"]}

    def encode(self, parts: Any) -> Any:
        return {"sums": parts["values"] ** 2}

    def decode(self, parts: Any, length: int) -> Any:
        return {"values": np.sqrt(np.abs(parts["sums"])).astype(np.float32)}


class Narrow(Pairs):
    def layout(self, spec: Any) -> Any:
        return {"sums": (spec["values"][0], "f2")}


class Wide(Pairs):
    def encode(self, parts: Any) -> Any:
        return {"sums": super().encode(parts)["sums"].astype("u4")}


class Fails(Pairs):
    def settle(self, parts: Any) -> None:
        raise ZeroDivisionError("oh")


@pytest.mark.slow
def test_a_codec_that_is_not_linear_is_found() -> None:
    registry = registry_with(bad=("accel", plugin(lambda link: Signs())))
    with pytest.raises(CheckFailed, match="3 senders, round 1: expected the sum of what each"):
        check_plugin("bad", registry=registry, modes=["sim"])


@pytest.mark.parametrize(
    ("codec", "words"),
    [
        (Narrow, 'Narrow.layout promises "sums" of float16, but a linear codec\'s parts are'),
        (Wide, 'Wide.encode produced "sums" of uint32, but a linear codec\'s parts are float32'),
        (Fails, "Fails.settle: ZeroDivisionError: oh"),
    ],
)
def test_a_broken_promise_names_plugin_hook_and_method(
    codec: Any, words: str, tmp_path: Path
) -> None:
    registry = registry_with(bad=("accel", plugin(lambda link: codec(), at_party=True)))
    with pytest.raises(PluginError, match=f"accel bad: geomx_codec: {words}"):
        execute(build(registry, accel=[("bad", {})]), tmp_path)


def test_all_links_to_a_server_must_have_the_same_linear_codec(tmp_path: Path) -> None:
    def some(link: Any) -> Any:
        return Pairs() if link.source.party == "east" else None

    def other(link: Any) -> Any:
        codec = Pairs()
        codec.of = link.source.party  # type: ignore[attr-defined]
        return codec

    def native(link: Any) -> Any:
        rank = 4.0 if link.source.party == "east" else 5.0
        return geomx.Native("codec", "powersgd", {"rank": rank, "dense_rounds": 0.0})

    installed = {found.name for found in Registry.discover().plugins("accel")}
    for answer in (some, other, *([native] if "powersgd" in installed else [])):
        registry = registry_with(bad=("accel", plugin(answer)))
        with pytest.raises(PluginError, match="accel bad: geomx_codec: a linear codec must be the"):
            execute(build(registry, accel=[("bad", {})]), tmp_path)
