"""Speed of codecs, sums and optimizers, relative to the machine's memory bandwidth.

Builds ``timings.cc``, which times all of them in C++, on one thread and on all cores, for tensors
from 4 KB to 100 MB. Copying (memcpy) and adding (a += b) arrays of the same size is measured
alternately with each: on a shared machine, only such ratios are meaningful. The obvious
alternatives in numpy, and in PyTorch if it is installed, are timed in the same run. Results go to
``benchmarks/results``, as JSON and as tables:

    python benchmarks/codecs/speed.py                          # everything, some minutes
    python benchmarks/codecs/speed.py --elements 262144        # one size, nothing is written
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = HERE.parent / "results"
BUILD = ROOT / "build" / "benchmarks"
SIZES = (1024, 16384, 262144, 2_500_000, 25_000_000)
SEVERAL_CORES_FROM = 262144  # smaller arrays stay on one thread
LEVELS_AT = 262144
BURST_S = 2e-3

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--elements", type=int, action="append", help="measure this size alone")
    parser.add_argument("--milliseconds", type=float, default=120, help="per measurement")
    arguments = parser.parse_args()
    sizes = tuple(arguments.elements or SIZES)
    cores = len(os.sched_getaffinity(0))
    program = build()
    load = round(os.getloadavg()[1], 1)  # load of the last minutes, from other processes
    rows = list(timings(program, "best", 1, arguments.milliseconds, sizes))
    if cores > 1:
        large = [size for size in sizes if size >= SEVERAL_CORES_FROM]
        rows += timings(program, "best", cores, arguments.milliseconds, large)
    if not arguments.elements:
        for level in ("portable", "avx2"):
            rows += timings(program, level, 1, arguments.milliseconds, [LEVELS_AT])
    for size in sizes[-3:]:  # sizes for which the interpreter's overhead is negligible
        rows += others(size, arguments.milliseconds / 1e3)
    report = {"machine": {**machine(), "load": load}, "rows": rows}
    print(tables(report))
    if not arguments.elements:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "codecs.json").write_text(
            '{"machine": ' + json.dumps(report["machine"], indent=2) + ',\n"rows": [\n'
            + ",\n".join(json.dumps(row) for row in rows) + "\n]}\n"
        )  # fmt: skip
        (RESULTS / "codecs.md").write_text(tables(report))


def build() -> Path:
    """Build the timing program from this tree, and return its path."""
    beside = Path(sys.executable).parent
    cmake = next(filter(None, (shutil.which("cmake", path=str(beside)), shutil.which("cmake"))), "")
    if not cmake:
        sys.exit("needs CMake: pip install cmake ninja")
    switches = ["-DGEOMX_PYTHON=OFF", "-DGEOMX_BENCHMARKS=ON", "-DCMAKE_BUILD_TYPE=Release"]
    for words in (
        [cmake, "-S", ROOT, "-B", BUILD, *switches],
        [cmake, "--build", BUILD, "--target", "codec_timings", "--parallel"],
    ):
        subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)
    return BUILD / "runtime_cpp" / "codec_timings"


def timings(
    program: Path, level: str, threads: int, milliseconds: float, sizes: tuple[int, ...] | list[int]
) -> Iterator[Row]:
    """Yield the measurements of the program, a row per operation and size."""
    words = [str(program), level, str(threads), str(milliseconds), *map(str, sizes)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        yield {"level": level, **json.loads(line)}


# ---- the obvious alternatives ----


def others(elements: int, seconds: float) -> list[Row]:
    """Time the same operations in numpy and, if installed, in PyTorch; one thread each."""
    draw = np.random.default_rng(1)
    gradient, weight, sum_, velocity = (
        0.01 * draw.standard_normal(elements, dtype=np.float32) for _ in range(4)
    )
    source, target = gradient.copy(), np.empty_like(gradient)
    halves = gradient.astype(np.float16)
    kept = max(1, elements // 100)

    def sparsify() -> None:
        np.add(sum_, gradient, out=sum_)
        rows = np.argpartition(np.abs(sum_), elements - kept)[elements - kept :]
        chosen = sum_[rows]  # the values to send
        sum_[rows] = 0
        assert len(chosen) == kept

    def momentum() -> None:
        np.multiply(velocity, np.float32(0.9), out=velocity)
        np.subtract(velocity, np.float32(1e-3) * gradient, out=velocity)
        np.add(weight, velocity, out=weight)

    candidates: list[tuple[str, str, str, Callable[[], object]]] = [
        ("numpy", "fp16", "encode", lambda: gradient.astype(np.float16)),
        ("numpy", "fp16", "decode-add", lambda: np.add(sum_, halves, out=sum_)),
        ("numpy argpartition", "bisparse", "encode", sparsify),
        ("numpy", "2 in order", "sum", lambda: np.add(sum_, gradient, out=sum_)),
        ("numpy", "momentum", "update", momentum),
    ]
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        torch = None
    if torch is not None:
        torch.set_num_threads(1)
        tensor, total = torch.from_numpy(gradient), torch.from_numpy(sum_)

        def top() -> None:
            total.add_(tensor)
            _, rows = torch.topk(total.abs(), kept, sorted=False)
            chosen = total[rows]
            total[rows] = 0
            assert len(chosen) == kept

        candidates += [
            ("torch", "fp16", "encode", tensor.half),
            ("torch topk", "bisparse", "encode", top),
            ("torch", "2 in order", "sum", lambda: total.add_(tensor)),
        ]
    rows = []
    for library, name, what, run in candidates:
        took, copy = least(run, lambda: np.copyto(target, source), seconds)
        rows.append(
            {"library": library, "name": name, "what": what, "elements": elements, "threads": 1,
             "seconds": took, "memcpy": copy}
        )  # fmt: skip
    return rows


def least(run: Callable[[], object], copy: Callable[[], object], seconds: float) -> list[float]:
    """Return the minimum times of both functions, measured in alternating bursts."""
    best = [np.inf, np.inf]
    begun = time.perf_counter()
    rounds = 0
    while rounds < 4 or time.perf_counter() - begun < seconds:
        for which, call in enumerate((run, copy)):
            burst = time.perf_counter()
            while True:
                start = time.perf_counter()
                call()
                end = time.perf_counter()
                if rounds > 0:
                    best[which] = min(best[which], end - start)
                if end - burst > BURST_S:
                    break
        rounds += 1
    return best


# ---- tables ----


def tables(report: dict[str, Any]) -> str:
    """Return the report as Markdown."""
    machine, rows = report["machine"], report["rows"]
    ours = [row for row in rows if "library" not in row]
    best = [row for row in ours if row["level"] == "best"]
    lines = [
        "# Speed of codecs, sums and optimizers",
        "",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB; "
        f"{machine['system']}, Python {machine['python']}, geomx {machine['geomx']}, vectors "
        f"{machine['vectors']}; load {machine['load']} at the start (from "
        "other processes and the build). Generated by `python benchmarks/codecs/speed.py`.",
        "",
        "The unit of time is one copy (`memcpy`) of the same dense float32 tensor, measured "
        "alternately with the operation and on the same number of threads: 1.0 is as fast as "
        "copying, 0.5 twice as fast. GB of dense tensor per second are in brackets. A copy reads "
        "and writes 4 bytes per element; the last column is the minimum that the operation must "
        "read and write, in copies, which bounds any implementation that accesses memory.",
        "",
    ]
    for threads in sorted({row["threads"] for row in best}):
        lines += [f"## On {threads} thread{'s' if threads > 1 else ''}", ""]
        lines += by_size([row for row in best if row["threads"] == threads])
    at_level = [row for row in ours if row["elements"] == LEVELS_AT and row["threads"] == 1]
    if len({row["level"] for row in at_level}) > 1:
        lines += [f"## By vector instructions ({LEVELS_AT} elements, one thread)", ""]
        lines += by_level(at_level, machine["vectors"])
    lines += ["## Alternatives (one thread)", ""]
    lines += beside([row for row in rows if "library" in row], best)
    return "\n".join(lines)


def cell(row: Row | None) -> str:
    if row is None:
        return ""
    return f"{row['seconds'] / row['memcpy']:.2f} ({4e-9 * row['elements'] / row['seconds']:.2g})"


def by_size(rows: list[Row]) -> Iterator[str]:
    """Yield a line per operation, with a column per size."""
    sizes = sorted({row["elements"] for row in rows})
    found = {(row["name"], row["what"], row["elements"]): row for row in rows}
    yield f"| | | {' | '.join(map(megabytes, sizes))} | minimum |"
    yield "|---|---|" + "---|" * (len(sizes) + 1)
    copies = " | ".join(
        f"{4e-9 * size / min(r['memcpy'] for r in rows if r['elements'] == size):.3g} GB/s"
        for size in sizes
    )
    yield f"| memcpy | | {copies} | 1.0 |"
    adds = " | ".join(
        f"{min(r['add'] / r['memcpy'] for r in rows if r['elements'] == size):.2f}"
        for size in sizes
    )
    yield f"| a += b | | {adds} | 1.5 |"
    for name, what in dict.fromkeys((row["name"], row["what"]) for row in rows):
        cells = " | ".join(cell(found.get((name, what, size))) for size in sizes)
        moved = found[name, what, sizes[0]]["moved"] / 8
        yield f"| {name} | {what} | {cells} | {moved:.2g} |"
    yield ""


def by_level(rows: list[Row], best: str) -> Iterator[str]:
    """Yield a line per operation, with a column per set of vector instructions."""
    levels = list(dict.fromkeys(["portable", "avx2", "best"]))
    found = {(row["name"], row["what"], row["level"]): row for row in rows}
    yield f"| | | {' | '.join(best if level == 'best' else level for level in levels)} |"
    yield "|---|---|" + "---|" * len(levels)
    for name, what in dict.fromkeys((row["name"], row["what"]) for row in rows):
        cells = " | ".join(cell(found.get((name, what, level))) for level in levels)
        yield f"| {name} | {what} | {cells} |"
    yield ""


def beside(theirs: list[Row], ours: list[Row]) -> Iterator[str]:
    """Yield the time of each alternative relative to ours, both over their memcpy."""
    sizes = sorted({row["elements"] for row in theirs})
    mine = {(r["name"], r["what"], r["elements"]): r for r in ours if r["threads"] == 1}
    yield f"| | | with | {' | '.join(map(megabytes, sizes))} |"
    yield "|---|---|---|" + "---|" * len(sizes)
    found = {(r["name"], r["what"], r["library"], r["elements"]): r for r in theirs}
    for name, what, library in dict.fromkeys(key[:3] for key in found):
        cells = []
        for size in sizes:
            row, own = found[name, what, library, size], mine[name, what, size]
            copies = row["seconds"] / row["memcpy"]
            factor = copies / (own["seconds"] / own["memcpy"])
            cells.append(f"{copies:.2f}, {factor:.1f} times geomx")
        yield f"| {name} | {what} | {library} | {' | '.join(cells)} |"
    yield ""


def megabytes(elements: int) -> str:
    size = 4 * elements
    return f"{size // 1000000} MB" if size >= 1000000 else f"{size // 1024} KB"


def machine() -> dict[str, Any]:
    """Describe the machine."""
    import geomx
    from geomx import _core

    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    for line in cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []:
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9),
        "system": platform.system(),
        "python": platform.python_version(),
        "geomx": geomx.__version__,
        "vectors": _core.vector_level(),
    }


if __name__ == "__main__":
    main()
