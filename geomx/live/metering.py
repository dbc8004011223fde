"""Lets a member of a live run serve its metrics, if the experiment wants them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from geomx.live import access
from geomx.live.member import Member
from geomx.metrics.families import NodeMetrics
from geomx.metrics.server import Federation, serve


def meter(member: Member, tls: Path | None) -> NodeMetrics | None:
    """Serve the metrics of a member that has been wired; the scheduler serves those of all.

    Args:
        member: The member.
        tls: Folder of its certificates; None: no TLS.

    Returns:
        Its metrics, to be told of steps and long waits; None: the experiment wants none.

    Raises:
        ConfigError: The port is taken, or the address is beyond this machine and there is no TLS.
    """
    options, node, cluster = member.spec.metrics, member.node, member.spec.cluster
    if (port := options.port) is None:
        return None
    access.check("metrics.host", options.host, tls, insecure=False)
    loop = member.loop
    metrics = NodeMetrics(node, cluster, loop.stats, loop.residual_norms, lambda: loop.waits)
    files = None if access.is_loopback(options.host) else access.paths(tls)
    if node.role != "scheduler":
        serve(options.host, port + node.id, metrics, files)
        return metrics

    def addresses() -> Mapping[str, str]:
        found = {}
        for name, address in loop.roster.items():
            other = cluster.node(name)
            host = options.host if files is None else address.rpartition(":")[0]
            if other.role != "scheduler":
                found[name] = f"{host}:{port + other.id}"
        return found

    serve(options.host, port, Federation(metrics, addresses, files), files)
    return metrics
