"""A node that moves the bytes of geomx's tree over bare TCP, without summing anything.

Arguments: the ports at which children are accepted and the parent is called (0: none), how many
children there are, and the worker's rank (-1: a server). Each link carries all bytes up and all
bytes down, all at once; a round ends at a worker when all of its bytes have come down.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Sequence

import numpy as np
from rounds import contribution, measure, task, zeros

PIECE = 256 * 1024


def main() -> None:
    below, above, children, rank = map(int, sys.argv[1:])
    data = zeros([sum(task()["sizes"])])[0]
    links = []
    if below:
        with socket.create_server(("127.0.0.1", below)) as listener:
            links = [listener.accept()[0] for _ in range(children)]
    if above:
        links.append(called(above))
    bar = Barrier(links, rank)
    if rank < 0:
        for _ in range(task()["rounds"]):
            bar()
            exchange(links, data)
        bar()
        bar()
        return
    scratch = np.empty_like(data)

    def average(arrays: Sequence[np.ndarray]) -> None:
        exchange(links, arrays[0], scratch)
        # Nothing was added: what `measure` checks is what the sum would be.
        factor = sum(contribution(each, bar.number - 1, 0) for each in range(task()["workers"]))
        arrays[0][[0, -1]] = factor

    measure(rank, bar, average, [data], time.monotonic())


class Barrier:
    """A byte up to the root of the tree and one down."""

    def __init__(self, links: Sequence[socket.socket], rank: int) -> None:
        self._links, self._rank, self.number = links, rank, 0

    def __call__(self) -> None:
        """Wait for all."""
        self.number += 1
        above = self._links[-1:] if self._rank >= 0 or int(sys.argv[2]) else []
        below = self._links[: len(self._links) - len(above)]
        for link in below:
            link.recv(1)
        for link in above:
            link.sendall(b"x")
            link.recv(1)
        for link in below:
            link.sendall(b"x")


def called(port: int) -> socket.socket:
    """Return a connection to a port of this machine, once something listens there."""
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.01)


def exchange(
    links: Sequence[socket.socket], data: np.ndarray, into: np.ndarray | None = None
) -> None:
    """Send all of `data` on every link, and receive as much: into one piece, or into an array."""
    threads = []
    for link in links:
        threads.append(threading.Thread(target=link.sendall, args=(memoryview(data).cast("B"),)))
        threads.append(threading.Thread(target=receive, args=(link, data.nbytes, into)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def receive(link: socket.socket, size: int, into: np.ndarray | None) -> None:
    """Receive `size` bytes."""
    view = memoryview(np.empty(PIECE, np.uint8) if into is None else into).cast("B")
    at = 0
    while at < size:
        room = view if into is None else view[at : at + 4 * PIECE]
        at += link.recv_into(room[: min(len(room), size - at)])


if __name__ == "__main__":
    main()
