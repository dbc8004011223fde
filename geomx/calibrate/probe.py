"""Probes that measure the network between sites: round trip, bandwidth, loss.

``geomx calibrate --serve HOST:PORT`` is a probe: it answers other probes, and measures the path to
another one on request (`sites` makes such requests). Connections are like those of the runtime: TCP
without Nagle's algorithm, under the runtime's default congestion control if the kernel has it, and
UDP to the same host. If the probe has a token (environment variable GEOMX_TOKEN), as it must on
addresses beyond this machine, callers prove that they know it by an HMAC of their request and of a
number that the probe has just drawn.

* Round trip: the median of `ECHOES` small messages that are sent back; half of it is the delay.
* Bandwidth: transfers over one connection, growing until one takes `ENOUGH_S`; the bytes after the
  first quarter over the time since then, to exclude slow start. A window that is too small for the
  path limits the result, as it would limit a run.
* Loss: the fraction of `DATAGRAMS` datagrams, sent at a fifth of that bandwidth, that is lost. Over
  slow paths there are fewer, which take `TIMEOUT_S` to send.
* Share: the rate of one connection among others requested at the same time, over the last three
  quarters of `SHARE_S`. The sum of such shares is the capacity of what they have in common.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import socket
import socketserver
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

from geomx.errors import ConfigError, GeomxError
from geomx.live import access
from geomx.live.descriptors import readable
from geomx.options.schema import TcpOptions

ECHOES = 20
FIRST_BYTES, MOST_BYTES = 1 << 18, 1 << 28
ENOUGH_S = 1.0
DATAGRAMS, FEWEST_DATAGRAMS, DATAGRAM_BYTES = 400, 20, 1200
TIMEOUT_S = 30.0
CHUNK = bytes(1 << 16)
LATE_S = 0.5  # of silence, after the last datagram has been sent
SHARE_S = 4.0  # the first quarter is for connections to find their rates


@dataclass(frozen=True)
class Way:
    """Measurements of the path from one site to another.

    Attributes:
        rtt_s: Median round-trip time, seconds.
        rtt_spread: Half its interquartile range over the median.
        mbps: Payload rate of one connection, Mbit/s.
        loss: Fraction of datagrams lost, 0..1.
    """

    rtt_s: float
    rtt_spread: float
    mbps: float
    loss: float


# ---- a site's probe ----


class Probe(socketserver.ThreadingTCPServer):
    """A server that answers other probes and measures paths to them on request.

    Args:
        host: Address to listen on.
        port: Port to listen on; 0: any free one.
        token: Secret that callers must know; empty: none.
    """

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, host: str, port: int, token: str = "") -> None:
        self.token = token
        super().__init__((host, port), _Handler)


class _Handler(socketserver.StreamRequestHandler):
    server: Probe
    disable_nagle_algorithm = True

    def handle(self) -> None:
        """Serve one connection: a line with the request, then the exchange that it needs."""
        self.connection.settimeout(TIMEOUT_S)
        _use_congestion_control(self.connection)
        with contextlib.suppress(OSError, ValueError, KeyError):
            challenge = secrets.token_hex(16)
            _say(self.wfile, {"challenge": challenge})
            order = json.loads(self.rfile.readline(4096))
            proof = _proof(self.server.token, challenge, order["do"], order["target"])
            if not hmac.compare_digest(str(order["proof"]), proof):
                _say(self.wfile, {"error": "GEOMX_TOKEN differs from the probe's"})
                return
            serve_one = {
                "echo": self._echo, "sink": self._sink, "datagrams": self._datagrams,
                "pour": self._pour,
            }  # fmt: skip
            if order["do"] in _MEASURES:
                self._measure(_MEASURES[order["do"]], order["target"])
            elif order["do"] in serve_one:
                serve_one[order["do"]]()

    def _echo(self) -> None:
        while line := self.rfile.readline(4096):
            self.wfile.write(line)

    def _sink(self) -> None:
        """Receive transfers, each announced by its length, and report the rate of each."""
        while line := self.rfile.readline(4096):
            whole = left = min(int(line), MOST_BYTES)
            quarter_s, began = None, 0
            while left > 0:
                chunk = self.rfile.read1(min(left, len(CHUNK)))
                if not chunk:
                    return
                left -= len(chunk)
                if quarter_s is None and left <= 0.75 * whole:
                    quarter_s, began = time.perf_counter(), left
            seconds = time.perf_counter() - (quarter_s or 0.0)
            _say(self.wfile, {"bytes": began, "seconds": max(seconds, 1e-9)})

    def _datagrams(self) -> None:
        """Count the datagrams that arrive at a new port.

        The sender says how many it has sent when it has sent the last one. Silence does not tell
        that: the first one takes a round trip to come, and slow paths have long gaps between two.
        """
        with socket.socket(self.connection.family, socket.SOCK_DGRAM) as port:
            port.bind((self.connection.getsockname()[0], 0))
            _say(self.wfile, {"port": port.getsockname()[1]})
            count, sent = 0, -1  # not said yet
            deadline = time.monotonic() + 3 * TIMEOUT_S
            while sent < 0 or count < sent:
                sources = [port.fileno(), *([self.connection.fileno()] if sent < 0 else [])]
                silence_s = 2 * TIMEOUT_S if sent < 0 else LATE_S
                ready = readable(sources, min(silence_s, deadline - time.monotonic()))
                if not ready:
                    break
                if port.fileno() in ready:
                    count += len(port.recv(2 * DATAGRAM_BYTES)) == DATAGRAM_BYTES
                else:
                    sent = int(json.loads(self.rfile.readline(4096))["sent"])
            _say(self.wfile, {"count": count})

    def _pour(self) -> None:
        """Receive until the stream ends, and report the rate while others were sending."""
        count, began = 0, None
        while chunk := self.rfile.read1(len(CHUNK)):
            began = began or time.perf_counter()
            if SHARE_S / 4 <= time.perf_counter() - began < SHARE_S:
                count += len(chunk)
        _say(self.wfile, {"mbps": count * 8e-6 / (0.75 * SHARE_S)})

    def _measure(self, figure: Callable[[str, str], dict[str, Any]], target: str) -> None:
        try:
            _say(self.wfile, figure(target, self.server.token))
        except GeomxError as error:
            _say(self.wfile, {"error": str(error)})


def serve(address: str, show: Callable[[Any], None]) -> None:
    """Run a probe until Ctrl-C.

    Args:
        address: ``HOST:PORT`` to listen on.
        show: Called with a line about the address in use.

    Raises:
        ConfigError: The address is malformed or not available, or others reach it without a token.
    """
    host, port = address_of(address, "--serve")
    if not _token() and not access.is_loopback(host):
        remedy = f"is beyond this machine, and needs {access.TOKEN}: a secret that all probes have"
        raise ConfigError("--serve", address, remedy)
    try:
        probe = Probe(host, port, _token())
    except OSError as error:
        raise ConfigError("--serve", address, f"is not available: {error.strerror}") from error
    with probe:
        show(f"probe at {host}:{probe.server_address[1]}; Ctrl-C ends it")
        with contextlib.suppress(KeyboardInterrupt):
            probe.serve_forever()


# ---- measuring ----


def measure(target: str, token: str = "") -> Way:
    """Measure the path from here to another probe.

    Args:
        target: The other probe, ``HOST:PORT``.
        token: Its token; empty: none.

    Raises:
        GeomxError: The probe could not be reached, or refused.
    """
    with _complaining(f"the probe at {target} could not be measured"):
        with _connected(target, token, "echo") as (_, stream):
            echoes = [_echo(stream) for _ in range(ECHOES + 1)][1:]
        rtt_s = statistics.median(echoes)
        low, _, high = statistics.quantiles(echoes, n=4)
        mbps = _bandwidth(target, token)
        return Way(rtt_s, (high - low) / 2 / rtt_s, mbps, _loss(target, token, mbps))


def _echo(stream: BinaryIO) -> float:
    began = time.perf_counter()
    _say(stream, {})
    _hear(stream)
    return time.perf_counter() - began


def _bandwidth(target: str, token: str) -> float:
    with _connected(target, token, "sink") as (_, stream):
        size = FIRST_BYTES
        while True:
            stream.write(f"{size}\n".encode())
            for _ in range(size // len(CHUNK)):
                stream.write(CHUNK)
            stream.flush()
            answer = _hear(stream)
            mbps: float = answer["bytes"] * 8e-6 / answer["seconds"]
            if answer["seconds"] >= ENOUGH_S or size >= MOST_BYTES:
                return mbps
            aim = size * 1.5 * ENOUGH_S / answer["seconds"]
            size = min(MOST_BYTES, len(CHUNK) * round(min(max(aim, 2 * size), 16 * size) / 65536))


def _loss(target: str, token: str, mbps: float) -> float:
    interval_s = DATAGRAM_BYTES * 8e-6 / (0.2 * mbps)
    sent = max(FEWEST_DATAGRAMS, min(DATAGRAMS, int(TIMEOUT_S / interval_s)))
    with _connected(target, token, "datagrams") as (connection, stream):
        host = connection.getpeername()[0]
        port = int(_hear(stream)["port"])
        with socket.socket(connection.family, socket.SOCK_DGRAM) as datagrams:
            next_s = time.perf_counter()
            for _ in range(sent):
                datagrams.sendto(bytes(DATAGRAM_BYTES), (host, port))
                next_s += interval_s
                time.sleep(max(0.0, next_s - time.perf_counter()))
        _say(stream, {"sent": sent})
        return max(0.0, 1 - int(_hear(stream)["count"]) / sent)


def share(target: str, token: str = "") -> float:
    """Measure the rate of one connection to another probe, while others may be sending.

    Args:
        target: The other probe, ``HOST:PORT``.
        token: Its token; empty: none.

    Returns:
        Mbit/s.

    Raises:
        GeomxError: The probe could not be reached, or refused.
    """
    complaint = f"the probe at {target} could not be measured"
    with _complaining(complaint), _connected(target, token, "pour") as (connection, stream):
        with contextlib.suppress(OSError, AttributeError):
            # Otherwise a slow path would have to carry a whole send buffer before the answer.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, len(CHUNK))
        until = time.monotonic() + SHARE_S
        while time.monotonic() < until:
            connection.sendall(CHUNK)
        connection.shutdown(socket.SHUT_WR)
        return float(_hear(stream)["mbps"])


_MEASURES: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "measure": lambda target, token: asdict(measure(target, token)),
    "share": lambda target, token: {"mbps": share(target, token)},
}
"""Measurements that a probe makes towards another on request."""


def ask(probe: str, order: str, target: str) -> dict[str, Any]:
    """Have a probe measure the path to another.

    Args:
        probe: The measuring probe, ``HOST:PORT``.
        order: A key of `_MEASURES`.
        target: The other probe, ``HOST:PORT``.

    Returns:
        The measurement, as the probe sent it.

    Raises:
        GeomxError: The probe could not be reached, refused, or could not reach the other.
    """
    connected = _connected(probe, _token(), order, target)
    with _complaining(f"the probe at {probe}"), connected as (_, stream):
        return _hear(stream)


def greet(probe: str) -> None:
    """Check that a probe can be reached and has the same token.

    Args:
        probe: The probe, ``HOST:PORT``.

    Raises:
        GeomxError: It could not be reached, or refused.
    """
    with _complaining(f"the probe at {probe}"), _connected(probe, _token(), "echo") as (_, stream):
        _echo(stream)


# ---- connections ----


@contextlib.contextmanager
def _complaining(complaint: str) -> Iterator[None]:
    """Turn errors of connections and of answers into a `GeomxError` of one sentence."""
    try:
        yield
    except (OSError, ValueError, KeyError, GeomxError) as error:
        raise GeomxError(f"{complaint}: {error}") from error


@contextlib.contextmanager
def _connected(
    probe: str, token: str, order: str, target: str = ""
) -> Iterator[tuple[socket.socket, Any]]:
    host, port = address_of(probe, "probe")
    patience_s = TIMEOUT_S * (4 if order in _MEASURES else 1)
    with socket.create_connection((host, port), timeout=patience_s) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _use_congestion_control(connection)
        with connection.makefile("rwb") as stream:
            challenge = str(_hear(stream)["challenge"])
            proof = _proof(token, challenge, order, target)
            _say(stream, {"proof": proof, "do": order, "target": target})
            yield connection, stream


def _proof(token: str, challenge: str, order: str, target: str) -> str:
    """Return the HMAC by which a caller proves that it knows the token, without sending it."""
    message = json.dumps([challenge, order, target]).encode()
    return hmac.new(token.encode(), message, "sha256").hexdigest()


def _use_congestion_control(connection: socket.socket) -> None:
    """Use the runtime's default congestion control if the kernel has it."""
    with contextlib.suppress(OSError, AttributeError):
        name = TcpOptions().congestion.encode()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)


def _say(stream: Any, content: Mapping[str, Any]) -> None:
    stream.write(json.dumps(content).encode() + b"\n")
    stream.flush()


def _hear(stream: Any) -> dict[str, Any]:
    line = stream.readline(4096)
    if not line:
        raise OSError("the probe closed the connection")
    answer = dict(json.loads(line))
    if "error" in answer:
        raise GeomxError(answer["error"])
    return answer


def address_of(text: str, key: str) -> tuple[str, int]:
    """Split ``HOST:PORT``.

    Args:
        text: The address; brackets around the host are removed.
        key: Name of the option in error messages.

    Returns:
        Host and port.

    Raises:
        ConfigError: `text` has another form.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(key, text, "must be HOST:PORT")
    return host.strip("[]"), int(port)


def _token() -> str:
    return os.environ.get(access.TOKEN, "")
