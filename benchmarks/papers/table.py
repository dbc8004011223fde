"""Simulate the experiments of published papers, and put their figures beside the published ones.

Writes the table of docs/papers.md:

    python benchmarks/papers/table.py            # all papers, some minutes
    python benchmarks/papers/table.py esync      # one, printed

Each paper is an ``experiment=paper_NAME``: a network, a workload and variants to compare. What its
publication states and what was assumed is on the page.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import geomx.study

PAGE = Path(__file__).resolve().parents[2] / "docs" / "papers.md"
TABLE = re.compile(r"(<!-- papers -->\n).*?(<!-- end of papers -->)", re.DOTALL)
HEAD = "| paper | quantity | published | simulated |\n|---|---|---:|---:|\n"

Figures = Mapping[str, Mapping[str, float | None]]
"""The quantities of a study, by variant (its overrides as one text; the baseline has none)."""


@dataclass(frozen=True)
class Claim:
    """A published figure, and how to compute it from simulated ones.

    Attributes:
        quantity: What it is.
        published: The figure as published.
        simulated: The figure of a simulation, from the quantities of its variants.
        shown: How it is written.
        more: Overrides of the experiment with which it is simulated.
    """

    quantity: str
    published: str
    simulated: Callable[[Figures], float]
    shown: str = "{:.2f} times"
    more: tuple[str, ...] = ()


@dataclass(frozen=True)
class Paper:
    """A publication; its experiment is ``paper_NAME``."""

    title: str
    claims: Sequence[Claim]


def faster(
    variant: str, than: str = "", by: str = "seconds_per_iteration"
) -> Callable[[Figures], float]:
    """Return how many times as fast a variant is, per iteration."""
    return lambda figures: number(figures, than, by) / number(figures, variant, by)


def shorter(variant: str) -> Callable[[Figures], float]:
    """Return the time per iteration that a variant saves, in per cent."""
    return lambda figures: 100 * (1 - 1 / faster(variant)(figures))


def more_samples(variant: str, than: str = "") -> Callable[[Figures], float]:
    """Return the ratio of two variants' samples per second."""
    return faster(than, variant, "samples_per_second")


def samples(variant: str) -> Callable[[Figures], float]:
    """Return the samples per second of a variant."""
    return lambda figures: number(figures, variant, "samples_per_second")


def number(figures: Figures, variant: str, field: str) -> float:
    """Return a quantity of a variant, which it must have."""
    found = [each for name, each in figures.items() if name == variant]
    assert len(found) == 1, (variant, list(figures))
    value = found[0][field]
    assert value is not None, (variant, field)
    return value


HIPS = "network=paper_geomx sync=fsa accel=[]"
SPARSE = (
    "sync=fsa accel=[bisparse] accel.bisparse.ratio=0.01 accel.bisparse.flush=false "
    "accel.bisparse.warmup_rounds=0"
)
AVERAGED = "sync=hfa sync.k1=20 sync.k2=10 iterations=400 accel=[]"
K80, K20 = (f"accel=[dgt] accel.dgt.adaptive=false accel.dgt.k={k}" for k in (0.8, 0.2))
P3, SLICES = "accel=[p3]", "accel=[p3] accel.p3.prioritise=false"
DYNAMIC = "network=netstorm_dynamic accel=[]"
DYNAMIC_TREES = "network=netstorm_dynamic accel=[tsengine]"
VGG19 = (
    "workload=synthetic", "workload.forward_ms=290", "workload.backward_ms=580",
    "workload.elements=[1700,37000,74000,148000,295000,590000,590000,590000,1180000,2360000,2360000,"
    "2360000,2360000,2360000,2360000,2360000,102765000,16781000,4097000]",
)  # fmt: skip


def servers(gbps: float) -> tuple[str, ...]:
    """Return the overrides of `paper_machines` for machines with another bandwidth."""
    return tuple(
        f"network.central.{way}link_mbps={gbps * 4000 / 1.5:.0f}" for way in ("up", "down")
    )


PAPERS = {
    "geomx": Paper(
        "[GeoMX](https://github.com/INET-RC/GeoMX), README",
        [
            Claim("iterations per second, hierarchy alone", "20 times", faster(HIPS)),
            Claim("the same with Bi-Sparse, 1 % of the elements", "20 times", faster(SPARSE)),
            Claim("the same with HFA, K1 = 20, K2 = 10", "20 times", faster(AVERAGED)),
        ],
    ),
    "p3": Paper(
        "P3, Jayarajan et al., MLSys 2019",
        [
            Claim("ResNet-50 at 4 Gbit/s, throughput", "1.26 times", faster(P3)),
            Claim("VGG-19 at 15 Gbit/s", "1.66 times", faster(P3), more=(*VGG19, *servers(15))),
            Claim("VGG-19 at 30 Gbit/s, slices alone", "1.49 times", faster(SLICES),
                  more=(*VGG19, *servers(30))),
        ],
    ),
    "dgt": Paper(
        "DGT, Zhou et al., FGCS 2021",
        [
            Claim("AlexNet, training time, k = 0.8", "-34.4 %", shorter(K80), "-{:.1f} %"),
            Claim("the same late in training, k = 0.2", "-34.4 %", shorter(K20), "-{:.1f} %"),
        ],
    ),
    "tsengine": Paper(
        "TSEngine, Zhou et al., TNSM 2021; figure of NetStorm",
        [
            Claim("nine trainers, static links", "2.8 to 3.6 times", faster("accel=[tsengine]")),
            Claim("links redrawn every 180 s", "3.0 to 3.9 times", faster(DYNAMIC_TREES, DYNAMIC)),
        ],
    ),
    "netstorm": Paper(
        "NetStorm, Li et al., 2024",
        [
            Claim("nine trainers, static links", "8.1 to 10.3 times", faster("accel=[multiroot]")),
            Claim("links redrawn every 180 s", "6.1 to 8.1 times",
                  faster("network=netstorm_dynamic accel=[multiroot]", DYNAMIC)),
            Claim("the same against TSEngine", "1.9 to 2.1 times",
                  faster("network=netstorm_dynamic accel=[multiroot]", DYNAMIC_TREES)),
        ],
    ),
    "esync": Paper(
        "ESync, Li et al., TSC 2022; preprint",
        [
            Claim("ResNet-18, synchronous SGD, samples per second", "47", samples(""), "{:.0f}"),
            Claim("ESync", "1557", samples("sync=esync"), "{:.0f}"),
            Claim("ESync against synchronous SGD", "33 times", more_samples("sync=esync")),
        ],
    ),
    "halos": Paper(
        "HALoS, Kim et al., ICML 2025",
        [
            Claim("asynchronous parties against synchronous ones", "3.6 times",
                  more_samples("sync=mixedsync")),
            Claim("DiLoCo, H = 32, against synchronous training", "not read",
                  more_samples("sync=diloco sync.h=32")),
            Claim("HALoS, h = 8, k = 32, against synchronous training", "7.5 times",
                  more_samples("sync=halos sync.k=32")),
        ],
    ),
}  # fmt: skip


def main(names: Sequence[str]) -> None:
    """Print the rows of some papers, or write those of all to the page."""
    lines = [line for name in names or PAPERS for line in rows(name)]
    if names:
        print(HEAD + "\n".join(lines))
        return
    text = PAGE.read_text(encoding="utf-8")
    text = TABLE.sub(lambda match: match[1] + HEAD + "\n".join([*lines, ""]) + match[2], text)
    PAGE.write_text(text, encoding="utf-8")


def rows(name: str) -> list[str]:
    """Return the rows of a paper."""
    paper, known = PAPERS[name], dict[tuple[str, ...], Figures]()
    lines = []
    for claim in paper.claims:
        if claim.more not in known:
            known[claim.more] = simulated(name, claim.more)
        value = claim.shown.format(claim.simulated(known[claim.more]))
        title = paper.title if not lines else ""
        lines.append(f"| {title} | {claim.quantity} | {claim.published} | {value} |")
    return lines


def simulated(name: str, more: Sequence[str]) -> Figures:
    """Run the experiment of a paper; return its figures by variant."""
    with tempfile.TemporaryDirectory() as folder:
        words = [f"experiment=paper_{name}", "costs=none", *more, f"hydra.run.dir={folder}/run"]
        study = geomx.study.run(words)
    return {
        "" if number == 0 else " ".join(entry.overrides): entry.figures(None)
        for number, entry in enumerate(study.entries)
    }


if __name__ == "__main__":
    main(sys.argv[1:])
