"""Standbys of global servers in a simulation (``faults.durable=replica``).

The core repeats a global server's calls at its standby and decides when that takes its place; the
fabric simulates the messages. This module connects the standbys, and records what happened.
"""

from __future__ import annotations

from typing import Any

from geomx.cluster import NodeSpec
from geomx.experiment.wiring import peers
from geomx.network.links import Edge, link_model
from geomx.sim.protocols import Notice, Running
from geomx.training.pace import NS


class Standbys:
    """The standbys of one simulation, between its building and its start.

    Args:
        simulation: The simulation; all nodes are connected.
        edges: Ids of the graph's edges.

    Attributes:
        replaced: Whether one has taken its server's place, so that links lead elsewhere.
    """

    def __init__(self, simulation: Running, edges: dict[Edge, int]) -> None:
        self._simulation, self.replaced = simulation, False
        self._rows: dict[str, dict[str, Any]] = {}  # of faults that standbys are to repair
        experiment = simulation.experiment
        cluster, fabric = experiment.cluster, simulation.fabric
        self._present = {cluster.stood_by(each).id: each for each in cluster.standbys}
        if self._present:
            fabric.expect_faults()
        for standby in cluster.standbys:
            server = cluster.stood_by(standby)
            fabric.stand_by(simulation.config(server), standby.id)
            for peer in peers(cluster, experiment.selection, server):
                if peer == standby:
                    continue
                there = link_model(cluster, standby, peer, experiment.tcp, edges.__getitem__)
                back = link_model(cluster, peer, standby, experiment.tcp, edges.__getitem__)
                fabric.detour(server.id, peer.id, there)
                fabric.detour(peer.id, server.id, back)

    def expects(self, node: NodeSpec, row: dict[str, Any]) -> None:
        """Take note of the row of a fault of a node, which its standby may repair."""
        if node.id in self._present:
            self._rows[node.name] = row

    def kill(self, node: NodeSpec, reason: str) -> bool:
        """Kill a node's process if the run goes on without it; return whether it does."""
        servers = [server for server, each in self._present.items() if node.id in (server, each.id)]
        if not servers:
            return False
        del self._present[servers[0]]
        self._simulation.fabric.kill(node.id, reason, self._simulation.env.now)
        return True

    def hear(self, notice: Notice) -> bool:
        """Handle a notice of the fabric if it concerns a standby; return whether it does."""
        node, kind, *_ = notice
        concerned = self._simulation.experiment.cluster.nodes[node]
        if kind == "gone" and concerned.role == "standby":
            return True
        if kind != "moved":  # to a standby, which has all the server's peers now
            return False
        simulation = self._simulation
        now_s, name = simulation.env.now / NS, concerned.name
        self._present.pop(node, None)
        self.replaced = True
        standby = simulation.experiment.cluster.standby_of(concerned)
        if standby is not None and simulation.has_world:
            simulation.world.wan.replaced(concerned, standby)
        row = self._rows.pop(name, None)
        if row is None:
            simulation.recorder.fault({"time_s": now_s, "what": "restart", "node": name})
        else:
            row["recovered_s"] = now_s - row["time_s"]
        return True
