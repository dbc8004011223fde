"""Transfers: bytes of others that share the simulated WAN with training."""

from __future__ import annotations

import math
from typing import Any, Protocol

import simpy

from geomx import _core
from geomx.network.schedules import BYTES_PER_MBIT
from geomx.sim.clock import Clock
from geomx.training.pace import NS


class Carrier(Protocol):
    """What a transfer needs of the WAN that carries it; see `geomx.sim.world.wan.Wan`."""

    env: Clock
    fabric: _core.Fabric

    @property
    def last_class(self) -> int:
        """The last class of training's flows."""
        ...

    def link_between(self, source: str, target: str, congestion: str | None) -> _core.LinkModel:
        """Return the way between two nodes, and its TCP."""
        ...

    def ended(self, transfer: Transfer) -> None:
        """Forget a transfer that has ended."""
        ...

    def publish(self, transfer: Transfer) -> None:
        """Publish the end of a transfer."""
        ...


class Transfer(simpy.Event):
    """Bytes on their way from one node of the graph to another; a SimPy event.

    It triggers when the last byte has arrived, or when it is cancelled; its value is the transfer
    itself. Made by `Wan.transfer`.

    Attributes:
        source: Name of the sending node.
        target: Name of the receiving node.
        size_bytes: Size, without headers of TCP and IP.
        weight: Share of an edge, relative to a connection of training with its round trip.
        priority: Above 0 before training, below 0 after it.
        mbps: Rate of a transfer at a constant rate, in Mbit/s with headers; None for TCP.
        congestion: Congestion control of its TCP; None for that of training.
        started_s: When it began, in seconds of the run.
        ended_s: When its last byte arrived or it was cancelled; None until then.
        cancelled: Whether it was cancelled.
        sent_bytes: Bytes that had left when it ended.
    """

    def __init__(
        self,
        wan: Carrier,
        source: str,
        target: str,
        size_bytes: float,
        weight: float,
        priority: int,
        mbps: float | None,
        congestion: str | None,
    ) -> None:
        super().__init__(wan.env)
        self._wan = wan
        self.source, self.target, self.size_bytes = source, target, size_bytes
        self.weight, self.priority, self.mbps = weight, priority, mbps
        self.congestion = congestion
        self.started_s = wan.env.now / NS
        self.ended_s: float | None = None
        self.cancelled = False
        self.sent_bytes = 0.0
        self._id = wan.fabric.start_transfer(self.model(), size_bytes, wan.env.now)

    @property
    def id(self) -> int:
        """Number in the fabric, which may be given to another transfer once this one has ended."""
        return self._id

    @property
    def left_bytes(self) -> float:
        """Bytes that have not left the sender."""
        if self.ended_s is not None:
            return self.size_bytes - self.sent_bytes
        return self._wan.fabric.transfer_left(self._id, self._wan.env.now)

    @property
    def rate_mbps(self) -> float:
        """Its present rate in Mbit/s, without headers."""
        if self.ended_s is not None:
            return 0.0
        return self._wan.fabric.transfer_rate(self._id) / BYTES_PER_MBIT

    def cancel(self) -> float:
        """End it now; no effect if it has ended.

        Returns:
            The bytes that have left the sender.
        """
        if self.ended_s is None:
            sent = self._wan.fabric.cancel_transfer(self._id, self._wan.env.now)
            self.cancelled = True
            self.end(sent)
            self.tell()
        return self.sent_bytes

    def end(self, sent_bytes: float) -> None:
        """Note that it ends now, for the simulation; `tell` follows at this instant.

        Args:
            sent_bytes: Bytes that have left.
        """
        self.ended_s, self.sent_bytes = self._wan.env.now / NS, sent_bytes
        self._wan.ended(self)

    def tell(self) -> None:
        """Publish that it has ended and trigger the event, for the simulation."""
        self._wan.publish(self)
        self.succeed(self)

    def model(self) -> _core.TransferModel:
        """Describe the transfer for the fabric.

        Returns:
            Its way, connection and share.
        """
        pace = math.inf if self.mbps is None else self.mbps * BYTES_PER_MBIT
        link = self._wan.link_between(self.source, self.target, self.congestion)
        # Training has the classes from 0 to the last one.
        behind = self._wan.last_class if self.priority < 0 else 0
        rank = behind - self.priority
        return _core.TransferModel(link, self.weight, rank, pace)

    def __repr__(self) -> str:
        """Return its ends and its size."""
        return f"<Transfer {self.source} -> {self.target}, {self.size_bytes:g} bytes>"

    def _desc(self) -> Any:
        return repr(self)
