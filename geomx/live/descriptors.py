"""The limit on the open files and sockets of a node's process (``ulimit -n``)."""

from __future__ import annotations

import resource

from geomx.errors import ConfigError

SPARE = 64
"""Descriptors for everything that is no connection to a peer: files, pipes, libraries."""

STRANGERS = 256
"""Callers that a node hears at a time before it knows them, where the system allows as many."""


def make_room(name: str, connections: int) -> None:
    """Raise this process' soft limit on open files, if it is too low for its connections.

    The limit is never lowered, and not raised beyond what is needed: programs that use `select`
    cannot deal with descriptors from 1,024 on.

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
