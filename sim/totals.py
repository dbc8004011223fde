"""What a simulation has counted, recorded at its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from geomx.network.links import Edge
from geomx.results.link_traffic import record_traffic
from geomx.results.traffic import EdgeTraffic
from geomx.sim.protocols import Running
from geomx.training.pace import NS


@contextmanager
def recorded_if_it_fails(simulation: Running, edges: Mapping[Edge, int]) -> Iterator[None]:
    """Record the totals up to now if the context, in which time runs, ends with an exception.

    Args:
        simulation: The simulation.
        edges: Ids of the edges in its fabric.
    """
    try:
        yield
    except BaseException:
        record_totals(simulation, edges, (simulation.env.now + simulation.skipped_ns) / NS)
        raise


def record_totals(simulation: Running, edges: Mapping[Edge, int], end_s: float) -> int:
    """Record traffic, the timeline and the work of nodes.

    Args:
        simulation: The simulation at its end.
        edges: Ids of the edges in its fabric.
        end_s: When the last worker ended, or time ended otherwise, in seconds of the run.

    Returns:
        The rounds of the run: on average over all shards that had any.
    """
    experiment, fabric, recorder = simulation.experiment, simulation.fabric, simulation.recorder
    nodes = experiment.cluster.nodes
    for source, target, push, pull, control, busy_ns in fabric.links():
        record_traffic(recorder, nodes[source], nodes[target], push, pull, control, busy_ns / NS)
    edges_ns = fabric.edges_busy()
    busy_s = {edge: edges_ns[number] / NS for edge, number in edges.items()}
    measured = None
    if simulation.programmed or simulation.standbys.replaced:
        wan = simulation.world.wan
        measured = {edge: (sent, wan.could(edge, end_s)) for edge, sent in wan.traffic().items()}
    samples = simulation.edge_samples
    peaks = samples.peaks if samples is not None else None
    counted = busy_s, measured, peaks, end_s
    recorder.edges(EdgeTraffic(experiment.cluster, experiment.seed, *counted))
    if samples is not None:
        samples.close()
    _record_spans(simulation)
    worked_ns = fabric.worked()
    busiest = max(nodes, key=lambda node: worked_ns[node.id])
    if end_s:
        recorder.endpoint(busiest.name, worked_ns[busiest.id] / NS / end_s)
    shard_rounds = with_rounds = 0
    for node in experiment.cluster.global_servers:
        counts = fabric.node_stats(node.id)
        recorder.global_server(counts)
        shard_rounds += counts["rounds"]
        with_rounds += counts["shards"]
    return shard_rounds // max(1, with_rounds)


def _record_spans(simulation: Running) -> None:
    fabric, recorder = simulation.fabric, simulation.recorder
    nodes = simulation.experiment.cluster.nodes
    spans = fabric.spans()
    for node, peer, name, kind, about, start_ns, end_ns in spans:
        recorder.span(
            nodes[node].name,
            nodes[node].party,
            f"{kind} to {nodes[peer].name}" if name == "send" else name,
            "compute" if name in ("forward", "backward") else name,
            start_ns / NS,
            (end_ns - start_ns) / NS,
            **about,
        )
    if lost := fabric.spans_dropped:
        most = simulation.experiment.sim.max_spans
        early = most - most // 2
        # If fewer than fit were kept, the others were lost to a repetition.
        borders = [span[-1] / NS for span in spans[early - 1 : early + 1]]
        full = len(spans) == most > 1
        recorder.spans_lost(lost, *(borders if full else (0.0, 0.0)))
