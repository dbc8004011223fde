"""Models of the network that others bring: the reference agrees with the native one in whole runs,
packets with the fluid model for long flows, and what a model cannot do is refused by name."""

from __future__ import annotations

import ast
import csv
import importlib.util
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import geomx
from geomx.errors import ConfigError, GeomxError, PluginError
from geomx.limits.watchdog import attended
from geomx.options.schema import RuntimeOptions, SimOptions
from geomx.plugin.wan import WanConnection, WanModel
from geomx.scenario.programs import Program
from geomx.sim import World
from tests.laws import Build, registry_with

ROOT = Path(__file__).resolve().parents[1]
KINDS = ROOT / "examples" / "plugins" / "kinds" / "geomx_kinds" / "packets.py"


def plugin(model: Any) -> Any:
    """Return a plugin that brings a model, made anew for each simulation."""

    class Brings:
        @geomx.hookimpl
        def geomx_wan_model(self) -> WanModel:
            return model()

    return registry_with(mine=("accel", Brings()))


def columns(run: Any, name: str, *chosen: str) -> list[list[float]]:
    with (run.results.directory / name).open(newline="") as file:
        return [[float(row[column] or 0) for column in chosen] for row in csv.DictReader(file)]


def program(world: World) -> None:
    """Change edges and ways, and send transfers, one of which is cancelled."""
    world.process(acts(world))


def acts(world: World) -> Any:
    wan = world.wan
    background = wan.transfer("party0", "hub", 4e6, weight=2)
    wan.transfer("hub", "party1", 1e6, mbps=10, priority=1)
    yield world.env.timeout(world.seconds(0.3))
    wan.set("party0", "hub", mbps=20, delay_ms=30, both=True)
    yield world.env.timeout(world.seconds(0.2))
    background.cancel()
    wan.set("party1", "party1/wan", mbps=0)
    yield world.env.timeout(world.seconds(0.4))
    wan.set("party1", "party1/wan", mbps=60)
    yield wan.transfer("party1", "hub", 5e5, congestion="cubic")


@pytest.mark.slow
@pytest.mark.parametrize("disturbed", [False, True])
@pytest.mark.parametrize("emulate", ["shaper", "netns"])
@pytest.mark.parametrize("accel", [[], [("dgt", {})]])
def test_the_reference_simulates_runs_as_the_native_model_does(
    simulate: Build, network: Build, sized: Build, disturbed: bool, emulate: str, accel: list[Any]
) -> None:
    wan = network(1, 2, mbps=50, delay_ms=15, loss=0.001)
    wan["outages"] = [{"site": "party1", "start_s": 0.1, "end_s": 0.25}]
    workload = sized(200_000, 50, 30_000)
    more: dict[str, Any] = {"emulate": emulate}
    if disturbed:
        more["programs"] = (Program("program", program),)
    fluid, reference = (
        simulate(wan, workload, accel=accel, iterations=4, sim=SimOptions(wan=name), **more)
        for name in ("fluid", "reference")
    )
    rows = [columns(run, "iterations.csv", "start_s", "end_s") for run in (fluid, reference)]
    for one, other in zip(*rows, strict=True):
        assert one == pytest.approx(other, rel=1e-6, abs=1e-6)
    assert fluid.bytes == reference.bytes
    carried = [columns(run, "edges.csv", "bytes", "busy_s") for run in (fluid, reference)]
    for one, other in zip(*carried, strict=True):
        assert one == pytest.approx(other, rel=1e-5, abs=2)


@pytest.mark.slow
def test_traffic_may_end_as_its_last_byte_leaves(tmp_path: Path) -> None:
    traffic = "[{at_s: 0.05, traffic: [chengdu, hub], mbps: 30, for_s: 0.05}]"
    words = ["workload=tiny", "iterations=4", f"scenario={traffic}"]
    fluid, reference = (
        geomx.run([*words, f"sim.wan={name}", f"hydra.run.dir={tmp_path / name}"])
        for name in ("fluid", "reference")
    )
    for one, other in zip(fluid.edges, reference.edges, strict=True):
        assert one["bytes"] == pytest.approx(other["bytes"], abs=2)


def packet_model() -> Any:
    """Return the class of the example plugin's model, which docs/world.md shows."""
    spec = importlib.util.spec_from_file_location("packets_of_the_page", KINDS)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PacketModel


def test_the_page_shows_the_model_of_the_example_plugin() -> None:
    tree = ast.parse(KINDS.read_text(encoding="utf-8"))
    (model,) = (node for node in tree.body if getattr(node, "name", "") == "PacketModel")
    text = ast.get_source_segment(KINDS.read_text(encoding="utf-8"), model)
    assert text is not None and text in (ROOT / "docs" / "world.md").read_text(encoding="utf-8")
    code = [line for line in text.splitlines() if line.strip() and '"""' not in line]
    assert len(code) <= 45


@pytest.mark.slow
def test_packets_agree_with_flows_that_are_long(simulate: Build, sized: Build) -> None:
    """Three parties of different uplinks share a hub, which is narrow, in both directions."""
    sites = {"uplink_mbps": 200, "downlink_mbps": 200}
    parties = {
        f"p{mbps}": {"workers": 1, "uplink_mbps": mbps, "downlink_mbps": mbps}
        for mbps in (50, 100, 200)
    }
    wan = {"central": {"name": "hub", **sites}, "parties": parties, "delay_ms": 2, "lan": {}}
    workload = sized(1_000_000, forward_s=0.01, backward_s=0.01)
    fluid = simulate(wan, workload, iterations=2, numerics=False)
    registry = plugin(lambda: packet_model()(15_000))
    packets = simulate(
        wan, workload, iterations=2, numerics=False, accel=["mine"], registry=registry
    )
    one, other = (run.results.summary["seconds"] for run in (fluid, packets))
    assert one == pytest.approx(other, rel=0.02)
    assert one != other
    assert packets.results.summary["bytes"] == fluid.results.summary["bytes"]


class Instant(WanModel):
    """Messages leave at once."""

    def start(self, connection: WanConnection, size_bytes: float) -> None:
        self.wire.left(connection)


def test_a_model_that_needs_no_time_leaves_delays_and_computing(
    simulate: Build, network: Build, sized: Build
) -> None:
    workload = sized(1_000_000, forward_s=0.01, backward_s=0.02)
    run = simulate(
        network(1, delay_ms=40, lan={"mbps": 1e4, "delay_ms": 0}), workload, iterations=3,
        numerics=False, accel=["mine"], registry=plugin(Instant),
    )  # fmt: skip
    took = [end - start for start, end in columns(run, "iterations.csv", "start_s", "end_s")]
    assert took[1] == pytest.approx(0.03 + 2 * 0.04, rel=1e-6)


class Thorough(WanModel):
    """The first message takes long to compute, in small steps; others leave at once."""

    steps = 20

    def start(self, connection: WanConnection, size_bytes: float) -> None:
        self.wire.env.process(self._send(connection))

    def _send(self, connection: WanConnection) -> Any:
        while self.steps:
            self.steps -= 1
            yield self.wire.env.timeout(1000)
            time.sleep(0.1)
        self.wire.left(connection)
        yield self.wire.env.timeout(0)


def test_a_model_that_computes_for_long_does_not_stand_still(
    simulate: Build, network: Build, tiny: Any
) -> None:
    run = attended(
        lambda: simulate(
            network(1), tiny, accel=["mine"], registry=plugin(Thorough), iterations=1,
            runtime=RuntimeOptions(failure_timeout_s=1.0),
        )
    )  # fmt: skip
    assert run.results.summary["iterations"] == 1


def test_what_a_model_cannot_do_is_refused_by_name(
    simulate: Build, network: Build, tiny: Any, tmp_path: Path
) -> None:
    def run(model: Any, **more: Any) -> Any:
        return simulate(network(1, 1), tiny, accel=["mine"], registry=plugin(model), **more)

    def change(world: World) -> None:
        world.wan.set("party0", "hub", mbps=1)

    programs = (Program("program", change),)
    with pytest.raises(GeomxError, match="the WAN model Instant does not follow changes of edges"):
        run(Instant, programs=programs)
    with pytest.raises(GeomxError, match="came to a standstill at"):
        run(type("Deaf", (WanModel,), {"start": lambda self, connection, size_bytes: None}))
    with pytest.raises(PluginError, match="must return WanModel"):
        run(object)
    with pytest.raises(ConfigError, match=r"sim.wan=reference: accel mine: .* decides it too"):
        run(Instant, sim=SimOptions(wan="reference"))
    with pytest.raises(ConfigError, match=r"sim.wan=fluent: must be fluid, reference, or a file"):
        simulate(network(1, 1), tiny, sim=SimOptions(wan="fluent"))
    file = tmp_path / "mine.py"
    file.write_text("def wan_model():\n    return 3\n")
    with pytest.raises(PluginError, match=r"mine.py: wan_model returned 3, not a geomx.WanModel"):
        simulate(network(1, 1), tiny, sim=SimOptions(wan=str(file)))


def test_a_file_has_a_model_and_results_are_those_of_the_protocol(
    simulate: Build, network: Build, tiny: Any, tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import geomx\n"
        "class Instant(geomx.WanModel):\n"
        "    def start(self, connection, size_bytes):\n"
        "        self.wire.left(connection)\n"
        "def wan_model():\n"
        "    return Instant()\n"
    )
    quick = simulate(network(1, 2), tiny, sim=SimOptions(wan=str(file)))
    usual = simulate(network(1, 2), tiny)
    assert quick.results.summary["seconds"] < usual.results.summary["seconds"]
    for one, other in zip(quick.parameters, usual.parameters, strict=True):
        assert one.tobytes() == other.tobytes()
