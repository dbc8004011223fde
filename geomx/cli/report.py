"""``geomx report``: the page of a run, also while it happens."""

from __future__ import annotations

import argparse
from pathlib import Path

from geomx.pages.running import Server, leave
from geomx.terminal.output import show


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run", metavar="RUN", help="directory of a run that is over, or under way")
    parser.add_argument(
        "--serve",
        nargs="?",
        type=int,
        const=0,
        metavar="PORT",
        help="serve the page to browsers on this machine until Ctrl-C, and keep it up to date",
    )


def main(options: argparse.Namespace) -> None:
    """Write the page of a run that has left none, or serve it while the run happens."""
    directory = Path(options.run)
    if options.serve is None:
        show(str(leave(directory)))
        return
    with Server(directory, options.serve) as server:
        show(f"{server.address} (Ctrl-C ends it)")
        server.serve_forever()
