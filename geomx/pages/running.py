"""The page of a run while it happens, made from the files that it has written so far.

`page_of` makes it, and `Server` gives it to browsers on this machine. When the run has ended they
get the page that it left.
"""

from __future__ import annotations

import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from geomx.errors import ConfigError, GeomxError
from geomx.pages import page
from geomx.results.files import read_network, write_text
from geomx.results.folders import runs_in
from geomx.results.results import UNFINISHED, Results
from geomx.results.steps import measured
from geomx.results.trace import Timeline

LONG_S = 60.0
"""Time without a step after which the page says that the run may have been killed."""


def page_of(directory: Path) -> str:
    """Return the page of a run: as the run left it, or of what is known so far.

    Args:
        directory: Of the run. For ``mode=both`` the one that contains both runs: their comparison,
            or the page of the latest.

    Raises:
        ConfigError: There is no run.
        GeomxError: One of its files is missing.
    """
    left = _page(directory)
    if not left.with_name("summary.json").is_file():
        return left.read_text(encoding="utf-8")  # a comparison
    results = Results.load(left.parent)
    under_way = results.summary.get("aborted") == UNFINISHED
    if left.is_file() and not under_way:
        return left.read_text(encoding="utf-8")
    network = left.with_name("network.json")
    graph = read_network(network) if network.is_file() else None
    if under_way:
        seconds = max((row["end_s"] for row in results.iterations), default=None)
        so_far = measured(results.iterations, results.evaluations, seconds)
        results.summary |= so_far.pop("steps") | so_far | {"seconds": seconds}
    told = _told(results) if under_way else ""
    return page.render(results, Timeline(0), graph, under_way=told)


def _told(results: Results) -> str:
    """Return what is said of a run that has not ended."""
    steps = 1 + max((row["iteration"] for row in results.iterations), default=-1)
    silent_s = max(0.0, time.time() - (results.directory / "iterations.csv").stat().st_mtime)
    count = results.summary["iterations"]  # 0: of a script, whose end is not known
    reached = f"{steps:,} of {count:,}" if count else f"{steps:,}"
    told = f"Under way: {reached} iterations have been reached"
    told += f", the last step ended {silent_s:.0f} s ago"
    if silent_s > LONG_S:
        told += "; if nothing follows, its processes were killed"
    return f"{told}. Traffic and timeline are known at the end."


def leave(directory: Path) -> Path:
    """Write the page of a run into its directory, if the run has not left one; return its path.

    Args:
        directory: As for `page_of`.

    Raises:
        ConfigError: There is no run.
        GeomxError: One of its files is missing.
    """
    path = _page(directory)
    write_text(path, page_of(directory))
    return path


def _page(directory: Path) -> Path:
    """Return the path of the page that `page_of` returns, whether there is one yet or not."""
    comparison = directory / "report.html"
    if comparison.is_file() and not (directory / "summary.json").is_file():
        return comparison
    return runs_in(directory)[-1] / "report.html"


class Server(ThreadingHTTPServer):
    """Serves the page of a run at ``http://127.0.0.1:PORT/``, made anew for every request.

    Args:
        directory: As for `page_of`.
        port: The port; 0: any.

    Raises:
        ConfigError: There is no run, or the port is taken.
    """

    daemon_threads = True

    def __init__(self, directory: Path, port: int) -> None:
        page_of(directory)
        self.directory = directory
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except (OSError, OverflowError) as error:
            remedy = f"cannot be opened ({error}); choose another port"
            raise ConfigError("--serve", port, remedy) from error

    @property
    def address(self) -> str:
        """Where it serves."""
        return f"http://127.0.0.1:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        if self.path not in ("/", "/report.html"):
            self.send_error(404, "there is only the page of the run, at /")
            return
        try:
            status, html = 200, page_of(self.server.directory)
        except GeomxError as error:
            status, html = 503, str(error)
        content = html.encode("utf-8")
        self.send_response(status)
        self.send_header(
            "Content-Type", f"text/{'html' if status == 200 else 'plain'}; charset=utf-8"
        )
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        """Requests are not logged."""
