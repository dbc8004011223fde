"""Serves the metrics of a node by HTTP; the scheduler also serves those of all other nodes.

Node n of a job (scheduler, global servers, parties, standbys; n from 0) serves at
``metrics.port + n``, so that the nodes of one machine need no configuration each. Beyond this
machine the connection uses TLS with the certificates of the job on both sides, as members do.
"""

from __future__ import annotations

import atexit
import ssl
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from geomx.errors import ConfigError, GeomxError
from geomx.metrics.families import NODE_INFO

NODE_TIMEOUT_S = 1.0
"""Time after which a node that does not answer the scheduler counts as down."""

TIMEOUT_S = 5.0
"""Limit on the wait for an answer; the scheduler's takes `NODE_TIMEOUT_S` if nodes are silent."""

MOST_AT_ONCE = 256
"""Nodes that the scheduler asks at the same time, so that many silent ones take no longer."""

Files = tuple[str, str, str]
"""Paths of the authority's certificate, the node's certificate, and its key."""


class Unserved(GeomxError):  # noqa: N818 (says what is the case)
    """Nothing listens at an address of metrics: the process has ended, or has not begun."""


def fetch(address: str, files: Files | None = None, timeout_s: float = TIMEOUT_S) -> list[Metric]:
    """Return the metrics that are served at an address.

    Args:
        address: ``host:port``.
        files: For TLS; None: HTTP without encryption.
        timeout_s: Limit on the wait for the connection, and for each part of the answer.

    Raises:
        Unserved: Nothing listens there.
        GeomxError: There is no answer, or it is no page of metrics of geomx.
    """
    url = f"{'http' if files is None else 'https'}://{address}/metrics"
    try:
        with _directly(files).open(url, timeout=timeout_s) as answer:
            text = answer.read().decode("utf-8")
        families = list(text_string_to_metric_families(text))
    except (OSError, ValueError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        if not isinstance(reason, ConnectionRefusedError):
            raise GeomxError(f"no metrics at {url}: {reason}") from error
        raise Unserved(
            f"no metrics at {url}: nothing listens there; give the metrics.port of a live job that "
            "is running"
        ) from error
    if all(family.name != NODE_INFO for family in families):
        raise GeomxError(
            f"no metrics of geomx at {url}, where another program serves its own: give the "
            "metrics.port of the job"
        )
    return families


def _directly(files: Files | None) -> urllib.request.OpenerDirector:
    """Return what opens addresses without the proxies of the environment, which are for others."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if files is not None:
        handlers.append(urllib.request.HTTPSHandler(context=_client(files)))
    return urllib.request.build_opener(*handlers)


def _client(files: Files) -> ssl.SSLContext:
    authority, certificate, key = files
    context = ssl.create_default_context(cafile=authority)
    context.check_hostname = False  # certificates name nodes, not machines
    context.load_cert_chain(certificate, key)
    return context


class Federation(Collector):
    """The metrics of a node and of others, which are fetched when it is asked.

    Args:
        own: Of the node itself.
        addresses: Returns the addresses of the others' metrics by name.
        files: For TLS.
    """

    def __init__(
        self, own: Collector, addresses: Callable[[], Mapping[str, str]], files: Files | None
    ) -> None:
        self._own, self._addresses, self._files = own, addresses, files

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of all nodes, and ``geomx_up``: 0 for those that are silent."""
        up = GaugeMetricFamily("geomx_up", "Whether a node serves its metrics.", labels=["node"])
        families = {family.name: family for family in self._own.collect()}
        addresses = self._addresses()
        with ThreadPoolExecutor(min(MOST_AT_ONCE, max(1, len(addresses)))) as pool:
            for name, answer in zip(
                addresses, pool.map(self._ask, addresses.values()), strict=True
            ):
                up.add_metric([name], float(answer is not None))
                for family in answer or ():
                    if (known := families.setdefault(family.name, family)) is not family:
                        known.samples += family.samples
        yield up
        yield from families.values()

    def _ask(self, address: str) -> list[Metric] | None:
        try:
            return fetch(address, self._files, NODE_TIMEOUT_S)
        except GeomxError:
            return None


def serve(host: str, port: int, metrics: Collector, files: Files | None) -> WSGIServer:
    """Serve metrics until the process ends.

    Args:
        host: Address to listen on.
        port: Its port.
        metrics: What is served.
        files: For TLS, which also authenticates those that ask; None: no TLS.

    Returns:
        The server.

    Raises:
        ConfigError: The port cannot be opened.
    """
    registry = CollectorRegistry()
    registry.register(metrics)
    authority, certificate, key = files or (None, None, None)
    try:
        server, _ = start_http_server(
            port,
            host,
            registry,
            certfile=certificate,
            keyfile=key,
            client_cafile=authority,
            client_auth_required=files is not None,
        )
    except OSError as error:
        remedy = f"{host}:{port} cannot be opened ({error.strerror}); choose another first port"
        raise ConfigError("metrics.port", port, remedy) from error
    # The server's thread never ends, and what it refers to, such as a loop, was never destroyed.
    atexit.register(registry.unregister, metrics)
    return server
