"""Speed and memory of the simulator, with one row per size of cluster.

The sizes are those of measurements of other simulators (N parties of M workers, T tensors of 400
kB, FSA, slow start on, sizes only), the smallest once more with a SimPy process per edge that reads
its load every 10 virtual ms, then ResNet-50 over many parties, ten thousand rounds of which
all but a few are counted as repetitions, and a hundred thousand independent flows; then whole
commands over networks of many parties, from the start of Python to the last file. Every row runs in
a process of its own, to measure its peak memory. Results are rounds per second, and per second of
CPU time, which is less sensitive to other load; for whole commands, seconds. They go to
``benchmarks/results``, as JSON and as a table:

    python benchmarks/simulator/speed.py                 # every row, a few minutes
    python benchmarks/simulator/speed.py --only 12x8x64  # one row, nothing is written
    python benchmarks/simulator/speed.py --against PYTHON    # beside another installation

With ``--against``, the interpreter of another installation of geomx measures every row as well,
right after this one, and a column has the speed relative to it, or why there is none. An older
commit is best installed with ``pip install -e``: then its own copy of this script measures it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results"
TENSOR_ELEMENTS = 100_000
RESNET = "resnet50 10x10 p3"
CROWD = "resnet50 100x10"
REPEATED = "3x4x64 10,000 rounds"
FLOWS = 100_000
SITES = 12
TIMEOUT_S = 300
SPEEDS = (
    "rounds_per_cpu_s",
    "flows_per_cpu_s",
    "commands_per_cpu_s",
)  # the rows for "times faster"
COLUMNS = (
    "row", "rounds/s", "per CPU s", "goal", "messages/s", "events/s", "build s", "run s", "write s",
    "whole s", "CPU s", "peak MB", "times faster", "elsewhere",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One size.

    Attributes:
        name: ``NxMxT``, or another name.
        rounds: Number of simulated rounds; the first is not timed.
        goal: Rounds per second, or with an ``s`` seconds of the whole run; megabytes, if limited.
        others: Values of other simulators, if known.
    """

    name: str
    rounds: int
    goal: str = ""
    others: str = ""


ROWS = (
    Row("3x4x64", 201, "150", "SimGrid 4.1: 64-72"),
    Row("3x4x64 observed", 201, "half of it"),
    Row("12x8x64", 41, "20", "SimGrid 4.1: 3, LogGOPSim: 0.8"),
    Row("32x32x64", 5, "4", "SimGrid 4.1: 0.03"),
    Row("64x16x128", 4, "1.5, 500 MB", "SimGrid 4.1: 0.006"),
    Row(RESNET, 20),
    Row(CROWD, 10, "60 s, 2048 MB"),
    Row(REPEATED, 10_000, "5 s"),
    Row("flows tcp", 1),
    Row("flows LV08", 1, "5 s", "SimGrid 4.1: 73 s"),
    Row("flows maxmin", 1, "2 s", "SimGrid 4.1: 4.5 s"),
    Row("command 1000x4 short form", 5, "15 s, 600 MB"),
    Row("command 1000x4 star", 5, "15 s, 600 MB"),
    Row("command 100x100 short form", 5, "40 s"),
    Row("command 2x1 1e10 elements", 5),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    names = [row.name for row in ROWS]
    parser.add_argument("--only", choices=names, action="append", help="measure this row alone")
    parser.add_argument("--against", metavar="PYTHON", help="of another installation of geomx")
    parser.add_argument("--repeat", type=int, default=1, help="how often; the best counts")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, help="seconds per row")
    parser.add_argument("--row", choices=names, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.row:
        row = next(row for row in ROWS if row.name == arguments.row)
        print(json.dumps(measure(row)))
        return
    rows = [row for row in ROWS if not arguments.only or row.name in arguments.only]
    measured: list[dict[str, Any]] = []
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        for row in rows:
            task = progress.add_task(row.name, total=None)
            ours, theirs = [], []
            for _ in range(arguments.repeat):
                for python, results in ((sys.executable, ours), (arguments.against, theirs)):
                    if not python or (results and "skipped" in results[-1]):
                        continue  # who failed once is not waited for again
                    if results is theirs and row.name == REPEATED:
                        continue  # older ones simulate all of it
                    results.append(in_its_own_process(row, arguments.timeout, python))
            figures = max(ours, key=speed)
            if theirs:
                before = max(theirs, key=speed)
                kept = (*SPEEDS, "peak_mb", "skipped")
                figures["before"] = {name: before.get(name) for name in kept}
            measured.append(figures)
            progress.remove_task(task)
    report = {"machine": machine(), "repeats": arguments.repeat, "rows": measured}
    print(table(report))
    if not arguments.only:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "simulator_speed.json").write_text(json.dumps(report, indent=2) + "\n")
        (RESULTS / "simulator_speed.md").write_text(table(report))


def speed(figures: dict[str, Any]) -> float:
    """Return the value by which rows are compared."""
    return next((figures[name] for name in SPEEDS if figures.get(name)), 0.0)


def in_its_own_process(row: Row, timeout_s: float, python: str) -> dict[str, Any]:
    """Measure a row in a new interpreter; a failure or a timeout is recorded in the row."""
    command = [python, str(script_of(python)), "--row", row.name]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, start_new_session=True)
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # with the command that it may have started
        process.communicate()
        return {**asdict(row), "skipped": f"took more than {timeout_s:.0f} s"}
    if process.returncode != 0:
        return {**asdict(row), "skipped": errors.decode().strip().splitlines()[-1]}
    return {**asdict(row), **json.loads(output.splitlines()[-1])}


@cache
def script_of(python: str) -> Path:
    """Return this script as of the checkout that `python` has geomx from: modules move."""
    where = "import geomx; print(geomx.__file__)"
    done = subprocess.run([python, "-P", "-c", where], check=True, capture_output=True, text=True)
    beside = (
        Path(done.stdout.strip()).parents[1] / HERE.parent.name / HERE.name / Path(__file__).name
    )
    return beside if beside.exists() else Path(__file__)


def measure(row: Row) -> dict[str, Any]:
    """Return all values of one row, measured in this process."""
    before = peak_mb()
    if row.name.startswith("command"):
        return command(row)
    figures = flows(row.name.split()[1]) if row.name.startswith("flows") else training(row)
    return {**figures, "peak_mb": peak_mb(), "imports_mb": before}


def peak_mb() -> float:
    """Return the peak memory of this process so far."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


# ---- rounds of training ----


def training(row: Row) -> dict[str, Any]:
    """Simulate the row's rounds; see `Row`."""
    from geomx.results.recorder import Recorder
    from geomx.sim.simulation import Simulation

    class Stopwatch(Recorder):
        """Also records the real time at which all workers had finished each iteration."""

        def iteration(self, *values: Any) -> None:
            super().iteration(*values)
            over[values[2]] = time.perf_counter(), time.process_time()

    over: dict[int, tuple[float, float]] = {}
    began, began_cpu = time.perf_counter(), time.process_time()
    experiment = resnet(row) if row.name.startswith("resnet50") else square(row)
    if hasattr(experiment, "sim"):
        experiment.sim.skip = row.name == REPEATED
    with tempfile.TemporaryDirectory() as directory:
        recorder = Stopwatch(Path(directory), {**experiment.header(), "mode": "sim"})
        recorder.network(experiment.cluster.graph)
        simulation = Simulation(experiment, recorder)
        built = time.perf_counter()
        results = simulation.run()
        ended = time.perf_counter()
    skipped = results.summary.get("skipped_iterations", 0)
    (last, last_cpu), (first, first_cpu) = over[row.rounds - 1], over[0]
    running = last - built
    return {
        "rounds_per_s": (row.rounds - 1) / (last - first),
        "rounds_per_cpu_s": (row.rounds - 1) / (last_cpu - first_cpu),
        "messages": simulation.fabric.messages,
        "messages_per_s": None if skipped else simulation.fabric.messages / running,
        "events_per_s": None if skipped else getattr(simulation.fabric, "events", 0) / running,
        "build_s": built - began,
        "run_s": running,
        "write_s": ended - last,
        "whole_s": ended - began,
        "whole_cpu_s": time.process_time() - began_cpu,
        "virtual_s": results.summary["seconds"],
    }


def square(row: Row) -> Any:
    """Return N equal parties of M workers around a hub, T tensors of 400 kB, under FSA."""
    from geomx.experiment.experiment import Experiment
    from geomx.network.files import read_network
    from geomx.options.schema import RuntimeOptions
    from geomx.plugin.registry import Registry
    from geomx.scenario.programs import program_of
    from geomx.workload import Layer, TensorSpec, Workload

    parties, workers, tensors = map(int, row.name.split()[0].split("x"))
    party = {"workers": workers, "uplink_mbps": 200, "downlink_mbps": 200}
    network = {
        "name": row.name,
        "central": {"name": "hub", "uplink_mbps": 10_000, "downlink_mbps": 10_000},
        "parties": {f"party{index}": party for index in range(parties)},
        "delay_ms": 30,
    }
    workload = Workload(
        name="sizes",
        layers=tuple(Layer(f"layer{index}", 0.0005, 0.001) for index in range(tensors)),
        tensors=tuple(
            TensorSpec(f"tensor{index}", (TENSOR_ELEMENTS,), index) for index in range(tensors)
        ),
        batch_size=1,
        samples=1,
        iterations=row.rounds,
    )
    return Experiment(
        mode="sim",
        seed=0,
        iterations=row.rounds,
        numerics=False,
        cluster=read_network(network),
        workload=workload,
        selection=Registry.discover().select(None),
        runtime=RuntimeOptions(frame_bytes=4 * TENSOR_ELEMENTS),  # a tensor is one message
        programs=(program_of(observe),) if row.name.endswith("observed") else (),
    )


def observe(world: Any) -> None:
    """Start a process per edge that reads its load every 10 virtual ms."""

    def look(edge: tuple[str, str]) -> Iterator[Any]:
        while True:
            yield world.env.timeout(10_000_000)
            world.wan.load(*edge)

    for edge in world.wan.edges:
        world.process(look(edge))


def resnet(row: Row) -> Any:
    """Return the experiment ``workload=resnet50 network=ten_by_ten.yaml '+accel=[p3]'``.

    For the larger case, return one with a hundred such parties, without P3.
    """
    from geomx.config.compose import compose

    with tempfile.TemporaryDirectory() as directory:
        network = HERE / "ten_by_ten.yaml"
        words = ["workload=resnet50", f"iterations={row.rounds}", f"hydra.run.dir={directory}"]
        if row.name == RESNET:
            return compose([*words, f"network={network}", "+accel=[p3]"])[0]
        crowd = yaml.safe_load(network.read_text())
        crowd["parties"] = {
            f"{name}{copy}": party for copy in range(10) for name, party in crowd["parties"].items()
        }
        network = Path(directory) / "crowd.yaml"
        network.write_text(yaml.safe_dump(crowd))
        return compose([*words, f"network={network}"])[0]


# ---- whole commands ----


def command(row: Row) -> dict[str, Any]:
    """Run ``python -m geomx`` over the row's network, with all of its output files."""
    _, size, *form = row.name.split()
    parties, workers = map(int, size.split("x"))
    elements = [625_000_000] * 16 if form == ["1e10", "elements"] else [TENSOR_ELEMENTS]
    with tempfile.TemporaryDirectory() as directory:
        network = Path(directory) / "network.json"
        make = star if form == ["star"] else sites
        network.write_text(json.dumps(make(parties, workers)))
        words = [f"network={network}", "workload=synthetic", f"workload.elements={elements}"]
        words += ["numerics=false", f"iterations={row.rounds}", f"hydra.run.dir={directory}/run"]
        began = time.perf_counter()
        run = [sys.executable, "-m", "geomx", *words]
        subprocess.run(run, check=True, capture_output=True, cwd=directory)
        whole_s = time.perf_counter() - began
        summary = json.loads((Path(directory) / "run" / "summary.json").read_text())
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    whole_cpu_s = used.ru_utime + used.ru_stime
    return {
        "whole_s": whole_s,
        "whole_cpu_s": whole_cpu_s,
        "commands_per_cpu_s": 1 / whole_cpu_s,
        "virtual_s": summary["seconds"],
        "peak_mb": round(used.ru_maxrss / 1024, 1),
    }


def sites(parties: int, workers: int) -> dict[str, Any]:
    """Return N parties of M workers around a hub, in the short form."""
    party = {"workers": workers, "uplink_mbps": 100, "downlink_mbps": 100}
    return {
        "central": {"name": "hub", "uplink_mbps": 10_000, "downlink_mbps": 10_000},
        "parties": {f"party{index}": party for index in range(parties)},
        "delay_ms": 30,
    }


def star(parties: int, workers: int) -> dict[str, Any]:
    """Return the same as a graph: the router of every site is joined to a central one."""
    nodes = [{"id": "core"}, {"id": "hub", "kind": "global_server", "party": "hub"}]
    links = [{"source": "hub", "target": "core", "bandwidth_mbps": 10_000, "delay_ms": 1}]
    for index in range(parties):
        party = f"party{index}"
        nodes.append({"id": party, "party": party})
        delay_ms = 10 + index % 20
        access = {"source": party, "target": "core", "bandwidth_mbps": 100, "delay_ms": delay_ms}
        links.append(access)
        for kind, count in (("server", 1), ("worker", workers)):
            for number in range(count):
                host = {"id": f"{party}/{kind}{number}", "kind": kind, "party": party}
                nodes.append(host)
                lan = {"bandwidth_mbps": 10_000, "delay_ms": 0.05}
                links.append({"source": host["id"], "target": party, **lan})
    return {"nodes": nodes, "links": links}


# ---- independent flows ----


def flows(model: str) -> dict[str, Any]:
    """Flows of 1 MB between random sites, a thousand a second (two thirds of what fits)."""
    import networkx as nx
    import numpy as np

    from geomx.sim import transfer_times

    graph = nx.DiGraph()
    for site in range(SITES):
        for ends in ((f"host{site}", f"site{site}"), (f"site{site}", f"host{site}")):
            graph.add_edge(*ends, bandwidth_mbps=1000, delay_ms=0)
        for other in range(SITES):
            if other != site:
                graph.add_edge(f"site{site}", f"site{other}", delay_ms=10 + site + other)
    draw = np.random.default_rng(0)
    source = draw.integers(SITES, size=FLOWS)
    target = (source + draw.integers(1, SITES, size=FLOWS)) % SITES
    starts = np.sort(draw.uniform(0, FLOWS / 1000, size=FLOWS))
    wanted = [
        (f"host{a}", f"host{b}", 1e6, float(start))
        for a, b, start in zip(source, target, starts, strict=True)
    ]
    began, began_cpu = time.perf_counter(), time.process_time()
    finished = transfer_times(graph, wanted, model=model)
    whole_s, whole_cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    return {
        "whole_s": whole_s,
        "whole_cpu_s": whole_cpu_s,
        "flows_per_cpu_s": FLOWS / whole_cpu_s,
        "virtual_s": max(finished),
    }


# ---- output ----


def machine() -> dict[str, Any]:
    """Describe the machine."""
    import geomx

    model = platform.processor() or platform.machine()
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(pages * page / 1e9),
        "system": platform.system(),
        "python": platform.python_version(),
        "geomx": geomx.__version__,
        "load": round(os.getloadavg()[2], 1),
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def table(report: dict[str, Any]) -> str:
    """Return the report in Markdown."""
    about = report["machine"]
    lines = [
        "# Speed of the simulator",
        "",
        f"{about['cpu']}, {about['cores']} cores, {about['memory_gb']} GB; {about['system']}, "
        f"Python {about['python']}, geomx {about['geomx']}. Best of {report['repeats']}; load "
        f"average {about['load']:g} at the end, which reduces rounds per second. Generated by "
        "`python benchmarks/simulator/speed.py`.",
        "",
        "NxMxT: N parties of M workers, T tensors of 400 kB, FSA, without gradients, one message "
        "per tensor; `flows`: 100,000 independent flows over 12 sites; `command NxM`: `python -m "
        "geomx` over N parties of M workers, five iterations of one tensor of 400 kB (or of 16 of "
        "2.5 GB), including the start of Python and all files. Events are messages sent, received "
        "or handled, and ends of computation. Memory includes the interpreter and all imports; a "
        "second figure in brackets, and `times faster`, compare with an older installation that "
        "was measured immediately afterwards.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|" + "---|" * len(COLUMNS),
    ]
    for row in report["rows"]:
        if "skipped" in row:
            cells = ["", "", row["goal"], *[""] * (len(COLUMNS) - 5), row["skipped"]]
        else:
            names = (
                "messages_per_s",
                "events_per_s",
                "build_s",
                "run_s",
                "write_s",
                "whole_s",
                "whole_cpu_s",
            )
            figures = [_figure(row.get(name)) for name in names]
            rounds = [_figure(row.get(name)) for name in ("rounds_per_s", "rounds_per_cpu_s")]
            before = row.get("before", {})
            memory = _figure(row["peak_mb"])
            if before.get("peak_mb"):
                memory += f" ({_figure(before['peak_mb'])})"
            faster = before.get("skipped") or ""
            if speed(before):
                faster = _figure(speed(row) / speed(before))
            cells = [*rounds, row["goal"], *figures, memory, faster, row["others"]]
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
