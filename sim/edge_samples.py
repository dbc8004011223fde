"""Loads, flows and queues of edges over time: ``sim.edges_every_s`` and ``edges_over_time.csv``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Any

import simpy

from geomx.network.schedules import BYTES_PER_MBIT
from geomx.results.files import Table
from geomx.results.rounding import rounded
from geomx.results.traffic import Peak
from geomx.scenario.places import Edge
from geomx.sim.protocols import Running
from geomx.training.pace import NS

COLUMNS = ("time_s", "source", "target", "mbps", "load_mbps", "flows", "queue_bytes", "bytes")


class EdgeSamples:
    """Reads all edges that have a bandwidth periodically, as a program of the world would.

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
        self._edges = {
            edge: number for edge, number in edges.items() if "bandwidth_mbps" in graph.edges[edge]
        }
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
        carried = fabric.edges_carried(now)
        for edge, number in self._edges.items():
            load = fabric.load(number) / BYTES_PER_MBIT
            queue, many = round(fabric.queued(number, now)), flows[edge]
            values = (
                rounded(now / NS), *edge, rounded(fabric.capacity(number, now) / BYTES_PER_MBIT),
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
