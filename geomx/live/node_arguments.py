"""The arguments of the program of a node."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from geomx.live.member import JOIN_TIMEOUT_S


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments of a node, or end the process with what is wrong with them.

    Args:
        arguments: Those after the name of the program; None: those of this process.
    """
    parser = argparse.ArgumentParser(
        prog="python -m geomx.live", description="Run a node of a live run."
    )
    role = parser.add_mutually_exclusive_group(required=True)
    role.add_argument("--scheduler", metavar="HOST:PORT", help="address of the scheduler to join")
    role.add_argument(
        "--experiment", metavar="FILE", help="run as the scheduler of this experiment"
    )
    parser.add_argument("--name", default="", help="the node's name in the network")
    parser.add_argument(
        "--id", type=int, help="the node's number; without it, the name identifies it"
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    parser.add_argument(
        "--notes", required=True, help="path of the notes and results, without suffix"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=JOIN_TIMEOUT_S,
        help="seconds after which joining is given up",
    )
    parser.add_argument(
        "--journal",
        default="",
        help="file in which the node is recorded; if it contains a node, that is continued",
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="this process replaces an earlier one of the node that was lost",
    )
    parser.add_argument(
        "--resumes",
        action="store_true",
        help="the run is continued after all its processes were killed",
    )
    parser.add_argument(
        "--stands-by", action="store_true", help="the node is the standby of a global server"
    )
    parser.add_argument(
        "--told", action="store_true", help="read from standard input which processes have ended"
    )
    parser.add_argument("--parent", type=int, help="id of a process; end when it ends")
    return parser.parse_args(arguments)
