"""A survey of all sites by their probes, and the network file that results.

`survey` first contacts the probes of all sites, so that a missing one is noticed at once, and then
has them measure one path at a time, so that measurements do not disturb each other. A single path
says little about a site's access link, however, if the others are narrower or a window ends before
the link does; therefore each site in turn then sends to all others at once, and all others to it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from geomx.calibrate.probe import Way, address_of, ask, greet
from geomx.cluster import Cluster
from geomx.errors import ConfigError, GeomxError
from geomx.network.links import PAYLOAD_SHARE
from geomx.terminal.progress import progress


@dataclass(frozen=True)
class Survey:
    """Measurements of the probes.

    Attributes:
        ways: The path from one site to another, measured alone, by pair of sites.
        up: Payload rate from a site to all others at once, Mbit/s, by site.
        down: Payload rate from all others at once to a site, Mbit/s, by site.
    """

    ways: dict[tuple[str, str], Way] = field(default_factory=dict)
    up: dict[str, float] = field(default_factory=dict)
    down: dict[str, float] = field(default_factory=dict)


def survey(sites: Sequence[str], cluster: Cluster) -> Survey:
    """Measure all paths between the sites of a network.

    Args:
        sites: ``NAME=HOST:PORT``, two or more.
        cluster: The network with these sites.

    Returns:
        The measurements.

    Raises:
        ConfigError: A site is malformed or given twice, or the sites are not those of `cluster`.
        GeomxError: A probe could not be reached, or could not reach another.
    """
    addresses: dict[str, str] = {}
    for site in sites:
        name, _, address = site.partition("=")
        if not name or not address:
            raise ConfigError("--probe", site, "must be SITE=HOST:PORT")
        address_of(address, "--probe")
        if name in addresses:
            raise ConfigError("--probe", site, "names a site that was given before")
        addresses[name] = address
    if len(addresses) < 2:
        raise ConfigError("--probe", " ".join(sites), "needs two sites or more")
    wanted = _sites_of(cluster)
    if set(wanted) != set(addresses):
        remedy = f"must be the sites of the network: {', '.join(wanted)}"
        raise ConfigError("--probe", " ".join(addresses), remedy)
    for address in addresses.values():
        greet(address)
    pairs = [(source, target) for source in addresses for target in addresses if source != target]
    crowded = list(addresses) if len(addresses) > 2 else []
    found = Survey()
    with progress(len(pairs) + 2 * len(crowded), "probing") as advance:
        for pair in pairs:
            found.ways[pair] = _way(*(addresses[site] for site in pair))
            advance(1)
        for site in crowded:
            here = addresses[site]
            others = [address for address in addresses.values() if address != here]
            found.up[site] = _at_once([(here, other) for other in others])
            advance(1)
            found.down[site] = _at_once([(other, here) for other in others])
            advance(1)
    return found


def _sites_of(cluster: Cluster) -> list[str]:
    """Return the site of the global servers, then those of the parties."""
    parties = (party.name for party in cluster.parties)
    return list(dict.fromkeys([cluster.global_servers[0].party, *parties]))


def _way(source: str, target: str) -> Way:
    try:
        way = Way(**ask(source, "measure", target))
    except TypeError as error:
        raise GeomxError(f"the probe at {source} runs another version of geomx: {error}") from error
    if way.loss < 1:
        return way
    told = f"no datagram from {source} came to {target}; UDP is blocked, perhaps"
    warnings.warn(f"{told}: the loss of that way counts as 0", stacklevel=2)
    return replace(way, loss=0.0)


def _at_once(ways: Sequence[tuple[str, str]]) -> float:
    """Return the total rate of simultaneous connections over `ways`, in Mbit/s."""
    with ThreadPoolExecutor(len(ways)) as threads:
        answers = threads.map(lambda way: ask(way[0], "share", way[1]), ways)
        return sum(float(answer["mbps"]) for answer in answers)


def network_of(found: Survey, cluster: Cluster) -> dict[str, Any]:
    """Build a network file in the short form from a survey.

    Args:
        found: The measurements.
        cluster: Supplies the parties, their workers and the number of global servers.

    Returns:
        The content of the file.
    """
    speeds = {party.name: [each.speed for each in party.workers] for party in cluster.parties}
    return short_form(found, _sites_of(cluster)[0], speeds, len(cluster.global_servers))


def short_form(
    found: Survey, hub: str, speeds: Mapping[str, Sequence[float]], servers: int = 1
) -> dict[str, Any]:
    """Build a network file in the short form.

    A site's access link is as fast as the fastest path that uses it, or as all of them at once if
    that is more; paths have a bandwidth of their own as well. Measured rates are those of the
    payload, and links are faster by the overhead of frames.

    Args:
        found: The measurements.
        hub: The site of the global servers.
        speeds: By party, those of its workers.
        servers: How many global servers there are.

    Returns:
        The content of the file.
    """
    wanted = list(dict.fromkeys([hub, *speeds]))

    def mbps(payload: float) -> float:
        link = payload / PAYLOAD_SHARE
        return round(link, 1) if link >= 10 else float(f"{link:.3g}")

    def site(name: str) -> dict[str, Any]:
        up = [way.mbps for (source, _), way in found.ways.items() if source == name]
        down = [way.mbps for (_, target), way in found.ways.items() if target == name]
        access = {
            "uplink_mbps": mbps(max(*up, found.up.get(name, 0.0))),
            "downlink_mbps": mbps(max(*down, found.down.get(name, 0.0))),
        }
        here = [*speeds.get(name, ())]
        return {"workers": len(here), **({"speed": here} if here else {}), **access}

    def between(figure: Callable[[Way], float]) -> Mapping[str, Mapping[str, float]]:
        return {a: {b: figure(found.ways[a, b]) for b in wanted if b != a} for a in wanted}

    return {
        "name": "measured",
        "central": {"name": hub, "global_servers": servers, **site(hub)},
        "parties": {name: site(name) for name in speeds if name != hub},
        "delay_ms": between(lambda way: round(way.rtt_s / 2 * 1e3, 4)),
        "mbps": between(lambda way: mbps(way.mbps)),
        "loss": between(lambda way: round(way.loss, 5)),
    }
