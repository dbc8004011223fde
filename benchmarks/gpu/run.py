"""All checks and measurements that need a GPU, in one command, within ten minutes.

    python benchmarks/gpu/run.py                  # the first GPU
    python benchmarks/gpu/run.py --device cpu     # the same steps with the CPU's implementations

Builds the kernels (needs only nvcc and a compiler), tests them against float64 formulas and the
CPU's bits on new random inputs, tests arrays of more than 2^31 elements, times every kernel against
the device's copy bandwidth and against PyTorch and CuPy, and trains two parties live on tensors of
the device: in C++, and in Python if geomx's module can be built. Parties then exchange the tensors
of ResNet-50 too. Writes ``gpu.json`` and ``gpu.md`` to benchmarks/results (``gpu_cpu.*`` for the
CPU). A failing step is reported in both and does not prevent the others; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from building import ROOT, build  # noqa: E402
from others import others  # noqa: E402

RESULTS = HERE.parent / "results"
GIB = 1 << 28  # float32 values
BEYOND = (1 << 31) + 4321
SIZES = {"gpu": (GIB, 1 << 24, 1 << 18), "cpu": (1 << 20,)}
FRESH_SEEDS = 3
LIVE_ELEMENTS, LIVE_STEPS = 1 << 21, 40

# Requirements for building geomx's Python module and for training.
TOOLS = ("cmake", "ninja")
MODULES = (
    "pip", "nanobind", "scikit_build_core", "torch", "numpy", "networkx", "pluggy", "yaml",
    "annotated_types", "prometheus_client",
)  # fmt: skip

# Goals on a GPU, for arrays of 1 GiB.
LEAST_OF_COPY = 0.8
MOST_TIMES_STATE = 3.0
LEAST_TIMES_TOPK = 5.0

Report = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", default="cuda:0", help="cuda:0 and so on, or cpu")
    parser.add_argument("--architecture", default="native", help="as nvcc -arch calls it")
    parser.add_argument("--milliseconds", type=float, default=200, help="per timing")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder to write to")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "gpu", help="folder to use")
    arguments = parser.parse_args()
    gpu = arguments.device != "cpu"
    folder = arguments.build / ("cuda" if gpu else "cpu")
    name = "gpu" if gpu else "gpu_cpu"
    report: Report = {"device": arguments.device, "machine": machine(), "steps": {}}
    paths: dict[str, Path] = {}

    def make() -> Report:
        paths.update(build(folder, gpu, arguments.architecture))
        return {}

    def sizes() -> tuple[int, ...]:
        return SIZES["gpu" if gpu else "cpu"]

    def compare() -> Report:
        rows = []
        for elements in sizes():
            rows += others(arguments.device, elements, arguments.milliseconds / 1e3)
        return {"rows": rows}

    steps: dict[str, Callable[[], Report]] = {
        "build": make,
        "battery": lambda: battery(paths["device_tests"]),
        "large": lambda: large(
            paths["device_timings"], arguments.device, BEYOND if gpu else 100_003
        ),
        "timings": lambda: timings(
            paths["device_timings"], arguments.device, arguments.milliseconds, sizes()
        ),
        "live": lambda: live(paths["device_live"], arguments.device),
        "others": compare,
        "training": lambda: training(folder, arguments.device, arguments.architecture),
        "stores": lambda: stores(folder, arguments.device),
        "sanitizer": lambda: sanitizer(paths["device_tests"], gpu),
    }
    for step, act in steps.items():
        begun = time.perf_counter()
        try:
            done = {"ok": True, **act()}
        except Exception as error:
            done = {"ok": False, "error": f"{type(error).__name__}: {error}"[-3000:]}
        report["steps"][step] = {**done, "wall_s": round(time.perf_counter() - begun, 1)}
        print(step, "ok" if done["ok"] else done["error"], file=sys.stderr, flush=True)
        report["verdicts"] = verdicts(report) if gpu else []
        arguments.results.mkdir(parents=True, exist_ok=True)
        text = json.dumps(report, indent=1) + "\n"
        (arguments.results / f"{name}.json").write_text(text, encoding="utf-8")
        (arguments.results / f"{name}.md").write_text(page(report), encoding="utf-8")
    print(page(report))
    good = all(step["ok"] for step in report["steps"].values())
    return 0 if good and all(verdict["ok"] for verdict in report["verdicts"]) else 1


# ---- the steps ----


def battery(program: Path) -> Report:
    """Run the tests of the kernels and of their users, with fixed and with new seeds."""
    runs = []
    for seed in [None, *(secrets.randbelow(1 << 31) for _ in range(FRESH_SEEDS))]:
        environment = dict(os.environ) if seed is None else {**os.environ, "GEOMX_SEED": str(seed)}
        done = subprocess.run(
            [program], check=False, capture_output=True, text=True, env=environment, timeout=300
        )
        if done.returncode != 0:
            raise RuntimeError(f"seed {seed}: {done.stderr[-2000:]}")
        runs.append({"seed": seed, "said": done.stderr.strip().splitlines()[-1]})
    return {"runs": runs}


def large(program: Path, device: str, elements: int) -> Report:
    """Test arrays of more elements than 31 bits can count."""
    said = output([program, device, "large", elements])
    if said.strip() != "ok":
        raise RuntimeError(said)
    return {"elements": elements}


def timings(program: Path, device: str, milliseconds: float, sizes: tuple[int, ...]) -> Report:
    """Time every kernel; `of_copy` is its throughput relative to a copy of as many elements."""
    about: Report = {}
    rows: list[Report] = []
    for elements in sizes:
        lines = output([program, device, milliseconds, elements]).splitlines()
        about = json.loads(lines[0])
        fresh = [json.loads(line) for line in lines[1:]]
        copy = next(row for row in fresh if row["name"] == "copy")
        speed = copy["bytes"] / copy["seconds"]
        rows += [{**row, "of_copy": row["bytes"] / row["seconds"] / speed} for row in fresh]
    return {"about": about, "rows": rows}


def live(program: Path, device: str) -> Report:
    """Train two parties live without Python; return the difference from training on the host."""
    found: Report = json.loads(output([program, device, LIVE_ELEMENTS, LIVE_STEPS]))
    close = found["largest_difference"] < 1e-3
    if not close or not found["largest_error"] < 1:
        raise RuntimeError(f"it does not train alike: {found}")
    return found


def training(folder: Path, device: str, architecture: str) -> Report:
    """Train two parties live with the installed geomx, or with one built here for the device."""
    if device != "cpu":
        missing = [name for name in MODULES if importlib.util.find_spec(name) is None]
        missing += [name for name in TOOLS if not shutil.which(name)]
        if missing:
            return {"skipped": f"no {', '.join(missing)} here for geomx's Python module"}
        site = folder / "site"
        shutil.rmtree(site, ignore_errors=True)
        settings = [f"cmake.define.CMAKE_CUDA_ARCHITECTURES={architecture}"]
        settings += ["cmake.define.GEOMX_CUDA=on", f"build-dir={folder / 'wheel'}"]
        words: list[Any] = [sys.executable, "-m", "pip", "install", "--quiet", "--target", site]
        words += ["--no-index", "--no-build-isolation", "--no-deps"]
        output([*words, *(f"-C{setting}" for setting in settings), ROOT], timeout=400)
    found = with_module("training.py", folder, device)
    if not found["largest_difference"] < 1e-3:
        raise RuntimeError(f"the device's weights differ by {found['largest_difference']}")
    return found


def stores(folder: Path, device: str) -> Report:
    """Time the exchange of ResNet-50's tensors, with the module that `training` has built."""
    if device != "cpu" and not (folder / "site").exists():
        return {"skipped": "geomx's Python module was not built"}
    if importlib.util.find_spec("torch") is None:
        return {"skipped": "PyTorch is not installed"}
    return with_module("stores.py", folder, device)


def with_module(program: str, folder: Path, device: str) -> Report:
    """Run a program of this folder with geomx's module for the device; return what it prints."""
    environment = dict(os.environ)
    if device != "cpu":
        searched = [str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(searched)
    said = output([sys.executable, HERE / program, device], environment=environment)
    found: Report = json.loads(said.splitlines()[-1])
    return found


def sanitizer(program: Path, gpu: bool) -> Report:
    """Run the tests with one seed under compute-sanitizer, if that is installed."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not gpu or not Path(tool).exists():
        return {"skipped": "no device" if not gpu else "compute-sanitizer is not installed"}
    environment = {**os.environ, "GEOMX_SEED": "3"}
    said = []
    for check in ("memcheck", "racecheck"):
        words = [tool, "--tool", check, "--error-exitcode", "9", program, "DeviceSparsification"]
        said.append(output(words, environment=environment, timeout=60).strip().splitlines()[-1])
    return {"said": said}


def output(
    words: list[Any], environment: dict[str, str] | None = None, timeout: float = 240
) -> str:
    """Run a program and return its output.

    Raises:
        RuntimeError: It failed; the message has the errors in its output, and the end.
    """
    done = subprocess.run(
        [str(word) for word in words], check=False, capture_output=True, text=True,
        env=environment, timeout=timeout,
    )  # fmt: skip
    if done.returncode != 0:
        text = done.stdout + done.stderr
        errors = [line for line in text.splitlines() if " error" in line.lower()][:10]
        raise RuntimeError("\n".join([f"exit status {done.returncode}:", *errors, text[-1500:]]))
    return done.stdout


def machine() -> Report:
    """Describe the machine."""
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }


# ---- results ----


def verdicts(report: Report) -> list[Report]:
    """Compare the results with the goals, for arrays of 1 GiB."""
    ours = {
        row["name"]: row
        for row in report["steps"].get("timings", {}).get("rows", [])
        if row["elements"] == GIB
    }
    theirs = {
        (row["library"], row["name"]): row["seconds"]
        for row in report["steps"].get("others", {}).get("rows", [])
        if row["elements"] == GIB
    }
    found = []
    if ours:
        for name in ("narrow to fp16", "widen and add fp16", "add 1", "add 2", "add 4", "add 8"):
            found.append(
                verdict(f"{name}: of copy bandwidth", ours[name]["of_copy"], LEAST_OF_COPY)
            )
        copy, sparsify = ours["copy"], ours["sparsify"]
        once = 20 * GIB * copy["seconds"] / copy["bytes"]  # term read, velocity and sum both ways
        found.append(
            verdict(
                "sparsify: times its state once", sparsify["seconds"] / once, MOST_TIMES_STATE, True
            )
        )
        if ("torch", "sparsify") in theirs:
            faster = theirs["torch", "sparsify"] / sparsify["seconds"]
            found.append(
                verdict("sparsify: times faster than torch.topk", faster, LEAST_TIMES_TOPK)
            )
    return found


def verdict(what: str, found: float, bound: float, most: bool = False) -> Report:
    """Return whether `found` meets its bound: at least that, or at most."""
    return {
        "what": what, "found": round(found, 3), "bound": bound, "at": "most" if most else "least",
        "ok": found <= bound if most else found >= bound,
    }  # fmt: skip


def page(report: Report) -> str:
    """Return the report as Markdown."""
    steps = report["steps"]
    measured = steps.get("timings", {})
    about = measured.get("about", {}).get("description", report["device"])
    machine_ = report["machine"]
    lines = [
        f"# Kernels on {about}",
        "",
        f"{machine_['system']}, Python {machine_['python']}, {machine_['cores']} cores, "
        f"{machine_['when']}. "
        f"Written by `python benchmarks/gpu/run.py --device {report['device']}`.",
        "",
        "| step | | s |",
        "|---|---|---:|",
    ]
    for name, step in steps.items():
        state = "ok" if step["ok"] else "FAILED: " + " ".join(step["error"].split())[-300:]
        lines.append(f"| {name} | {step.get('skipped', state)} | {step['wall_s']} |")
    if report.get("verdicts"):
        lines += ["", "| asked for, arrays of 1 GiB | bound | found | |", "|---|---:|---:|---|"]
        lines += [
            f"| {each['what']} | at {each['at']} {each['bound']} | {each['found']} "
            f"| {'ok' if each['ok'] else 'MISSED'} |"
            for each in report["verdicts"]
        ]
    rows = measured.get("rows", [])
    theirs = {
        (row["library"], row["name"], row["elements"]): row["seconds"]
        for row in steps.get("others", {}).get("rows", [])
    }
    if rows:
        lines += [
            "",
            "Bytes are what an operation must read and write at least; `of copy` is how fast it "
            "moves them, next to a copy of as many elements on the device. Other libraries' times "
            "are for what comes closest to the same.",
            "",
            "| kernel | elements | microseconds | GB/s | of copy | torch, microseconds | cupy |",
            "|---|---:|---:|---:|---:|---:|---:|",
        ]
    for row in rows:
        beside = [
            theirs.get((library, row["name"], row["elements"])) for library in ("torch", "cupy")
        ]
        cells = ["" if each is None else f"{each * 1e6:.1f}" for each in beside]
        lines.append(
            f"| {row['name']} | {row['elements']} | {row['seconds'] * 1e6:.1f} "
            f"| {row['bytes'] / row['seconds'] / 1e9:.1f} | {row['of_copy']:.2f} "
            f"| {cells[0]} | {cells[1]} |"
        )
    train = steps.get("training", {})
    there = steps.get("live", {})
    if there.get("ok"):
        lines += [
            "",
            f"Two parties trained live, in C++, {there['steps']} steps on a tensor of "
            f"{there['elements']} elements on {there['device']}, encoded and updated there: the "
            f"largest difference from training on the host is {there['largest_difference']:.2g}.",
        ]
    if train.get("ok") and "skipped" not in train:
        lines += [
            "",
            f"Two parties trained {train['steps']} steps on {train['tensors']} tensors on "
            f"{train['device']}: the largest weight is {train['largest_weight']:.3f}, the largest "
            f"difference from training on arrays {train['largest_difference']:.2g}.",
        ]
    exchanged = steps.get("stores", {}).get("rows", [])
    if exchanged:
        lines += [
            "",
            f"Iterations of two parties, all nodes in one process, that push and pull ResNet-50's "
            f"{steps['stores']['tensors']} tensors, without computing anything:",
            "",
            "| codec | tensors | servers update on | median, s | least, s |",
            "|---|---|---|---:|---:|",
        ]
    for row in exchanged:
        lines.append(
            f"| {row['codec']} | {row['place']} | {row['servers']} | {row['median_s']:.3f} "
            f"| {row['least_s']:.3f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
