"""``geomx top``: a running live job in the terminal, from the metrics that it serves."""

from __future__ import annotations

import argparse
import io
import time

from rich.console import Console
from rich.live import Live

from geomx.live import access
from geomx.metrics.server import fetch
from geomx.metrics.top import Reading, shown

WIDTH = 110
"""Columns of a picture in a file."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "address",
        metavar="[HOST:]PORT",
        help="where the job's scheduler serves metrics: its metrics.host and metrics.port",
    )
    parser.add_argument(
        "--every", type=float, default=2.0, metavar="S", help="seconds between two readings"
    )
    parser.add_argument("--once", action="store_true", help="print one picture and end")
    parser.add_argument("--svg", metavar="FILE", help="write one picture to a file and end")


def main(options: argparse.Namespace) -> None:
    """Show nodes and links until the job ends or Ctrl-C; changes nothing in the job."""
    host, _, port = options.address.rpartition(":")
    address = f"{host or '127.0.0.1'}:{port}"
    folder = access.folder_from_environment()
    files = None if access.is_loopback(host or "127.0.0.1") else access.paths(folder)

    def read() -> Reading:
        return Reading.of(time.monotonic(), fetch(address, files))

    before = read()
    time.sleep(options.every)
    now = read()
    if options.svg:
        console = Console(width=WIDTH, record=True, file=io.StringIO())
        console.print(shown(before, now))
        console.save_svg(options.svg, title=f"geomx top {options.address}")
        return
    if options.once:
        Console().print(shown(before, now))
        return
    with Live(shown(before, now), auto_refresh=False, screen=True) as live:
        while True:
            time.sleep(options.every)
            before, now = now, read()
            live.update(shown(before, now), refresh=True)
