"""Lets a member of a live run serve its metrics, if the experiment wants them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from geomx.errors import ConfigError
from geomx.live import access
from geomx.live.member import Member
from geomx.metrics.families import NodeMetrics
from geomx.metrics.server import Federation, serve
from geomx.terminal.log import say


def meter(member: Member, tls: Path | None) -> NodeMetrics | None:
    """Serve the metrics of a member that has been wired; the scheduler serves those of all.

    A member that goes on in another one's place does so without metrics if the port is taken: the
    other's process may still exist, paused or cut off, and must not end the run by its port.

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
    here = f"[{options.host}]" if ":" in options.host else options.host

    def addresses() -> Mapping[str, str]:
        found = {}
        for name, address in loop.roster.items():
            other = cluster.node(name)
            host = here if files is None else address.rpartition(":")[0]
            if other.role != "scheduler":
                found[name] = f"{host}:{port + other.id}"
        return found

    served = Federation(metrics, addresses, files) if node.role == "scheduler" else metrics
    try:
        serve(options.host, port + node.id, served, files)
    except ConfigError as error:
        if not member.resumed:
            raise
        say(f"the metrics of {node.name} are not served: {error}", "warning", node.name)
    return metrics
