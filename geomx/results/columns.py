"""The columns of a run's tables; their names are an interface for other tools."""

from __future__ import annotations

ITERATIONS = (
    "worker", "party", "iteration", "start_s", "compute_s", "wait_s", "end_s", "loss", "samples",
)  # fmt: skip
EVALUATIONS = ("time_s", "iteration", "accuracy", "loss")
LINKS = ("source", "target", "kind", "bytes", "messages", "busy_s", "control_bytes")
EDGES = (
    "source", "target", "bytes", "busy_s", "utilisation", "mean_mbps", "peak_mbps", "peak_flows",
    "peak_queue_bytes",
)  # fmt: skip

NEEDED = {
    "iterations": ITERATIONS,
    "evaluations": EVALUATIONS,
    "links": LINKS,
    "edges": EDGES[:5],  # older versions wrote no others
}
"""Columns without which a table is no such table, by the name of its file."""
