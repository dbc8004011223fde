"""Addresses of machines that may start later than this one."""

from __future__ import annotations

import socket
import time

from geomx.errors import GeomxError
from geomx.live.relay import Patience
from geomx.options.schema import RuntimeOptions


def await_name(address: str, patience_s: float) -> float:
    """Wait until the host name in ``host:port`` can be resolved, as its machine may start later.

    Returns:
        The remaining seconds of `patience_s`.

    Raises:
        GeomxError: It could not be resolved in time.
    """
    began_s = time.monotonic()
    patience = Patience(RuntimeOptions().failure_timeout_s)
    host, _, port = address.rpartition(":")
    while True:
        spent_s = time.monotonic() - began_s
        try:
            socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
            return patience_s - spent_s
        except (OSError, UnicodeError) as error:
            if spent_s >= patience_s:
                raise GeomxError(
                    f"cannot join the run: the scheduler's address {address} could not be resolved "
                    f"in {spent_s:.1f} s ({error}): check its spelling, "
                    "and this machine's name resolution"
                ) from error
        patience.waits("this node", lambda: f"the name in {address} to resolve")
        time.sleep(min(1.0, max(0.05, patience_s / 10)))
