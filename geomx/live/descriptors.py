"""File descriptors of a process: their limit (``ulimit -n``), readable ones, standard output."""

from __future__ import annotations

import os
import resource
import select
import sys
from collections.abc import Callable, Sequence

from geomx.errors import ConfigError

SPARE = 64
"""Descriptors for everything except connections to peers: files, pipes, libraries."""

STRANGERS = 256
"""Upper bound on connections that have not identified themselves yet, if the system allows it."""


def make_room(name: str, connections: int) -> None:
    """Raise this process' soft limit on open files if its connections need more.

    The limit is never lowered, and not raised beyond what is needed, because scripts and libraries
    that use `select.select` do not support descriptors from 1,024 on.

    Args:
        name: Name of the node, for the message.
        connections: Number of simultaneous connections to other nodes.

    Raises:
        ConfigError: The hard limit, which only an administrator can raise, is too low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    least = connections + SPARE
    unlimited = hard == resource.RLIM_INFINITY
    if not unlimited and hard < least:
        remedy = (
            f"{name} talks with {connections} nodes and needs {least} open files: raise this "
            f"machine's hard limit to {least} (limits.conf, systemd's LimitNOFILE=, or "
            "docker run --ulimit nofile=)"
        )
        raise ConfigError("ulimit -n", hard, remedy)
    wanted = least + STRANGERS if unlimited else min(least + STRANGERS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def readable(descriptors: Sequence[int], timeout_s: float | None = None) -> list[int]:
    """Wait until one of `descriptors` is readable or at its end.

    Unlike `select.select`, this supports descriptors from 1,024 on.

    Args:
        descriptors: Descriptors of open files or sockets.
        timeout_s: Upper bound on the wait in seconds; None for no limit.

    Returns:
        The descriptors that are readable or at their end; empty after the timeout.
    """
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    wait_ms = None if timeout_s is None else max(0.0, timeout_s) * 1000
    return [descriptor for descriptor, _ in poll.poll(wait_ms)]


def claimed_output() -> Callable[[str], None]:
    """Let standard output go to standard error from now on.

    For a process of whose standard output another one reads a single line, and then closes the
    pipe: what plugins print belongs neither before that line nor in a closed pipe.

    Returns:
        A function that writes the line to what was the standard output, and closes that.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)

    def write(line: str) -> None:
        with os.fdopen(kept, "w") as output:
            print(line, file=output)

    return write
