"""``geomx import``: what other tools have measured becomes workloads and networks."""

from __future__ import annotations

import argparse
from pathlib import Path

from geomx import calibrate
from geomx.calibrate import kineto, records
from geomx.cli.calibrate import keep
from geomx.errors import ConfigError
from geomx.network.validators import LEAST_MBPS, MOST_MBPS
from geomx.terminal.output import show

HEADER = "# Written by `geomx import {}`; use it as {}.\n"
WORKLOAD, NETWORK = "workload=profile workload.path=FILE", "network=FILE"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    trace = kinds.add_parser(
        "kineto",
        help="a workload from a trace of PyTorch's profiler",
        description="A workload from a trace of PyTorch's profiler, recorded with shapes.",
    )
    trace.add_argument("trace", type=Path, metavar="TRACE.json", help="export_chrome_trace's file")
    iperf3 = kinds.add_parser(
        "iperf3",
        help="a network from results of iperf3 --json",
        description="A network from results of iperf3 --client HOST --json, of TCP.",
    )
    iperf3.add_argument("results", nargs="+", type=Path, metavar="RESULT.json")
    iperf3.add_argument(
        "--site", action="append", default=[], metavar="NAME=HOST",
        help="a site and its host in the results; the first has the global servers",
    )  # fmt: skip
    latency = kinds.add_parser(
        "aws-latency",
        help="a network from AWS's latencies between regions",
        description="A network from the output of aws ec2 get-aws-network-performance-data.",
    )
    latency.add_argument("latencies", type=Path, metavar="FILE.json")
    latency.add_argument("--hub", required=True, help="region of the global servers")
    latency.add_argument(
        "--mbps", type=float, required=True, help="of each region's access link: AWS tells none"
    )
    for network in (iperf3, latency):
        network.add_argument(
            "--workers", type=int, default=1, metavar="N", help="of every other site (1)"
        )
    for kind, name in (
        (trace, "workload.yaml"),
        (iperf3, "network.yaml"),
        (latency, "network.yaml"),
    ):
        kind.add_argument(
            "--output", type=Path, default=Path(name), metavar="FILE", help=f"the result ({name})"
        )


def main(options: argparse.Namespace) -> None:
    """Write the file.

    Raises:
        ConfigError: A given file is missing or is not of that kind, or an argument is invalid.
    """
    use = NETWORK
    if options.kind == "kineto":
        content, said = kineto.workload_of(options.trace)
        show(said)
        use = WORKLOAD
    elif options.workers < 1:
        raise ConfigError("--workers", options.workers, "must be at least 1")
    elif options.kind == "aws-latency" and not LEAST_MBPS <= options.mbps <= MOST_MBPS:
        remedy = f"must be at least {LEAST_MBPS:f} and at most {MOST_MBPS:,.0f}"
        raise ConfigError("--mbps", options.mbps, remedy)
    elif options.kind == "iperf3":
        sites = _sites(options.site)
        hub = next(iter(sites.values()))
        content = records.of_iperf3(options.results, sites, hub, options.workers)
    else:
        given = options.latencies, options.hub, options.mbps, options.workers
        content = records.of_aws(*given)
    keep(options.output)
    calibrate.write(content, options.output, HEADER.format(options.kind, use))
    show(use.replace("FILE", str(options.output)))


def _sites(given: list[str]) -> dict[str, str]:
    """Return the names of sites by host, in the given order."""
    sites: dict[str, str] = {}
    for each in given:
        name, _, host = each.partition("=")
        if not name or not host or host in sites:
            raise ConfigError("--site", each, "must be NAME=HOST, each host once")
        sites[host] = name
    if len(set(sites.values())) < 2:
        raise ConfigError("--site", " ".join(given), "name two sites or more: --site NAME=HOST")
    return sites
