"""Open files of a process: how many there may be (``ulimit -n``), and which can be read."""

from __future__ import annotations

import resource
import select
from collections.abc import Sequence

from geomx.errors import ConfigError

SPARE = 64
"""Descriptors for everything that is no connection to a peer: files, pipes, libraries."""

STRANGERS = 256
"""Callers that a node hears at a time before it knows them, where the system allows as many."""


def make_room(name: str, connections: int) -> None:
    """Raise this process' soft limit on open files, if it is too low for its connections.

    The limit is never lowered, and not raised beyond what is needed: scripts and libraries that use
    `select.select` cannot deal with descriptors from 1,024 on.

    Args:
        name: Of the node, for the message.
        connections: To how many nodes it will be connected at a time.

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
    """Wait until one of `descriptors` can be read or has ended.

    Unlike `select.select`, this takes descriptors from 1,024 on.

    Args:
        descriptors: Of open files or sockets.
        timeout_s: How long to wait at most; None: until there is one.

    Returns:
        Those that can be read or have ended; none if time was up.
    """
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    wait_ms = None if timeout_s is None else max(0.0, timeout_s) * 1000
    return [descriptor for descriptor, _ in poll.poll(wait_ms)]
