"""``geomx top``: a running live job in the terminal, from the metrics that it serves."""

from __future__ import annotations

import argparse
import io
import math
import time
from collections.abc import Callable

from prometheus_client.core import Metric
from rich.console import Console
from rich.live import Live

from geomx.errors import ConfigError, GeomxError
from geomx.live import access
from geomx.metrics.server import Files, Unserved, fetch
from geomx.metrics.top import Reading, shown
from geomx.terminal.output import show

WIDTH = 110
"""Columns of a picture in a file or a pipe."""

MISSED = 2
"""Readings in a row that may fail while the job goes on: the scheduler may be restarted."""


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
    """Show nodes and links until the job ends or Ctrl-C; changes nothing in the job.

    Raises:
        ConfigError: An argument is invalid.
        GeomxError: The scheduler does not answer.
    """
    if not 0 < options.every < math.inf:
        raise ConfigError("--every", options.every, "must be a number of seconds above 0")
    host, _, port = options.address.rpartition(":")
    address = f"{host or '127.0.0.1'}:{port}"
    ways = _ways(host or "127.0.0.1")

    def read() -> Reading:
        return Reading.of(time.monotonic(), _answer(address, ways))

    before = read()
    time.sleep(options.every)
    now = read()
    if options.svg:
        console = Console(width=WIDTH, record=True, file=io.StringIO())
        console.print(shown(before, now))
        console.save_svg(options.svg, title=f"geomx top {options.address}")
        return
    if options.once:
        show(shown(before, now), WIDTH)
        return
    _watch(read, before, now, options.every)
    show(f"the job has ended: nothing serves metrics at {address} any longer")


def _watch(read: Callable[[], Reading], before: Reading, now: Reading, every_s: float) -> None:
    """Show readings until nothing serves metrics any longer.

    Args:
        read: Reads the metrics.
        before: The first reading.
        now: The second one.
        every_s: Seconds between two readings.

    Raises:
        GeomxError: More than `MISSED` readings in a row have failed, and the job has not ended.
    """
    missed = 0
    with Live(shown(before, now), auto_refresh=False, screen=True) as live:
        while True:
            time.sleep(every_s)
            try:
                before, now = now, read()
            except GeomxError as error:
                missed += 1
                if missed <= MISSED:
                    continue
                if isinstance(error, Unserved):
                    return
                raise
            else:
                missed = 0
                live.update(shown(before, now), refresh=True)


def _ways(host: str) -> list[Files | None]:
    """Return the files with which to ask for metrics, in order; None: without TLS.

    On this machine, metrics may be served by TLS or not, whether or not there are certificates;
    beyond it, an answer without TLS is not asked for if there are.

    Raises:
        ConfigError: The folder in the environment lacks certificates.
    """
    folder = access.folder_from_environment()
    if folder is None:
        return [None]
    access.read_files(folder)
    return [access.paths(folder), None] if access.is_loopback(host) else [access.paths(folder)]


def _answer(address: str, ways: list[Files | None]) -> list[Metric]:
    """Return metrics, asked for in the first way that works, which becomes the only one.

    Raises:
        GeomxError: There is no answer; the error is that of the first way.
    """
    errors = []
    for files in ways:
        try:
            found = fetch(address, files)
        except GeomxError as error:
            errors.append(error)
        else:
            ways[:] = [files]
            return found
    raise errors[0]
