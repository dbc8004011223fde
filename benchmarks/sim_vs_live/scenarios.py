"""What happens during the runs of a place, drawn by the seed: a study with ``--scenarios``.

Two or three events per place begin in the first half of a run: the bandwidth between a party and
the hub changes, a worker is slow for a while, a process is stopped, a path is cut for less than the
time of suspicion, or (``emulate=netns``) others send over a party's link. Both modes get the same
file for ``scenario=``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import yaml

from sim_vs_live.draw import Place

Event = dict[str, Any]
HUB = "hub"
OUTAGE_S = (0.2, 1.0)
"""Duration of cuts and stops, below the time of suspicion by default."""


def events(seed: int, place: Place, seconds: float, emulate: str) -> list[Event]:
    """Return what happens in every run of `place`.

    Args:
        seed: Of the study.
        place: The place.
        seconds: Target duration of a run.
        emulate: How live runs emulate the network; only ``netns`` has traffic of others.
    """
    chance = Random(f"scenario/{seed}/{place.number}")
    kinds = [_bandwidth, _slow, _pause, _cut, *([_traffic] if emulate == "netns" else [])]
    chosen = chance.sample(kinds, chance.choice((2, 3)))
    drawn = []
    for kind in chosen:
        at_s = round(chance.uniform(0.1, 0.5) * seconds, 2)
        party = chance.choice(list(place.network["parties"]))
        drawn.append(
            {"at_s": at_s, **kind(chance, party, place.network["parties"][party], seconds)}
        )
    return drawn


def write_scenario(drawn: list[Event], path: Path) -> None:
    """Write events to `path`, as a file for ``scenario=``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(drawn, sort_keys=False), encoding="utf-8")


def _mbps(chance: Random, party: Mapping[str, Any]) -> float:
    """A share of the party's narrower direction."""
    narrow = min(party["uplink_mbps"], party["downlink_mbps"])
    return round(chance.uniform(0.3, 0.8) * narrow, 1)


def _bandwidth(chance: Random, name: str, party: Mapping[str, Any], seconds: float) -> Event:
    return {"set": [name, HUB], "mbps": _mbps(chance, party)}


def _traffic(chance: Random, name: str, party: Mapping[str, Any], seconds: float) -> Event:
    ends = chance.choice(([name, HUB], [HUB, name]))
    return {"traffic": ends, "mbps": _mbps(chance, party), "for_s": round(seconds / 3, 2)}


def _slow(chance: Random, name: str, party: Mapping[str, Any], seconds: float) -> Event:
    times = round(chance.uniform(1.5, 3.0), 1)
    return {"slow": _worker(chance, name, party), "times": times, "for_s": round(seconds / 3, 2)}


def _pause(chance: Random, name: str, party: Mapping[str, Any], seconds: float) -> Event:
    for_s = round(chance.uniform(*OUTAGE_S), 2)
    return {"pause": _worker(chance, name, party), "for_s": for_s}


def _cut(chance: Random, name: str, party: Mapping[str, Any], seconds: float) -> Event:
    return {"cut": [name, HUB], "for_s": round(chance.uniform(*OUTAGE_S), 2)}


def _worker(chance: Random, name: str, party: Mapping[str, Any]) -> str:
    return f"{name}/worker{chance.randrange(party['workers'])}"
