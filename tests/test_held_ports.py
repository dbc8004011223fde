"""Tests that the ports of a continued run stay free for its nodes."""

from __future__ import annotations

import socket

import pytest

from geomx import _core
from geomx.live.held_ports import HeldPorts
from tests.ports import free_port


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def test_a_held_port_is_given_to_a_node_and_to_no_connection() -> None:
    held = HeldPorts({"node": f"127.0.0.1:{free_port()}"})
    port = _port(held.addresses["node"])
    try:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        loop = _core.Loop("127.0.0.1", port, "secret")  # as a node opens it
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
        loop.close()
    finally:
        held.release()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_that_is_taken_is_replaced_and_no_two_nodes_get_one(kind: int) -> None:
    with socket.socket(type=kind) as taken:
        taken.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            taken.listen()
        lost = int(taken.getsockname()[1])
        kept = free_port()
        held = HeldPorts({"first": f"127.0.0.1:{lost}", "second": f"127.0.0.1:{kept}"})
        try:
            assert _port(held.addresses["second"]) == kept
            assert _port(held.addresses["first"]) not in (lost, kept)
        finally:
            held.release()
