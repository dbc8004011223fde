"""Simulate and launch the same training scripts on random networks, and compare.

    python benchmarks/scripts/both.py --out benchmarks/scripts/both.csv
    python benchmarks/scripts/both.py --framework mxnet --out benchmarks/scripts/mxnet.csv

The script is examples/torch_train.py, or one of those that train as GeoMX's do, examples/cnn*.py.
Networks have two or three parties of one or two workers, links of 20 to 200 Mbit/s and delays of 5
to 40 ms. The combination of algorithms is drawn as well, of those whose parameters do not depend on
the times of messages. One row per network: the mean time of a worker's step but the first,
simulated, live, and the difference; whether the bytes of all links are equal, and the final
parameters. With `--times N` each is done N times in turn, and times are medians: a virtual machine
is not always as fast. The live workers share the cores of this machine, and so do the simulated
ones (`costs.cores`), by the costs that ``geomx calibrate`` measures here at the beginning.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from geomx.results.results import Results

ROOT = Path(__file__).resolve().parent.parent.parent
FIELDS = (
    "seed", "script", "workers", "words", "simulated_ms", "live_ms", "error", "bytes", "parameters",
)  # fmt: skip
Script = list[str]
TORCH: Script = ["torch_train.py", "--steps", "300"]
COMBINATIONS: dict[str, tuple[tuple[Script, list[str]], ...]] = {
    "torch": (
        (TORCH, []), (TORCH, ["accel=[p3]"]), (TORCH, ["accel=[fp16]"]),
        (TORCH, ["accel=[bisparse,p3]"]), (TORCH, ["accel=[lowbit]"]), (TORCH, ["sync=hfa"]),
        (TORCH, ["sync=hfa", "accel=[p3]"]), (TORCH, ["sync=diloco", "sync.h=5"]),
        (TORCH, ["sync=diloco", "sync.h=4", "accel=[sparseloco]"]), (TORCH, ["accel=[multigps]"]),
    ),
    "mxnet": tuple(
        ([name, "--cpu", "--epoch", "6"], words)
        for name, words in (
            ("cnn.py", []), ("cnn.py", ["accel=[p3]"]), ("cnn.py", ["accel=[lowbit]"]),
            ("cnn.py", ["accel=[multigps]"]), ("cnn_bsc.py", ["accel=[bisparse]"]),
            ("cnn_fp16.py", ["accel=[fp16]"]), ("cnn_fp16.py", ["accel=[fp16,p3]"]),
            ("cnn_hfa.py", ["sync=hfa", "sync.k1=5", "sync.k2=2"]), ("cnn_mpq.py", ["accel=[mpq]"]),
        )
    ),
}  # fmt: skip


def network(draw: random.Random) -> dict[str, Any]:
    """Return a random network in the short form."""
    parties = {
        name: {
            "workers": draw.randint(1, 2),
            "uplink_mbps": round(draw.uniform(20, 200)),
            "downlink_mbps": round(draw.uniform(20, 200)),
        }
        for name in ("east", "west", "south")[: draw.randint(2, 3)]
    }
    hub = {"name": "hub", "global_servers": 1, "uplink_mbps": 1000, "downlink_mbps": 1000}
    return {"central": hub, "parties": parties, "delay_ms": round(draw.uniform(5, 40))}


def run(folder: Path, command: str, words: list[str], chosen: Script) -> Results:
    """Simulate or launch a script; return the results."""
    script = [sys.executable, str(ROOT / "examples" / chosen[0]), *chosen[1:]]
    geomx = [sys.executable, "-m", "geomx", command, *words, f"hydra.run.dir={folder}"]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*geomx, "--", *script], check=True, capture_output=True, env=alone)
    return Results.load(folder)


def step_s(results: Results) -> float:
    """Return the mean time of a step, without the first."""
    rows = [row for row in results.iterations if row["iteration"] > 0]
    return float(statistics.mean(row["end_s"] - row["start_s"] for row in rows))


def sent(results: Results) -> dict[tuple[str, str], int]:
    """Return the bytes of training by link."""
    return {(row["source"], row["target"]): row["bytes"] for row in results.links if row["bytes"]}


def same(simulated: Results, live: Results) -> bool:
    """Return whether the final parameters are equal."""
    here, there = simulated.parameters(), live.parameters()
    return here.keys() == there.keys() and all(np.array_equal(here[k], there[k]) for k in here)


def said(equal: bool) -> str:
    return "equal" if equal else "differ"


def calibrate(folder: Path) -> list[str]:
    """Measure this machine; return the words that simulate it."""
    command = [sys.executable, "-m", "geomx", "calibrate", "--output", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return [f"costs={folder / 'costs.yaml'}", f"costs.cores={len(os.sched_getaffinity(0))}"]


def compare(
    seed: int, framework: str, times: int, costs: list[str], folder: Path
) -> dict[str, Any]:
    """Return the row of a network."""
    draw = random.Random(seed)
    file = folder / "network.yaml"
    file.write_text(yaml.safe_dump(content := network(draw)))
    script, chosen = draw.choice(COMBINATIONS[framework])
    words = [f"network={file}", *chosen]
    pairs = [
        (
            run(folder / f"simulate{turn}", "simulate", [*words, *costs], script),
            run(folder / f"launch{turn}", "launch", words, script),
        )
        for turn in range(times)
    ]
    simulated_s, live_s = (
        statistics.median(map(step_s, several)) for several in zip(*pairs, strict=True)
    )
    return {
        "seed": seed,
        "script": script[0],
        "workers": sum(party["workers"] for party in content["parties"].values()),
        "words": " ".join(chosen),
        "simulated_ms": f"{simulated_s * 1e3:.1f}",
        "live_ms": f"{live_s * 1e3:.1f}",
        "error": f"{simulated_s / live_s - 1:+.1%}",
        "bytes": said(all(sent(simulated) == sent(live) for simulated, live in pairs)),
        "parameters": said(all(same(simulated, live) for simulated, live in pairs)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--framework", choices=COMBINATIONS, default="torch", help="of the script")
    parser.add_argument("--networks", type=int, default=10, help="how many")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--times", type=int, default=1, help="how often each is done")
    parser.add_argument("--out", type=Path, help="the rows, a CSV file")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        costs = calibrate(Path(folder))
        for seed in range(arguments.first, arguments.first + arguments.networks):
            place = Path(folder) / str(seed)
            place.mkdir()
            rows.append(compare(seed, arguments.framework, arguments.times, costs, place))
            print("; ".join(map(str, rows[-1].values())), flush=True)
    if arguments.out:
        with arguments.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
