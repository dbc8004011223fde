"""The ports of a continued run, held for its nodes from when they are chosen until the run ends.

The others know the port of a resumed node. Before the node listens on it, the kernel could use it
as the local port of another process's connection. A bound socket that does not listen prevents
that. With SO_REUSEADDR on both, the node's socket can be bound to the same port and listen.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

from geomx.errors import GeomxError

TRIES = 16
"""How many ports of the kernel's choice are tried: its TCP port may be in use for UDP."""


class HeldPorts:
    """Ports of nodes.

    Attributes:
        addresses: ``host:port`` of every node, by name.
    """

    def __init__(self, wanted: Mapping[str, str]) -> None:
        """Hold every node's port, or another one where that is taken.

        Args:
            wanted: ``host:port`` of every node, by name.

        Raises:
            GeomxError: No port of a host is free.
        """
        places = {name: address.rpartition(":")[::2] for name, address in wanted.items()}
        self._held: dict[str, socket.socket] = {}
        try:
            # Their own ports first: a new port could be that of a node whose turn comes later.
            for name, (host, port) in places.items():
                if (own := _bound(host, int(port))) is not None:
                    self._held[name] = own
            for name in places.keys() - self._held.keys():
                self._held[name] = _any(places[name][0])
        except BaseException:
            self.release()
            raise
        self.addresses = {
            name: f"{host}:{self._held[name].getsockname()[1]}"
            for name, (host, _) in places.items()
        }

    def release(self) -> None:
        """Close the sockets that hold the ports."""
        for each in self._held.values():
            each.close()
        self._held.clear()


def _any(host: str) -> socket.socket:
    for _ in range(TRIES):
        if (bound := _bound(host, 0)) is not None:
            return bound
    raise GeomxError(f"no port of {host} is free")


def _bound(host: str, port: int) -> socket.socket | None:
    """Return a TCP socket on `port`, or on any if it is 0; None if TCP or UDP cannot have it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host.strip("[]"), port))
        with socket.socket(family, socket.SOCK_DGRAM) as datagrams:
            datagrams.bind(bound.getsockname()[:2])
    except OSError:
        bound.close()
        return None
    return bound
