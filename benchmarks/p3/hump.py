"""Measure P3's gain as a function of bandwidth, which has a maximum between fast and slow links.

Writes docs/plugins/p3_hump.svg and the table of docs/plugins/p3.md.

    python benchmarks/p3/hump.py

Two parties of one worker, 300 ms of computation per step, and a WAN whose bandwidth varies from far
too much to far too little. Two networks: 16 equal layers, and the same with 70 % of the parameters
in the last but one layer, as in VGG. The contribution of slicing alone is measured with
``accel.p3.prioritise=false``.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from rich.progress import track

import geomx
from geomx.network.links import PAYLOAD_SHARE
from geomx.pages.bars import Panel, bars
from geomx.pages.markup import Markup
from geomx.pages.picture import standalone

DOCS = Path(__file__).resolve().parents[2] / "docs" / "plugins"
COMPUTE_S = 0.3
PARAMETERS = 7_500_000
UNIFORM = [PARAMETERS // 16] * 16
SKEWED = [PARAMETERS * 3 // 10 // 15] * 14 + [PARAMETERS * 7 // 10, PARAMETERS * 3 // 10 // 15]
NETWORKS = {"16 equal layers": UNIFORM, "one layer of 70 %": SKEWED}
LOADS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1 / 2**0.5, 1, 2**0.5, 2, 4, 8, 16)
"""Seconds on the wire one way, as multiples of the seconds of computing."""
VARIANTS = {
    "base": [],
    "slices": ["accel=[p3]", "accel.p3.prioritise=false"],
    "p3": ["accel=[p3]"],
}
Times = dict[tuple[str, float, str], float]
TABLE = re.compile(r"(<!-- hump -->\n).*?(<!-- end of hump -->)", re.DOTALL)


def main() -> None:
    runs = [(name, load, variant) for name in NETWORKS for load in LOADS for variant in VARIANTS]
    took = {
        (name, load, variant): seconds(NETWORKS[name], mbps(load), VARIANTS[variant])
        for name, load, variant in track(runs, "simulating")
    }
    page = DOCS / "p3.md"
    text = TABLE.sub(lambda match: match[1] + table(took) + match[2], page.read_text("utf-8"))
    page.write_text(text, encoding="utf-8")
    told = "two parties of one worker, 7.5 million parameters, 300 ms of computing a step"
    caption = f"Iterations per second, as a multiple of those without P3: {told}"
    (DOCS / "p3_hump.svg").write_text(standalone(chart(took), caption), encoding="utf-8")


def mbps(load: float) -> float:
    """Return the bandwidth at which the transfer takes `load` times as long as the computation."""
    return 32 * PARAMETERS / (load * COMPUTE_S) / 1e6 / PAYLOAD_SHARE


def seconds(elements: Sequence[int], bandwidth: float, words: Sequence[str]) -> float:
    """Return the mean of the iterations without the first two and the last."""
    parties = [
        f"network.parties.{party}.{key}={value}"
        for party in ("beijing", "chengdu")
        for key, value in (
            ("workers", 1),
            ("uplink_mbps", bandwidth),
            ("downlink_mbps", bandwidth),
        )
    ]
    sizes = ",".join(map(str, elements))
    hub = [f"network.central.{way}link_mbps={10 * bandwidth}" for way in ("up", "down")]
    network = [*parties, *hub, "network.delay_ms=0.1", "network.lan.mbps=1000000"]
    workload = ["workload=synthetic", f"workload.elements=[{sizes}]", "iterations=8"]
    with tempfile.TemporaryDirectory() as folder:
        run = [f"hydra.run.dir={folder}/run"]
        rows = geomx.run([*workload, *network, *words, *run]).iterations
    return fmean(row["end_s"] - row["start_s"] for row in rows if 2 <= row["iteration"] < 7)


def chart(took: Times) -> Markup:
    """Draw the gain as bars, from the highest bandwidth to the lowest."""
    gains = {
        "16 equal layers": [gain(took, "16 equal layers", load, "p3") for load in LOADS],
        "one layer of 70 %": [gain(took, "one layer of 70 %", load, "p3") for load in LOADS],
        "one layer of 70 %, slices alone": [
            gain(took, "one layer of 70 %", load, "slices") for load in LOADS
        ],
    }
    names = [f"{mbps(load):,.0f} Mbit/s · wire {load:.2g} times computing" for load in LOADS]
    panels = [
        Panel(name, values, [f"{value:.2f}" for value in values], 1.0)
        for name, values in gains.items()
    ]
    return bars("iterations per second, as a multiple of those without P3", names, panels)


def gain(took: Times, name: str, load: float, variant: str) -> float:
    """Return the speed relative to that without P3."""
    return took[name, load, "base"] / took[name, load, variant]


def table(took: Times) -> str:
    head = "| bandwidth, Mbit/s | wire / computing |"
    for name in NETWORKS:
        head += f" {name}: ms without | with | gain | of it slices |"
    lines = [head, "|---:" * (2 + 4 * len(NETWORKS)) + "|"]
    for load in LOADS:
        cells = [f"{mbps(load):,.0f}", f"{load:.2g}"]
        for name in NETWORKS:
            cells += [f"{1e3 * took[name, load, variant]:,.0f}" for variant in ("base", "p3")]
            cells += [f"{gain(took, name, load, variant):.2f}" for variant in ("p3", "slices")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
