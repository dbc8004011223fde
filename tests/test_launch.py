"""`geomx launch` runs a script as every worker: its output, its failures, its processes."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

SCRIPT = """
import sys
import numpy as np
import geomx.kv
store = geomx.kv.create("dist_sync")
store.init(0, np.zeros(1000))
for step in range(10**6 if sys.argv[1:] else 3):
    if step == 1 and sys.argv[1:] and store.global_rank == 2:
        exec(sys.argv[1])
    store.push(0, np.full(1000, store.global_rank + 1.0))
    value = store.pull(0)
assert sys.argv[1:] or (value == 10).all(), value  # sums lack a lost worker
print(f"{store.rank} of {store.num_workers}, {store.num_all_workers} in all", flush=True)
"""


def launched(
    folder: Path, *arguments: str, command: Sequence[str] = (), options: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run `geomx launch` with SCRIPT or another command, on two parties of two workers."""
    (folder / "train.py").write_text(SCRIPT)
    program = (
        "import sys; from geomx.cli.main import main; sys.exit(main(['launch', *sys.argv[1:]]))"
    )
    words = command or [sys.executable, "train.py", *arguments]
    return subprocess.run(
        [sys.executable, "-c", program, "network=two_parties", *options, "--", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
def test_every_worker_runs_the_script(tmp_path: Path) -> None:
    done = launched(tmp_path)
    assert done.returncode == 0, done.stderr
    said, title, *_, directory = done.stdout.splitlines()
    assert said == "0 of 2, 4 in all"
    assert title.rstrip() == "fsa · train.py on two_parties · live"
    assert (Path(directory) / "report.html").exists()
    (log,) = tmp_path.rglob("chengdu-worker1.log")
    assert log.read_text() == "1 of 2, 4 in all\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("raise KeyboardInterrupt", "killed by SIGINT"),
        ("raise RuntimeError('no more data')", "exit status 1: RuntimeError: no more data"),
        ("raise OSError('no data:\\n- a\\n- b')", "exit status 1: OSError: no data:"),
        (  # as MXNet's operators say it
            "raise RuntimeError('Traceback (most recent call last):\\n  File a\\nnothing there')",
            "exit status 1: RuntimeError: nothing there",
        ),
        ("sys.exit('no more data')", "exit status 1: no more data"),
        ("sys.exit(2)", "exit status 2"),
        (
            "try:\n  raise RuntimeError('no more data')\nfinally:\n  store.close()",
            "exit status 1: RuntimeError: no more data",
        ),
    ],
)
def test_a_script_that_fails_ends_the_job(tmp_path: Path, end: str, reason: str) -> None:
    began = time.monotonic()
    done = launched(tmp_path, end)
    assert done.returncode == 1
    assert f"node chengdu/worker0 was lost: {reason};" in done.stderr
    if "sys.exit" in end:  # which others are told, too
        told = f"chengdu/worker0 is lost: it failed: {reason.removeprefix('exit status 1: ')}"
        assert told in done.stderr
    # Other workers say nothing.
    assert done.stderr.count("Traceback") == end.count("raise") + end.count("Traceback")
    assert time.monotonic() - began < 30


@pytest.mark.slow
def test_a_command_that_ends_without_joining_is_named_at_once(tmp_path: Path) -> None:
    began = time.monotonic()
    done = launched(tmp_path, command=["/bin/sh", "-c", "echo no such data set"])
    assert done.returncode == 1
    *tail, sentence = done.stderr.strip().splitlines()
    assert re.match(r"node \w+/worker\d was lost: its command, /bin/sh -c 'echo no such", sentence)
    assert "exit status 0 without joining the run (so did 3 others)" in sentence
    log = Path(sentence.partition("its log is ")[2].partition(";")[0])
    assert (tmp_path / log).read_text() == "no such data set\n"
    assert tail[-1].strip() == "no such data set"
    assert time.monotonic() - began < 50


FORKED = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
time.sleep(3)
exec(open("train.py").read())
"""


@pytest.mark.slow
def test_a_process_that_outlives_the_command_may_join(tmp_path: Path) -> None:
    done = launched(tmp_path, command=[sys.executable, "-c", FORKED])
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_workers_that_end_without_leaving_end_the_job(tmp_path: Path) -> None:
    """Nothing is left that could train; one of them alone is lost, as the others train on."""
    script = """
import os, time
import geomx.kv
store = geomx.kv.create()
store.barrier()
time.sleep(3 * (store.global_rank == 1))
os._exit(0)
"""
    done = launched(tmp_path, command=[sys.executable, "-c", script])
    assert done.returncode == 1
    *above, sentence = done.stderr.strip().splitlines()
    why = "ended with exit status 0 without leaving the run: a script that ends by os._exit"
    assert sentence.startswith("node beijing/worker1 was lost: its command,")
    assert why in sentence
    assert sum("is lost, rounds complete without it: its command" in line for line in above) == 3


@pytest.mark.slow
def test_a_script_may_end_by_os_exit_once_its_store_is_closed(tmp_path: Path) -> None:
    end = "import geomx.kv, os; geomx.kv.create().close(); os._exit(0)"
    command = [sys.executable, "-c", f"import geomx.kv; geomx.kv.create(); {end}"]
    done = launched(tmp_path, command=command)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_second_script_of_a_command_is_told_that_its_worker_has_left(tmp_path: Path) -> None:
    script = "import geomx.kv; geomx.kv.create().close()"
    words = [sys.executable, "-c", f"{script}; geomx.kv.create()"]
    done = launched(tmp_path, command=words)
    assert done.returncode == 1
    assert "worker0 has left its job, which a command cannot join again: launch" in done.stderr


SLOW_TO_END = """
import atexit, time
import geomx.kv
store = geomx.kv.create()
if store.global_rank == 3:
    # As a framework that takes its time to end, after the connections have.
    atexit.unregister(store.close)
    atexit.register(time.sleep, 4)
    atexit.register(store.close)
    for line in range(20):
        print("line", line)
    raise RuntimeError("no more data\t" + 100_000 * "!")
store.barrier()
"""


@pytest.mark.slow
def test_the_first_failure_is_shown_with_its_last_log_lines(tmp_path: Path) -> None:
    """Other workers fail as a consequence, and end before it."""
    done = launched(tmp_path, command=[sys.executable, "-u", "-c", SLOW_TO_END])
    assert done.returncode == 1
    *above, sentence = done.stderr.strip().splitlines()
    assert sentence.startswith("node chengdu/worker1 was lost: ")
    (log,) = tmp_path.rglob("chengdu-worker1.log")
    head = next(i for i, line in enumerate(above) if line.endswith(f"the end of {log}:"))
    assert above[head].startswith("chengdu/worker1: ")
    assert above[head + 1 :] == [f"  {line}" for line in log.read_text().splitlines()[-15:]]
    assert above[-1].startswith("  RuntimeError: no more data")
    warning = "chengdu/worker1 is lost: it failed: RuntimeError: no more data !!!"
    assert any(warning in line for line in above)
    assert not any("rounds complete without" in line for line in above)


FAULTY = """
import sys
import numpy as np
import geomx.kv

store = geomx.kv.create("dist_sync")
faulty = store.rank == 1
store.init("w", np.zeros(3 if faulty and sys.argv[1] == "shape" else 4))
value = np.ones(4)
value[0] = np.nan if faulty and sys.argv[1] == "nan" else 1.0
store.push("w", value)
store.pull("w")
store.barrier()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "options", "cause"),
    [
        ("nan", ["runtime.non_finite=refuse"], r"with 1 of 4 values NaN or infinite: runtime\.non"),
        ("shape", [], r"broke the protocol: key 0 \(piece 0\) has . elements at"),
    ],
)
def test_a_worker_at_fault_itself_ends_the_job(
    tmp_path: Path, fault: str, options: list[str], cause: str
) -> None:
    """It is not restarted, although training goes on without lost workers: it would fail again."""
    command = [sys.executable, "-c", FAULTY, fault]
    done = launched(tmp_path, command=command, options=[*options, "faults.on_loss=continue"])
    assert done.returncode == 1
    assert re.search(rf"node \w+/worker. was lost: exit status 1: .*{cause}", done.stderr)
    assert "restart" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("status", [3, 255])
def test_an_exit_status_of_a_script_is_not_taken_for_one_of_geomx(
    tmp_path: Path, status: int
) -> None:
    done = launched(tmp_path, f"import os; os._exit({status})")
    assert done.returncode == 1
    assert f"node chengdu/worker0 was lost: exit status {status};" in done.stderr
    assert "restart" not in done.stderr


@pytest.mark.slow
def test_a_job_whose_workers_all_fail_in_their_first_step_names_the_first(tmp_path: Path) -> None:
    script = (
        "import sys, time, numpy as np, geomx.kv\n"
        "store = geomx.kv.create('dist_sync')\n"
        "store.init(3, np.zeros(10))\n"
        "if store.global_rank:\n"
        "    sys.exit('my share of the data is empty')\n"
        "store.push(3, np.ones(10))\n"
        "time.sleep(0.3)\n"
        "sys.exit('and so is mine')\n"
    )
    done = launched(tmp_path, command=[sys.executable, "-c", script])
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert re.search(r"^node \S+ was lost: exit status 1: .* results up to then", done.stderr, re.M)


MEETING = """
import os, signal, time
from pathlib import Path
import numpy as np
import geomx.kv

store = geomx.kv.create("dist_sync")
store.init(0, np.zeros(4))
store.barrier()
if Path("killed").exists():
    Path("back").touch()
for step in range(store.rounds, 40):
    if store.global_rank == 2 and not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    while step == 5 and not Path("back").exists():
        time.sleep(0.05)
    store.push(0, np.ones(4))
    store.pull(0)
    time.sleep(0.02)
store.barrier()
print("met", flush=True)
"""


@pytest.mark.slow
def test_a_restarted_script_meets_the_others_at_their_barrier(tmp_path: Path) -> None:
    """It comes to the first barrier again, which the others have passed, and passes it as well."""
    done = launched(tmp_path, command=[sys.executable, "-c", MEETING])
    assert done.returncode == 0, done.stderr
    assert "was killed by SIGKILL: restart 1 of 3" in done.stderr
    logs = {log.name: log.read_text() for log in tmp_path.rglob("*worker*.log")}
    said = [done.stdout.splitlines()[0], *(text.strip() for text in logs.values() if text)]
    assert said == ["met"] * 4, logs
