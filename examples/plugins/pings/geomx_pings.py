"""Networks from tables of round-trip times, as clouds and measurement sites publish them.

A file is CSV: the first line names the sites, every further line is a site and its round trips to
all of them in milliseconds; an empty cell is taken from the other direction.
``network=TABLE.pings`` reads it. The options set the number of workers and the bandwidth of each
site; the hub is the site that is named, or else the one with the smallest maximum round trip.

    site,paris,tokyo,ohio
    paris,,225,90
    tokyo,225,,
    ohio,91,150,
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import geomx

geomx_api = "2.0"

EXAMPLE = [["site", "paris", "tokyo", "ohio"], ["paris", "", "225", "90"], ["tokyo", "", "", "150"]]


@dataclass(frozen=True)
class PingsConfig:
    """Options of the reader; ``network.workers=4`` on the command line."""

    file: str = ""
    """The table; empty: three sites as an example."""
    hub: str = ""
    """The site of the global server; empty: the most central site."""
    workers: int = 2
    """Workers at every site, 1 or more."""
    mbps: float = 200.0
    """Bandwidth of every site's access link, each way, more than 0."""

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise geomx.ConfigError("workers", self.workers, "must be 1 or more")
        if not self.mbps > 0:
            raise geomx.ConfigError("mbps", self.mbps, "must be more than 0")


def read(path: str) -> dict[tuple[str, str], float]:
    """Return round trips in milliseconds by pair of sites, equal for both directions.

    Args:
        path: The file; empty: the example.

    Raises:
        ConfigError: The file is missing, or a cell is not a number.
    """
    rows = EXAMPLE
    if path:
        try:
            with Path(path).open(newline="", encoding="utf-8") as file:
                rows = [row for row in csv.reader(file) if row]
        except OSError as error:
            raise geomx.ConfigError("file", path, f"cannot be read: {error.strerror}") from error
    sites = [name.strip() for name in rows[0][1:]] if rows else []
    trips: dict[tuple[str, str], float] = {}
    for here, *cells in rows[1:]:
        for there, cell in zip(sites, cells, strict=False):
            if cell.strip() and there != here.strip():
                try:
                    trips[here.strip(), there] = float(cell)
                except ValueError as error:
                    remedy = f"{here} to {there} is {cell!r}, which is no number of milliseconds"
                    raise geomx.ConfigError("file", path, remedy) from error
    whole = {}
    for one in sites:
        for other in sites:
            if one < other:
                known = [trips[pair] for pair in ((one, other), (other, one)) if pair in trips]
                if not known:
                    raise geomx.ConfigError("file", path, f"nothing between {one} and {other}")
                whole[one, other] = whole[other, one] = sum(known) / len(known)
    if not whole:
        raise geomx.ConfigError("file", path, "names fewer than two sites")
    return whole


def pings(config: PingsConfig) -> dict[str, Any]:
    """Sites from a table of round-trip times (CSV, milliseconds)."""
    trips = read(config.file)
    sites = sorted({one for one, _ in trips})
    central = min(sites, key=lambda hub: max(trips[hub, site] for site in sites if site != hub))
    hub = config.hub or central
    if hub not in sites:
        raise geomx.ConfigError("hub", hub, f"one of {', '.join(sites)}")
    access = {"uplink_mbps": config.mbps, "downlink_mbps": config.mbps}
    parties = [site for site in sites if site != hub]
    return {
        "name": Path(config.file).stem if config.file else "pings",
        "central": {"name": hub, "workers": config.workers, **access},
        "parties": {site: {"workers": config.workers, **access} for site in parties},
        "delay_ms": {
            one: {other: trips[one, other] / 2 for other in sites if one < other}
            for one in sites[:-1]
        },
    }


pings.suffixes = (".pings",)  # type: ignore[attr-defined]


@geomx.hookimpl
def geomx_register(register) -> None:
    """Register ``network=pings``, and files that end in .pings."""
    register("network", "pings", PingsConfig, pings)
