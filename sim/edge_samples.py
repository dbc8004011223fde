"""Loads, flows and queues of edges over time: ``sim.edges_every_s`` and ``edges_over_time.csv``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator
from typing import Any

import simpy

from geomx.network.schedules import BYTES_PER_MBIT, limited
from geomx.results.files import Table
from geomx.results.rounding import rounded
from geomx.results.traffic import Peak
from geomx.scenario.places import Edge
from geomx.sim.protocols import Running
from geomx.training.pace import NS

COLUMNS = ("time_s", "source", "target", "mbps", "load_mbps", "flows", "queue_bytes", "bytes")


class EdgeSamples:
    """Reads all limited edges periodically, as a program of the world would.

    These are those whose bandwidth or outages the network has, and from the reading that finds one
    on, those that a program or a scenario has given a bandwidth.

    Args:
        simulation: The simulation, built.
        edges: Numbers of the edges in the fabric.
        every_s: Seconds between two readings.

    Attributes:
        peaks: The largest readings so far, by edge.
    """

    def __init__(self, simulation: Running, edges: dict[Edge, int], every_s: float) -> None:
        self._simulation, self._every_ns = simulation, max(1, round(every_s * NS))
        graph = simulation.experiment.cluster.graph
        self._edges = edges
        self._limited = {edge for edge in edges if limited(graph.edges[edge])}
        self._table = Table(simulation.recorder.directory / "edges_over_time.csv", COLUMNS)
        self.peaks: dict[Edge, Peak] = {}

    @classmethod
    def of(cls, simulation: Running, edges: dict[Edge, int]) -> EdgeSamples | None:
        """Begin to read, if the experiment asks for it.

        Args:
            simulation: The simulation, which begins.
            edges: Numbers of the edges in the fabric.

        Returns:
            The readings; None: there are none.
        """
        every_s = simulation.experiment.sim.edges_every_s
        if every_s is None:
            return None
        samples = cls(simulation, edges, every_s)
        simulation.env.process(samples.run())
        return samples

    def run(self) -> Generator[simpy.Event, Any, None]:
        """Read until the run ends; a SimPy process."""
        env = self._simulation.env
        while True:
            yield env.timeout(self._every_ns)
            self._read(env.now)

    def _read(self, now: int) -> None:
        fabric, wan = self._simulation.fabric, self._simulation.world.wan
        flows = Counter(edge for flow in wan.flows() for edge in flow.edges)
        carried, queued = fabric.edges_carried(now), fabric.edges_queued(now)
        for edge, number in self._edges.items():
            mbps = fabric.capacity(number, now) / BYTES_PER_MBIT
            if mbps < math.inf:
                self._limited.add(edge)
            elif edge not in self._limited:
                continue
            load = fabric.load(number) / BYTES_PER_MBIT
            queue, many = round(queued[number]), flows[edge]
            values = (
                rounded(now / NS), *edge, rounded(mbps),
                rounded(load), many, queue, round(sum(carried[number])),
            )  # fmt: skip
            self._table.add(dict(zip(COLUMNS, values, strict=True)))
            before = self.peaks.get(edge, Peak(0.0, 0, 0))
            self.peaks[edge] = Peak(
                max(before.mbps, rounded(load)),
                max(before.flows, many),
                max(before.queue_bytes, queue),
            )

    def close(self) -> None:
        """Close the file."""
        self._table.close()
