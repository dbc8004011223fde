"""``geomx networks``: what ``network=NAME`` may name."""

from __future__ import annotations

import argparse

from geomx.network.named import named_networks
from geomx.terminal.listing import show_list
from geomx.terminal.output import show


def main(options: argparse.Namespace) -> None:
    """List every network that ships with geomx: name, parties and workers, summary, source."""
    rows = []
    for network in named_networks():
        cluster = network.cluster()
        parties, workers = str(len(cluster.parties)), str(len(cluster.workers))
        rows.append((network.name, parties, workers, network.summary, network.source))
    show_list(("name", "parties", "workers", "what it is", "source"), rows, 3)
    show("Any other network: network=FILE (YAML, node-link JSON, GraphML, GML).")
