"""The experiments of a study: places (a WAN and a model) and combinations of algorithms in each.

Everything follows from the seed and the number of the place or combination, so that more of them
can be added later without changing existing ones. A place is redrawn if plain synchronous training
would take longer than `LONGEST_S` per iteration, or one live run would take minutes; a combination
if it is refused, or exists already at the place.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp, hypot, log
from pathlib import Path
from random import Random
from typing import Any

import yaml

import geomx
from geomx.errors import ConfigError
from geomx.plugin.registration import DEFAULT_SYNC

PER_PLACE = 4
LONGEST_S = 1.5
LEAST_ITERATIONS, MOST_ITERATIONS = 12, 100
LEARNS = ("workload=digits_cnn",)

SYNCS: Mapping[str, Mapping[str, Sequence[Any]]] = {
    DEFAULT_SYNC: {},
    "hfa": {"k1": (1, 2, 3), "k2": (1, 2)},
    "diloco": {"h": (1, 2, 4)},
    "mixedsync": {"staleness_bound": ("null", 2, 4)},
    "esync": {"scope": ("global", "party"), "most": (2, 4)},
}
ACCELERATORS: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "bisparse": {"ratio": (0.01, 0.05), "warmup_rounds": (0, 5), "exact": ("false", "true")},
    "fp16": {"lan": ("true", "false")},
    "mpq": {"ratio": (0.01, 0.05), "warmup_rounds": (0, 5)},
    "dgt": {"k": (0.5, 0.8), "channels": (1, 3)},
    "tsengine": {"intra": ("true", "false"), "in_flight": (2, 4)},
    "p3": {"slice_elements": (10_000, 50_000)},
    "multigps": {"servers": (2, 3), "shard_elements": (16_384, 65_536)},
    "twobit": {},
}
"""The values from which options are drawn, by the plugin's name."""


@dataclass(frozen=True)
class Place:
    """A WAN and a model.

    Attributes:
        number: From 0.
        network: Content of a network file in the short form.
        model: Overrides of the command line.
        forward_ms: Duration of its forward pass; backward takes twice as long.
    """

    number: int
    network: Mapping[str, Any]
    model: tuple[str, ...]
    forward_ms: int

    @property
    def workload(self) -> tuple[str, ...]:
        """Model and pace as overrides."""
        pace = {"forward_ms": self.forward_ms, "backward_ms": 2 * self.forward_ms}
        return (*self.model, *(f"workload.{key}={value}" for key, value in pace.items()))

    @property
    def batch_ms(self) -> int:
        """Duration of forward and backward pass on a worker of speed 1."""
        return 3 * self.forward_ms

    @property
    def learns(self) -> bool:
        """Whether gradients are computed, or only their sizes known."""
        return self.model == LEARNS

    @property
    def workers(self) -> int:
        """Number of workers of all parties."""
        return sum(party["workers"] for party in self.network["parties"].values())


@dataclass(frozen=True)
class Combination:
    """Algorithms at a place.

    Attributes:
        number: From 0, over all places.
        place: The place.
        own: The overrides that distinguish it at its place.
        iterations: Local steps per worker.
    """

    number: int
    place: Place
    own: tuple[str, ...]
    iterations: int

    def overrides(self, network: Path) -> list[str]:
        """Return all overrides; `network` is the file of the place's network."""
        steps = f"iterations={self.iterations}"
        return [f"network={network}", *self.place.workload, *self.own, steps]


def draw(seed: int, count: int, seconds: float, fixed: Sequence[str] = ()) -> list[Combination]:
    """Return the first combinations of a seed.

    Args:
        seed: Any number.
        count: Number of combinations.
        seconds: Target duration of a run, which determines the number of iterations.
        fixed: Overrides of every run, which may make some combinations impossible.
    """
    drawn: list[Combination] = []
    while len(drawn) < count:
        place = _place(seed, len(drawn) // PER_PLACE, fixed)
        taken: set[tuple[str, ...]] = set()
        for number in range(len(drawn), min(count, len(drawn) + PER_PLACE)):
            chance = Random(f"combination/{seed}/{number}")
            while True:
                own = _algorithms(chance)
                step_s = None if own in taken else _step_s(place, own, fixed)
                if step_s is not None:
                    break
            taken.add(own)
            steps = max(LEAST_ITERATIONS, min(MOST_ITERATIONS, ceil(seconds / step_s)))
            drawn.append(Combination(number, place, own, steps))
    return drawn


def write_network(place: Place, path: Path) -> None:
    """Write the place's network to `path`, as a file for ``network=``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(dict(place.network), sort_keys=False), encoding="utf-8")


def _place(seed: int, number: int, fixed: Sequence[str]) -> Place:
    chance = Random(f"place/{seed}/{number}")
    while True:
        place = Place(number, _network(chance, number), *_workload(chance))
        step_s = _step_s(place, (f"sync={DEFAULT_SYNC}",), fixed)
        if step_s is not None and step_s <= LONGEST_S:
            return place


def _network(chance: Random, number: int) -> dict[str, Any]:
    """Return 2 to 5 uneven parties, 10 to 500 Mbit/s per direction, round trips up to 200 ms."""

    def mbps() -> float:
        return round(exp(chance.uniform(log(10), log(500))), 1)

    sites = ["hub", *(f"party{index}" for index in range(chance.randint(2, 5)))]
    # Sites in a square with a diagonal of 100 ms one way: delays satisfy the triangle inequality.
    span_ms = chance.uniform(0, 100 / 2**0.5)
    points = {site: (chance.random() * span_ms, chance.random() * span_ms) for site in sites}
    parties = {}
    for site in sites[1:]:
        workers = chance.randint(1, 2)
        speed = [chance.choice((1.0, 1.0, 0.75, 0.5)) for _ in range(workers)]
        parties[site] = {"workers": workers, "speed": speed}
        parties[site] |= {"uplink_mbps": mbps(), "downlink_mbps": mbps()}
    delay = {
        one: {
            other: round(
                hypot(*(a - b for a, b in zip(points[one], points[other], strict=True))), 2
            )
            for other in sites[index + 1 :]
        }
        for index, one in enumerate(sites[:-1])
    }
    return {
        "name": f"drawn{number}",
        "central": {"name": "hub", "global_servers": chance.choice((1, 1, 2))}
        | {"uplink_mbps": 2 * mbps(), "downlink_mbps": 2 * mbps()},
        "parties": parties,
        "delay_ms": delay,
    }


def _workload(chance: Random) -> tuple[tuple[str, ...], int]:
    """Return the digits CNN with numerics, or random layers without; and the pace."""
    forward_ms = chance.choice((20, 50, 100))
    if chance.random() < 0.5:
        return LEARNS, forward_ms
    layers = [round(exp(chance.uniform(log(1e3), log(3e5)))) for _ in range(chance.randint(8, 32))]
    return ("workload=synthetic", f"workload.elements={layers}".replace(" ", "")), forward_ms


def _algorithms(chance: Random) -> tuple[str, ...]:
    """Return a sync algorithm, up to three accelerators in any order, and options of each."""
    sync = chance.choice(tuple(SYNCS))
    names = chance.sample(tuple(ACCELERATORS), chance.choice((0, 1, 1, 2, 2, 3)))
    words = [f"sync={sync}", f"accel=[{','.join(names)}]"]
    words += [f"sync.{key}={chance.choice(v)}" for key, v in SYNCS[sync].items()]
    for name in names:
        for key, values in ACCELERATORS[name].items():
            words.append(f"accel.{name}.{key}={chance.choice(values)}")
    return tuple(words)


def _step_s(place: Place, own: Sequence[str], fixed: Sequence[str]) -> float | None:
    """Return simulated seconds per iteration, sizes only; None if the combination is refused."""
    with tempfile.TemporaryDirectory() as folder:
        network = Path(folder) / "network.yaml"
        write_network(place, network)
        words = Combination(0, place, tuple(own), LEAST_ITERATIONS).overrides(network)
        try:
            results = geomx.run(
                [*words, *fixed, "mode=sim", "numerics=false", f"hydra.run.dir={folder}/run"]
            )
        except ConfigError:
            return None
    return float(results.summary["seconds_per_iteration"]["mean"])
