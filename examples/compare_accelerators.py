"""Which accelerator helps here? Simulates a few combinations on one network and draws the answer.

    python examples/compare_accelerators.py                # the picture in README.md
    python examples/compare_accelerators.py network=five_regions seed=3

Needs matplotlib (``pip install -e '.[examples]'``). Every word is passed on to every simulation.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import geomx

COMBINATIONS = {
    "fsa": ["+sync=fsa"],
    "fsa + fp16": ["+sync=fsa", "+accel=[fp16]"],
    "fsa + p3": ["+sync=fsa", "+accel=[p3]"],
    "fsa + dgt": ["+sync=fsa", "+accel=[dgt]"],
    "fsa + fp16, p3, dgt": ["+sync=fsa", "+accel=[fp16,p3,dgt]"],
    "hfa": ["+sync=hfa"],
    "hfa + p3, dgt": ["+sync=hfa", "+accel=[p3,dgt]"],
}
PICTURE = Path(__file__).resolve().parent.parent / "docs" / "compare_accelerators.svg"
INK, BAR, FAINT = "#24292f", "#2f6f9f", "#8a929b"


def simulate(words: list[str]) -> dict[str, geomx.Results]:
    """Run every combination with `words` added."""
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for index, (name, combination) in enumerate(COMBINATIONS.items()):
            print(f"simulating {name} ...", flush=True)
            directory = f"hydra.run.dir={folder}/{index}"
            results[name] = geomx.run([*combination, *words, directory])
    return results


def commit() -> str:
    """The commit that the picture was made from."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def draw(results: dict[str, geomx.Results], words: list[str]) -> None:
    """Three rows of bars, one scale each: time, WAN bytes, accuracy."""
    plt.switch_backend("svg")
    plt.rcParams["svg.hashsalt"] = "geomx"  # the same picture is the same file
    names = list(results)[::-1]
    summaries = [results[name].summary for name in names]
    panels = {
        "ms per iteration": [1e3 * s["seconds_per_iteration"]["mean"] for s in summaries],
        "MB over the WAN per iteration": [
            (s["bytes"]["wan_push"] + s["bytes"]["wan_pull"]) / s["iterations"] / 1e6
            for s in summaries
        ],
        "final accuracy, %": [100 * s["accuracy"]["final"] for s in summaries],
    }
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.1), sharey=True)
    for axis, (title, values) in zip(axes, panels.items(), strict=True):
        bars = axis.barh(names, values, color=BAR, height=0.62)
        axis.bar_label(bars, fmt="%.3g", padding=3, color=INK, fontsize=9)
        axis.set_title(title, loc="left", color=INK, fontsize=10)
        axis.set_xlim(0, max(values) * 1.18)
        axis.set_xticks([])
        axis.tick_params(length=0, colors=INK)
        for side in axis.spines.values():
            side.set_visible(False)
    first = summaries[0]
    network, workload = first["network"], first["workload"]
    caption = (
        f"simulated: {workload['name']} ({workload['elements']:,} parameters), network "
        f"{network['name']} ({network['parties']} parties, {network['workers']} workers), "
        f"{first['iterations']} iterations, seed {first['seed']}, geomx {first['geomx']} "
        f"at {commit()}" + (f", {' '.join(words)}" if words else "")
    )
    figure.text(0.005, 0.01, caption, color=FAINT, fontsize=7.5)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(PICTURE, metadata={"Date": None})


def main() -> None:
    """Simulate and draw."""
    words = sys.argv[1:]
    draw(simulate(words), words)
    print(PICTURE)


if __name__ == "__main__":
    main()
