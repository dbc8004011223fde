"""Networks from what other tools measured between sites: iperf3, and AWS between its regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from geomx.calibrate.json_files import read_json
from geomx.calibrate.probe import Way
from geomx.calibrate.sites import Survey, short_form
from geomx.errors import ConfigError

Pair = tuple[str, str]


def of_iperf3(
    paths: Sequence[Path], sites: Mapping[str, str], hub: str, workers: int
) -> dict[str, Any]:
    """Build a network from results of ``iperf3 --client HOST --json``, of TCP.

    Of several results of one direction, the fastest counts. A direction without a result has that
    of the other one. The delay is half of the smallest round trip that the sender's kernel has
    seen, as later ones wait in the queues that the test fills itself.

    Args:
        paths: The files, of either direction (``--reverse`` too).
        sites: Name of the site by host, as iperf3 has them.
        hub: The site of the global servers.
        workers: How many every other site has.

    Returns:
        The content of a network file.

    Raises:
        ConfigError: A file is no such result, a host is of no site, or two sites have none between
            them.
    """
    mbps: dict[Pair, float] = {}
    rtt_s: dict[Pair, float] = {}
    for path in paths:
        pair, rate, round_trips = _iperf3(path, sites)
        mbps[pair] = max(rate, mbps.get(pair, 0.0))
        if round_trips:
            rtt_s[pair] = min([*round_trips, rtt_s.get(pair, float("inf"))])
    names = list(dict.fromkeys([hub, *sites.values()]))
    ways = {(a, b): _way((a, b), mbps, rtt_s) for a in names for b in names if a != b}
    speeds = {name: [1.0] * workers for name in names if name != hub}
    return short_form(Survey(ways), hub, speeds)


def _way(pair: Pair, mbps: Mapping[Pair, float], rtt_s: Mapping[Pair, float]) -> Way:
    back = pair[::-1]
    for figures, what in ((mbps, "result"), (rtt_s, "round-trip time")):
        if pair not in figures and back not in figures:
            remedy = f"lacks a {what} between {pair[0]} and {pair[1]}, in either direction"
            raise ConfigError("iperf3", "the files", remedy)
    rtt = min(figure for each in (pair, back) if (figure := rtt_s.get(each)) is not None)
    return Way(rtt_s=rtt, rtt_spread=0.0, mbps=mbps[pair if pair in mbps else back], loss=0.0)


def _iperf3(path: Path, sites: Mapping[str, str]) -> tuple[Pair, float, list[float]]:
    """Return the direction of a result, its Mbit/s, and the round trips in seconds, if known."""
    content = read_json("iperf3", path)
    try:
        if content.get("error"):
            raise ConfigError("iperf3", path, f"has no result: iperf3 says {content['error']!r}")
        start, end = content["start"], content["end"]
        if start["test_start"]["protocol"] != "TCP":
            raise ConfigError("iperf3", path, "is of UDP: bandwidths are taken from tests of TCP")
        connection = start["connected"][0]
        hosts = connection["local_host"], start["connecting_to"]["host"]
        called = connection["remote_host"]
        rate = end["sum_received"]["bits_per_second"] / 1e6
        trips = [stream["sender"].get("min_rtt") for stream in end["streams"]]
        backwards = bool(start["test_start"].get("reverse"))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        remedy = "is no result of iperf3 --client HOST --json"
        raise ConfigError("iperf3", path, remedy) from error
    if not rate > 0:
        raise ConfigError("iperf3", path, "has no bandwidth: nothing was received")
    here, there = (sites.get(host) for host in hosts)
    there = there or sites.get(called)
    if here is None or there is None or here == there:
        remedy = f"is between {hosts[0]} and {hosts[1]}: name both, --site NAME={hosts[0]} ..."
        raise ConfigError("iperf3", path, remedy)
    pair = (there, here) if backwards else (here, there)
    return pair, rate, [trip / 1e6 for trip in trips if trip]


def of_aws(path: Path, hub: str, mbps: float, workers: int) -> dict[str, Any]:
    """Build a network from ``aws ec2 get-aws-network-performance-data``.

    AWS publishes round-trip times between its regions, and no bandwidths.

    Args:
        path: The command's output, with a query for every pair of regions, in either direction.
        hub: The region of the global servers.
        mbps: Bandwidth of every region's access link, each way, in Mbit/s.
        workers: How many every other region has.

    Returns:
        The content of a network file.

    Raises:
        ConfigError: The file is no such output, lacks the hub, or lacks a pair of regions.
    """
    content = read_json("aws-latency", path)
    found: dict[Pair, list[float]] = {}
    try:
        for answer in content["DataResponses"]:
            values = [
                float(point["Value"]) for point in answer["MetricPoints"] if point["Status"] == "OK"
            ]
            found.setdefault((answer["Source"], answer["Destination"]), []).extend(values)
    except (KeyError, TypeError, ValueError) as error:
        remedy = "is no output of aws ec2 get-aws-network-performance-data"
        raise ConfigError("aws-latency", path, remedy) from error
    regions = sorted({region for pair in found for region in pair})
    if hub not in regions:
        remedy = f"must be a region of {path}: {', '.join(regions) or 'it has none'}"
        raise ConfigError("--hub", hub, remedy)
    delays: dict[str, dict[str, float]] = {}
    for index, a in enumerate(regions):
        for b in regions[index + 1 :]:
            trips = found.get((a, b), []) + found.get((b, a), [])
            if not trips:
                raise ConfigError("aws-latency", path, f"lacks a latency between {a} and {b}")
            delays.setdefault(a, {})[b] = round(median(trips) / 2, 4)
    access = {"uplink_mbps": mbps, "downlink_mbps": mbps}
    return {
        "name": "aws",
        "central": {"name": hub, "global_servers": 1, "workers": 0, **access},
        "parties": {name: {"workers": workers, **access} for name in regions if name != hub},
        "delay_ms": delays,
    }
