"""`geomx.run`: arguments, results, and no side effects on the calling process."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import geomx
from geomx.config.compose import compose
from geomx.limits.rules import Program
from tests.strangers import accel, install

pytestmark = pytest.mark.slow

STATE = '''
import gc, json, locale, logging, os, random, resource, signal, sys, threading, warnings
import numpy as np

def state():
    """Everything of a process that a run could change, as text."""
    return {
        "limits": [resource.getrlimit(getattr(resource, name))
                   for name in sorted(dir(resource)) if name.startswith("RLIMIT_")],
        "handlers": [repr(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "blocked": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
        "timers": [signal.getitimer(timer) for timer in
                   (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)],
        "folder": os.getcwd(),
        "umask": umask(),
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "cores": sorted(os.sched_getaffinity(0)),
        "arguments": list(sys.argv),
        "environment": dict(sorted(os.environ.items())),
        "filters": [repr(entry) for entry in warnings.filters],
        "showwarning": repr(warnings.showwarning),
        "logging": [logging.root.level, logging.root.manager.disable,
                    *map(repr, logging.root.handlers)],
        "collector": [gc.isenabled(), gc.get_threshold(), gc.get_debug()],
        "floats": np.geterr(),
        "printing": {k: repr(v) for k, v in np.get_printoptions().items()},
        "random": [repr(random.getstate()), repr(np.random.get_state(legacy=False))],
        "streams": [id(getattr(sys, name)) for name in
                    ("stdin", "stdout", "stderr", "__stdout__", "__stderr__")],
        "hooks": [repr(getattr(sys, name)) for name in ("excepthook", "displayhook")],
        "threads": [repr(threading.excepthook), threading.stack_size()],
        "interval": [sys.getswitchinterval(), sys.getrecursionlimit(), repr(sys.gettrace())],
        "path": list(sys.path),
        "locale": locale.setlocale(locale.LC_ALL),
    }

def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask

def changed(before, after):
    return [name for name in before if before[name] != after[name]]
'''

SCRIPT = (
    STATE
    + """
import geomx

def work():
    words, fails, thread = json.loads(sys.argv[1]), sys.argv[2] == "fails", sys.argv[3] == "thread"
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("error", FutureWarning)
    np.seterr(over="raise")
    gc.disable() if thread else None
    main = sys.modules["__main__"]
    main.before, main.during = state(), []

    def run():
        try:
            geomx.run(words)
            assert not fails
        except geomx.GeomxError as error:
            assert fails, error

    runner = threading.Thread(target=run)
    runner.start() if thread else run()
    runner.join() if thread else None
    print(json.dumps([main.during, changed(main.before, state())]))

if __name__ == "__main__":
    work()
"""
)

LOOKS = accel(
    "looks",
    """
def look(self):
    import sys
    main = sys.modules["__main__"]
    if hasattr(main, "before"):  # not in the processes of nodes
        now = main.state()
        now["floats"] = main.before["floats"]  # numpy's error state is the calling thread's own
        main.during.append(main.changed(main.before, now))

@geomx.hookimpl
def geomx_validate(self, experiment):
    self.look()

@geomx.hookimpl
def geomx_events(self, events):
    import os
    self.look()
    if os.path.exists("fail"):
        1 / 0
""",
)


@pytest.mark.parametrize(
    ("words", "end", "thread"),
    [
        (["workload=tiny"], "ends", "main"),
        (["workload=tiny"], "fails", "thread"),
        (["iterations=2"], "ends", "thread"),
        (["workload=tiny", "mode=both", "iterations=3"], "ends", "main"),
        (["workload=tiny", "mode=live", "iterations=3"], "fails", "thread"),
        (["workload=tiny", "seed=-1"], "fails", "main"),
    ],
)
def test_the_calling_process_is_unchanged(
    words: list[str], end: str, thread: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compared before, after, and during a run by a plugin; also if the run fails."""
    install(tmp_path / "site", "looks_stranger", LOOKS, monkeypatch)
    (tmp_path / "script.py").write_text(SCRIPT)
    if end == "fails":
        (tmp_path / "fail").touch()
    told = json.dumps([*words, "+accel=[looks]"])
    done = subprocess.run(
        [sys.executable, "script.py", told, end, thread],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    during, after = json.loads(done.stdout.splitlines()[-1])
    assert during or "seed=-1" in words
    assert not any(during), during
    assert after == []


def test_a_run_works_within_an_event_loop(tmp_path: Path) -> None:
    """As in the cells of a notebook."""

    async def cell() -> geomx.Results:
        return geomx.run("workload=tiny", "iterations=2", f"hydra.run.dir={tmp_path}")

    assert len(asyncio.run(cell()).iterations) == 8


def test_two_concurrent_runs(tmp_path: Path) -> None:
    found: dict[int, geomx.Results] = {}

    def run(seed: int) -> None:
        found[seed] = geomx.run(
            "workload=tiny", f"seed={seed}", f"hydra.run.dir={tmp_path / str(seed)}"
        )

    threads = [threading.Thread(target=run, args=[seed]) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {seed: results.summary["seed"] for seed, results in found.items()} == {1: 1, 2: 2}


def test_threads_compose_at_the_same_time(tmp_path: Path) -> None:
    """Hydra's state is global: without a lock, most of these calls end with its errors."""
    often = sys.getswitchinterval()

    def seeds(seed: int) -> list[int]:
        return [
            compose([f"seed={seed}", f"hydra.run.dir={tmp_path / f'{seed}-{run}'}"])[0].seed
            for run in range(5)
        ]

    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(3) as threads:
            found = list(threads.map(seeds, range(3)))
    finally:
        sys.setswitchinterval(often)
    assert found == [[seed] * 5 for seed in range(3)]


# ---- arguments and results ----


def test_overrides_may_be_a_list_or_separate_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["workload=tiny", "+sync=hfa", "+accel=[p3]", "iterations=3"]
    monkeypatch.chdir(tmp_path)
    for given in ([words], words, [tuple(words)]):
        summary = geomx.run(*given).summary
        assert (summary["sync"]["name"], summary["iterations"]) == ("hfa", 3)
        assert [choice["name"] for choice in summary["accel"]] == ["p3"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["+sync=hfa iterations=5"], "is 2 overrides; write ['+sync=hfa', 'iterations=5']"),
        (
            [["+sync=hfa", "seed=1 iterations=5"]],
            "is 2 overrides; write ['seed=1', 'iterations=5']",
        ),
        (["-m"], "is a flag of the command line; leave it out"),
        (["--config-dir=x"], "a flag of the command line; write 'hydra.searchpath=[file:"),
        ([3], 'overrides are strings such as "+sync=NAME", in one list or one by one'),
        ([["+sync=hfa"], "iterations=5"], "overrides are strings"),
    ],
)
def test_invalid_overrides_are_refused(given: list[object], said: str) -> None:
    with pytest.raises(geomx.ConfigError) as caught:
        geomx.run(*given)  # type: ignore[arg-type]
    assert said in str(caught.value)


def test_results_are_printed_in_one_line(tmp_path: Path) -> None:
    results = geomx.run("workload=tiny", f"hydra.run.dir={tmp_path}")
    assert repr(results) == (
        "<Results: fsa · tiny on two_parties · sim: 80 worker iterations, "
        f"66.8 ms per iteration, accuracy 0.9042; {tmp_path}>"
    )
    numbers = geomx.run("workload=synthetic", "iterations=2", f"hydra.run.dir={tmp_path / 'sizes'}")
    assert len(repr(numbers)) < 200


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).resolve().parents[1] / "docs" / "python.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    exec(compile(code, str(page), "exec"), space)
    results = space["results"]
    assert isinstance(results, geomx.Results)
    for name in re.findall(r"^\| `(\w+)", page.read_text(encoding="utf-8"), re.MULTILINE)[1:]:
        assert hasattr(results, name), name


def test_the_notebook_of_the_examples_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(__file__).resolve().parents[1] / "examples" / "compare.ipynb"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # whether or not it is installed
    space: dict[str, object] = {}
    for cell in cells:
        assert cell.get("outputs", []) == []
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), str(path), "exec"), space)
    curves = space["curves"]
    assert isinstance(curves, dict)
    assert list(curves) == ["none", "fp16", "bisparse", "p3"]
    assert all(len(curve) == 40 for curve in curves.values())


def test_results_show_themselves_in_a_notebook(tmp_path: Path) -> None:
    results = geomx.run("workload=tiny", "iterations=2", f"hydra.run.dir={tmp_path}")
    shown = replace(results, directory=Path("<odd>"))._repr_html_()
    assert "fsa · tiny on two_parties · sim" in shown
    assert "&lt;odd&gt;/report.html" in shown
    assert "<odd>" not in shown


def test_tables_become_data_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = geomx.run("workload=tiny", "iterations=2", f"hydra.run.dir={tmp_path}")
    with pytest.raises(
        ValueError, match="one of iterations, evaluations, links, edges, not 'nodes'"
    ):
        results.frame("nodes")
    made: list[object] = []
    stand_in = type(sys)("pandas")
    stand_in.DataFrame = made.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", stand_in)
    results.frame("links")
    assert made == [results.links]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(geomx.GeomxError, match="pip install pandas"):
        results.frame("links")


def test_what_existed_before_a_simulation_is_not_searched_for_cycles_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frozen: list[int] = []

    def look(world: geomx.World) -> Iterator[object]:
        yield world.env.timeout(1)
        frozen.append(gc.get_freeze_count())

    overrides = ["workload=tiny", "iterations=1"]
    gc.unfreeze()  # what conftest.py froze
    monkeypatch.setattr(Program, "froze", False)
    try:
        geomx.run(overrides, world=lambda world: world.process(look(world)) and None)
        assert frozen[0] > 1000
        assert gc.get_freeze_count() == 0
    finally:
        gc.collect()
        gc.freeze()
    geomx.run(overrides, world=lambda world: world.process(look(world)) and None)
    assert gc.get_freeze_count() > 0  # a program's own
    assert gc.isenabled()


def test_a_program_that_simulates_again_and_again_keeps_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worlds: list[weakref.ref[object]] = []

    def cycle() -> weakref.ref[object]:
        mine = type("Mine", (), {})()
        mine.myself = mine
        return weakref.ref(mine)

    gc.unfreeze()  # what conftest.py froze
    monkeypatch.setattr(Program, "froze", False)
    monkeypatch.setattr(Program, "owed", 0)
    monkeypatch.setattr("geomx.limits.rules.SEARCH_EVERY", 2)
    try:
        mine = cycle()
        for _ in range(2):
            geomx.run(
                ["workload=tiny", "iterations=1"],
                world=lambda world: worlds.append(weakref.ref(world)),
            )
            assert worlds[-1]() is None
        assert mine() is None  # a program's own
    finally:
        gc.collect()
        gc.freeze()
