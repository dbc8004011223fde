"""Bursts over TCP connections between network namespaces, which start together in every round."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence

import numpy as np
from connections import PATIENCE_S, push, take, unconnected

from geomx.live.emulation import inside

Pair = tuple[socket.socket, socket.socket]
"""The sender's end of a connection, and the receiver's."""


def connected(spaces: Sequence[int], source: int, target: int, congestion: str) -> Pair:
    """Return a connection between two namespaces, given by their places in `spaces`."""
    with inside(f"/proc/self/fd/{spaces[target]}"):
        door = socket.create_server((f"10.0.0.{target + 1}", 0))
    with inside(f"/proc/self/fd/{spaces[source]}"):
        sender = unconnected(congestion)
    with door:
        sender.connect(door.getsockname())
        receiver, _ = door.accept()
    receiver.settimeout(PATIENCE_S)
    return sender, receiver


def timed(
    pairs: Sequence[Pair], sizes: Sequence[int], pauses_s: Sequence[float], rounds: int
) -> tuple[np.ndarray, np.ndarray]:
    """Send one burst per connection and round; return start and arrival of each, in seconds.

    Args:
        pairs: The connections.
        sizes: Bytes of a burst of each.
        pauses_s: Pause of each before a burst, once all bursts of the round before have arrived.
        rounds: Number of rounds.

    Returns:
        Two arrays of rounds by connections.
    """
    began_s, ended_s = np.zeros((2, rounds, len(pairs)))
    there = [threading.Semaphore(0) for _ in pairs]
    together = threading.Barrier(len(pairs))

    def receive(receiver: socket.socket, which: int) -> None:
        room = memoryview(bytearray(1 << 20))
        for number in range(rounds):
            ended_s[number, which] = take(receiver, sizes[which], room)
            there[which].release()

    def send(sender: socket.socket, which: int) -> None:
        for number in range(rounds):
            together.wait(PATIENCE_S)
            time.sleep(pauses_s[which])
            began_s[number, which] = time.monotonic()
            push(sender, sizes[which])
            there[which].acquire(timeout=PATIENCE_S)

    threads = [
        threading.Thread(target=work, args=(end, which), daemon=True)
        for which, pair in enumerate(pairs)
        for work, end in zip((send, receive), pair, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    origin_s = began_s.min() - 1.0
    return began_s - origin_s, ended_s - origin_s
