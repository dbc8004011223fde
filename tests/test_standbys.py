"""Standbys take the place of lost global servers, without changes to the results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geomx import runner
from geomx.errors import ConfigError, GeomxError, NodeLost
from geomx.network.files import read_network
from geomx.network.topology import with_standbys
from geomx.results.results import Results
from geomx.sim import World
from tests.ports import free_port
from tests.strangers import accel, install

NETWORK: dict[str, Any] = {
    "central": {"name": "hub", "uplink_mbps": 400, "downlink_mbps": 400},
    "parties": {
        name: {"workers": 2, "uplink_mbps": 400, "downlink_mbps": 400} for name in ("east", "west")
    },
    "delay_ms": 5,
}
Process = Iterator[Any]
REPLICA = "faults.durable=replica"
# Quick to simulate and to start; it takes as long for a step as the default workload.
TINY = ["workload=tiny", "workload.forward_ms=10", "workload.backward_ms=20"]
P3, DGT = "accel.p3.slice_elements=50", "accel.dgt.block_bytes=64"
SERVER, STANDBY = "hub/global_server0", "hub/standby0"


def run(folder: Path, *words: str, mode: str = "sim", world: Any = None) -> Results:
    network = folder.parent / "network.yaml"
    network.write_text(str(NETWORK))
    shared = [*TINY, f"network={network}", "iterations=30", "workload.batch_size=4"]
    shared += ["sim.max_spans=0"]
    return runner.run(f"mode={mode}", *shared, f"hydra.run.dir={folder}", *words, world=world)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """An undisturbed run."""
    return run(tmp_path_factory.mktemp("calm") / "run")


def check_equal(one: Results, other: Results) -> None:
    """Check that two runs have equal bits."""
    assert one.parameters()
    for name, value in one.parameters().items():
        assert np.array_equal(value, other.parameters()[name])


def kill(node: str, at_s: float) -> str:
    return f"scenario=[{{at_s: {at_s}, kill: {node}}}]"


def test_standbys_are_hosts_of_the_network() -> None:
    cluster = read_network(NETWORK)
    beside = with_standbys(cluster, None)
    assert [node.name for node in beside.standbys] == [STANDBY]
    assert beside.nodes[: len(cluster.nodes)] == cluster.nodes
    assert beside.path(beside.standbys[0], beside.node(SERVER)).delay_s < 0.001
    away = with_standbys(cluster, "west")
    assert [node.name for node in away.standbys] == ["west/standby0"]
    assert away.path(away.standbys[0], away.node(SERVER)).delay_s > 0.004
    with pytest.raises(ConfigError, match=r"faults\.standby=north: there is no such site"):
        with_standbys(cluster, "north")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["+accel=[p3]", P3], ["+sync=hfa", "+accel=[bisparse,dgt]", DGT]]
)
def test_a_standby_takes_over_in_a_simulation(tmp_path: Path, words: list[str]) -> None:
    calm = run(tmp_path / "calm", *words)
    killed = run(tmp_path / "killed", *words, REPLICA, kill(SERVER, 0.2))
    if DGT not in words:  # best-effort blocks may arrive in another round
        check_equal(calm, killed)
    (fault,) = killed.summary["faults"]
    assert (fault["what"], fault["node"]) == ("kill", SERVER)
    assert 0 < fault["recovered_s"] < 0.2  # some round trips over the WAN, whose delay is 5 ms
    assert killed.summary["seconds"] < calm.summary["seconds"] + 0.5


SIZES = [
    "workload=synthetic", "workload.elements=[100000]", "numerics=false", REPLICA,
    "faults.standby=west", kill(SERVER, 0.2),
]  # fmt: skip
ARRIVING, LEAVING = ("east/wan", "west/wan"), ("west/wan", "east/wan")


def carried(results: Results) -> dict[tuple[str, str], int]:
    """Return the bytes of training over every edge."""
    return {(row["source"], row["target"]): row["bytes"] for row in results.edges}


def test_edges_of_a_standby_are_counted_from_its_takeover(tmp_path: Path) -> None:
    sent = carried(run(tmp_path / "killed", *SIZES))
    calm = carried(run(tmp_path / "calm", *SIZES[:-1]))
    pushes = calm["east/wan", "hub/wan"]
    assert sent["east/wan", "hub/wan"] + sent[ARRIVING] == pushes
    assert min(sent[ARRIVING], sent[LEAVING]) > pushes / 2 and calm[ARRIVING] == 0


@pytest.mark.parametrize("what", ["reroute", "set", "set before"])
def test_programs_do_not_lead_links_away_from_a_standby(tmp_path: Path, what: str) -> None:
    """After its takeover; a delay counts for it if it was set before."""
    flows: set[Any] = set()

    def change(world: World) -> Process:
        yield world.env.timeout(world.seconds(0.1))
        if what == "set before":
            world.wan.set("east", "west", delay_ms=25, both=True)
        yield world.env.timeout(world.seconds(0.5))
        if what == "reroute":
            world.wan.set("east", "hub", up=False, both=True)
            world.wan.reroute()
        elif what == "set":
            world.wan.set("east", "west", delay_ms=25, both=True)
        while True:
            flows.update(flow.edges for flow in world.wan.flows())
            yield world.env.timeout(world.seconds(0.001))

    def program(world: World) -> None:
        world.process(change(world))

    results = run(tmp_path / "run", *SIZES, world=program)
    plain = run(tmp_path / "plain", *SIZES)
    assert carried(results) == pytest.approx(carried(plain), rel=0.1)
    assert flows and not any(edge[0][:3] == "hub" for edges in flows for edge in edges)
    if what == "reroute":
        assert results.summary["seconds"] == plain.summary["seconds"]
    else:
        steps = sum(row["start_s"] > 0.6 for row in plain.iterations) / 4
        longer = results.summary["seconds"] - plain.summary["seconds"]
        assert longer > 0.9 * steps * 0.04  # and more while windows grow


@pytest.mark.slow
def test_replication_changes_no_bit(tmp_path: Path, calm: Results) -> None:
    check_equal(calm, run(tmp_path / "beside", REPLICA))
    check_equal(calm, run(tmp_path / "away", REPLICA, "faults.standby=west"))


@pytest.mark.slow
def test_replication_is_counted_and_costs_no_wan_bytes_beside_the_server(tmp_path: Path) -> None:
    large = ["workload=digits_cnn", "numerics=false"]
    calm = run(tmp_path / "calm", *large)
    beside = run(tmp_path / "beside", *large, REPLICA)
    away = run(tmp_path / "away", *large, REPLICA, "faults.standby=west")
    pushed = calm.summary["bytes"]["wan_push"]

    def control(results: Results, source: str, target: str) -> int:
        rows = [row for row in results.links if (row["source"], row["target"]) == (source, target)]
        return sum(int(row["control_bytes"]) for row in rows)

    for results, standby in ((beside, STANDBY), (away, "west/standby0")):
        assert pushed < control(results, SERVER, standby) < 1.1 * pushed
        assert results.summary["bytes"]["wan_push"] == pushed
    assert beside.summary["seconds"] < 1.1 * calm.summary["seconds"]
    # Each answer waits for a round trip to the standby and for its bytes.
    assert away.summary["seconds"] > calm.summary["seconds"] + 29 * 0.01


@pytest.mark.slow
def test_a_run_goes_on_without_its_standby(tmp_path: Path, calm: Results) -> None:
    killed = run(tmp_path / "killed", REPLICA, kill(STANDBY, 0.2))
    check_equal(calm, killed)
    with pytest.raises(NodeLost, match=f"{SERVER} was lost"):
        both = f"scenario=[{{at_s: 0.2, kill: {STANDBY}}}, {{at_s: 0.3, kill: {SERVER}}}]"
        run(tmp_path / "both", REPLICA, both)


@pytest.mark.slow
def test_what_the_loss_of_a_standby_means_is_told(tmp_path: Path, calm: Results) -> None:
    killed = run(tmp_path / "killed", REPLICA, kill(STANDBY, 0.2), mode="live")
    check_equal(calm, killed)
    log = (tmp_path / "killed" / "nodes" / "hub-scheduler.log").read_text()
    assert f"{STANDBY} is lost, no node would take its server's place: " in log
    assert "rounds complete without" not in log


@pytest.mark.slow
def test_a_server_that_is_paused_for_too_long_is_replaced(tmp_path: Path, calm: Results) -> None:
    scenario = f"scenario=[{{at_s: 0.2, pause: {SERVER}, for_s: 5}}]"
    paused = run(tmp_path / "paused", REPLICA, "faults.suspect_s=0.3", scenario)
    check_equal(calm, paused)
    (fault,) = paused.summary["faults"]
    assert 0.3 < fault["recovered_s"] < 1.5


@pytest.mark.slow
def test_what_does_not_go_with_standbys_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"faults\.standby=west: has no effect without"):
        run(tmp_path / "a", "faults.standby=west")
    with pytest.raises(ConfigError, match=r"restart_s=1.*its standby takes its place"):
        run(tmp_path / "b", REPLICA, f"scenario=[{{at_s: 1, kill: {SERVER}, restart_s: 1}}]")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["workload=digits_cnn", "+accel=[p3]"], ["+sync=hfa", "+accel=[bisparse]"]]
)
def test_a_standby_takes_over_in_a_live_run(tmp_path: Path, words: list[str]) -> None:
    calm = run(tmp_path / "calm", *words)
    killed = run(tmp_path / "killed", *words, REPLICA, kill(SERVER, 0.5), mode="live")
    check_equal(calm, killed)
    (fault,) = killed.summary["faults"]
    assert fault["recovered_s"] < 5
    for way in ("wan_push", "wan_pull", "lan"):
        assert calm.summary["bytes"][way] == killed.summary["bytes"][way]


ALONE = """
class Alone:
    def update(self, weight, gradient, learning_rate):
        try:
            with open(FIRST, "x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            if Path(FIRST).read_text() not in ("", str(os.getpid())):
                raise RuntimeError("there is another one") from None
        return weight - learning_rate * gradient

class Plugin(Base):
    @geomx.hookimpl
    def geomx_optimizer(self):
        return Alone()
"""


@pytest.mark.slow
def test_a_standby_that_cannot_repeat_its_server_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = f"import os\nfrom pathlib import Path\nFIRST = {str(tmp_path / 'first')!r}\n"
    text = accel("alone", "pass").replace("class Plugin(Base):\n    pass\n", ALONE)
    install(tmp_path / "site", "alone_stranger", head + text, monkeypatch)
    with pytest.raises(GeomxError, match=r"accel alone: .*Alone.update.*there is another one"):
        run(tmp_path / "run", "+accel=[alone]", REPLICA, mode="live")


@pytest.mark.slow
def test_a_paused_server_is_refused_when_it_returns(tmp_path: Path) -> None:
    scenario = f"scenario=[{{at_s: 0.5, pause: {SERVER}, for_s: 3}}]"
    words = [REPLICA, "faults.suspect_s=1", scenario, "iterations=120"]
    calm = run(tmp_path / "longer", "iterations=120")
    paused = run(tmp_path / "paused", *words, mode="live")
    check_equal(calm, paused)
    log = (paused.directory / "nodes" / "hub-scheduler.log").read_text()
    assert f"{SERVER} is lost, its standby goes on in its place" in log


@pytest.mark.slow
def test_a_paused_server_does_not_end_the_run_by_its_port_of_metrics(tmp_path: Path) -> None:
    scenario = f"scenario=[{{at_s: 0.5, pause: {SERVER}, for_s: 3}}]"
    words = [REPLICA, "faults.suspect_s=1", scenario, f"metrics.port={free_port(9)}"]
    check_equal(
        run(tmp_path / "calm", "iterations=60"),
        run(tmp_path / "paused", *words, "iterations=60", mode="live"),
    )
    log = (tmp_path / "paused" / "nodes" / "hub-standby0.log").read_text()
    assert f"warning: the metrics of {SERVER} are not served: metrics.port=" in log


@pytest.mark.parametrize("mode", ["sim", pytest.param("live", marks=pytest.mark.slow)])
def test_a_standby_takes_over_where_training_continues_without_others(
    tmp_path: Path, mode: str
) -> None:
    """A worker is lost and comes back, and then the global server."""
    worker = "{at_s: 0.3, kill: west/worker1, restart_s: 0.1}"
    scenario = f"scenario=[{worker}, {{at_s: 1.2, kill: {SERVER}}}]"
    words = [REPLICA, "faults.on_loss=continue", "iterations=80", scenario]
    results = run(tmp_path / "run", *words, mode=mode)
    rows = {row["node"]: row for row in results.summary["faults"]}
    assert rows["west/worker1"]["recovered_s"] > 0
    assert rows[SERVER]["recovered_s"] < 5
    assert results.summary["seconds"] > 1.2
