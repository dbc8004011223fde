"""Every kind of hang ends with an error after `runtime.failure_timeout_s`: in the simulator, and by
sync policies and coordinators in live runs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import geomx
from geomx.cli import launch
from geomx.errors import GeomxError
from geomx.limits import rules
from tests.laws import Build
from tests.strangers import install

pytestmark = pytest.mark.slow

SOURCE = '''
from dataclasses import dataclass
from pathlib import Path
import os
import time
import geomx

@dataclass(frozen=True)
class Options:
    how: str = ""

WAKING = ("again", "endless")
MINDED = ("report", "reply", "silent", "picky", "coordinator", "process_ticks", *WAKING)

def tell():
    """Tells the test that what follows hangs."""
    if "HANGS" in os.environ:
        Path(os.environ["HANGS"]).touch()

def forever():
    """Loops, but leaves the processor to other tests."""
    tell()
    while True:
        time.sleep(0.001)

def spin():
    tell()
    while True:
        pass

def stubborn():
    while True:
        try:
            spin()
        except BaseException:
            pass

class Policy(geomx.SyncPolicy):
    def __init__(self, how):
        self.how = how

    def after_step(self, step, steps):
        if self.how == "after_step":
            spin()
        if self.how == "sleep":
            tell()
            time.sleep(20)
        if self.how == "stubborn":
            stubborn()
        if self.how == "error":
            raise ZeroDivisionError("oh")
        return True

    def worker(self, cluster, worker, steps):
        if self.how == "worker":
            forever()
        if self.how in ("finished", "fewer", *MINDED):
            return Worker(self.how, worker.id, steps)
        return super().worker(cluster, worker, steps)

    def push_scale(self, cluster, worker):
        if self.how == "push_scale":
            forever()
        return super().push_scale(cluster, worker)

    def coordinators(self, cluster):
        if self.how in MINDED:
            kind = Waking if self.how in WAKING else Mind
            return [geomx.Site(cluster.scheduler, kind(self.how))]
        return []

class Mind:
    def __init__(self, how):
        self.how = how

    def on_report(self, source, values, now_s):
        if self.how == "coordinator":
            forever()
        tell()
        if self.how == "picky":  # answers the first to report alone
            self.first = getattr(self, "first", source)
            return [(source, [1.0])] if source == self.first else []
        return [] if self.how in ("silent", "process_ticks", *WAKING) else [(source, [1.0])]

class Waking(Mind):
    """Answers nothing, and is due at once for ever, or never."""

    def next_timeout(self):
        return 0.0 if self.how == "again" else float("inf")

    def on_timeout(self, now_s):
        return []

class Orders:
    """Orders everything to and from the root, but for what it leaves out."""

    def __init__(self, how):
        self.how = how

    def on_report(self, source, values, now_s):
        report = geomx.OverlayReport.read(values)
        if report.what == "ready" and self.how != "no_push":
            return [(source, geomx.overlay_order("push", report, report.root))]
        if report.what == "origin" and self.how != "no_pull":
            return [(source, geomx.overlay_order("pull", report, to)) for to in report.members]
        return []

class Worker(geomx.WorkerSync):
    def __init__(self, how, number, steps):
        self.how, self.number, self.steps = how, number, steps
        self.coordinator = None if how in ("finished", "fewer") else 0

    def after_step(self, step):
        return True

    def finished(self, step):
        if self.how == "finished":
            forever()
        return step >= self.steps - 1 - (self.how == "fewer" and self.number % 2)

    def report(self, step_s):
        if self.how == "report":
            forever()
        return [step_s]

    def reply(self, values):
        if self.how == "reply":
            forever()

class Bad:
    """Hangs in the way that it is told."""

    def __init__(self, config):
        self.how = config.how
        if self.how == "factory":
            forever()

    @geomx.hookimpl
    def geomx_sync_policy(self, cluster):
        return Policy(self.how)

    @geomx.hookimpl
    def geomx_overlay(self, group):
        if group.level == "global" and self.how in ("no_push", "no_pull"):
            return geomx.Overlay(geomx.Site(group.scheduler, Orders(self.how)))

    @geomx.hookimpl
    def geomx_events(self, events):
        if self.how == "observer":
            events.subscribe(lambda some: forever())

    @geomx.hookimpl
    def geomx_sim(self, simulation):
        env, how = simulation.env, self.how
        if how == "hook":
            forever()

        def look():
            yield env.timeout(1_000_000)
            tell()
            if how == "process_loops":
                while True:
                    pass
            if how == "process_calls":
                forever()
            while how == "process_spins":
                yield env.timeout(0)
            while how == "process_swallows":
                try:
                    yield env.timeout(0)
                except BaseException:
                    pass
            if how == "process_fails":
                raise ZeroDivisionError("oh")
            if how == "process_fails_oddly":
                raise Odd(1, 2)
            if how == "process_yields":
                yield 3

        def child():
            yield env.timeout(0.0)
            env.process(child())

        def again(_):
            env.timeout(0).callbacks.append(again)

        def tick():
            while True:
                yield env.timeout(1_000_000)

        env.process(look())
        if how == "process_breeds":
            env.process(child())
        if how == "callback":
            again(None)
        if how == "process_ticks":
            env.process(tick())

class Odd(Exception):
    def __init__(self, one, other):
        super().__init__("odd")

@geomx.hookimpl
def geomx_register(register):
    register("accel", "bad", Options, Bad)
'''

LIMIT_S = 0.5
CALL = r" did not return for [\d.]+ s; runtime.failure_timeout_s=0.5 is the limit of one call"
HOOK = r" did not return for 0.5 s, the limit of one hook"
INSTANT = (
    r" did not advance virtual time beyond [\d.]+ s of the run for [\d.]+ s: .*"
    r"runtime.failure_timeout_s=0.5 is the limit of one instant"
)
POLICY = "accel bad: geomx_sync_policy: "
FILE = r"\(bad_stranger\.py:\d+\)"
STANDSTILL = r"the simulation came to a standstill at [\d.]+ s: "
SILENT = (
    rf"{STANDSTILL}beijing/worker0, beijing/worker1, chengdu/worker0 and 1 more wait for an answer "
    r"of the coordinator Mind \(accel bad: geomx_sync_policy\) on hub/scheduler"
)
ORDERLESS = (
    rf"{STANDSTILL}the coordinator Orders \(accel bad: geomx_overlay\) on hub/scheduler gives no "
    "order; beijing/worker0, "
)
WAYS = {
    "no_push": ORDERLESS,
    "no_pull": ORDERLESS,
    "after_step": rf"{POLICY}Policy.after_step {FILE}{CALL}",
    "sleep": rf"{POLICY}Policy.after_step {FILE}{CALL}",
    "worker": rf"{POLICY}Policy.worker {FILE}{CALL}",
    "push_scale": rf"{POLICY}Policy.push_scale {FILE}{CALL}",
    "finished": rf"{POLICY}Worker.finished {FILE}{CALL}",
    "report": rf"{POLICY}Worker.report {FILE}{CALL}",
    "reply": rf"{POLICY}Worker.reply {FILE}{CALL}",
    "coordinator": rf"{POLICY}Mind.on_report: TimeoutError:{CALL}",
    "silent": SILENT,
    "endless": SILENT.replace("Mind", "Waking"),
    "again": rf"{POLICY}Waking.on_timeout was called 10000 times at [\d.]+ s of the run, as .*",
    "factory": rf"accel bad: could not be built: (TimeoutError:)?{HOOK}",
    "hook": rf"accel bad: geomx_sim failed: (TimeoutError:)?{HOOK}",
    "observer": rf"accel bad: Bad.geomx_events.<locals>.<lambda> {FILE}{CALL}",
    "process_loops": rf"accel bad: SimPy process Bad.geomx_sim.<locals>.look {FILE}{INSTANT}",
    "process_calls": rf"accel bad: .*(forever|look) {FILE}({INSTANT}|{CALL})",
    "process_spins": rf"accel bad: SimPy process Bad.geomx_sim.<locals>.look {FILE}{INSTANT}",
    "process_breeds": rf"accel bad: SimPy process Bad.geomx_sim.<locals>.child {FILE}{INSTANT}",
    "callback": rf"accel bad: SimPy callback Bad.geomx_sim.<locals>.again {FILE}{INSTANT}",
}


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the overrides of a run with the plugin, to which tests add `accel.bad.how`."""
    install(tmp_path / "site", "bad_stranger", SOURCE, monkeypatch)
    monkeypatch.setattr(rules, "HOOK_LIMIT_S", LIMIT_S)
    limit = f"runtime.failure_timeout_s={LIMIT_S}"
    return ["workload=tiny", "+accel=[bad]", limit, f"hydra.run.dir={tmp_path / 'run'}"]


# Every worker hangs in turn, which `after_step` shows; one worker takes a quarter of the time.
BY_WORKER = ("finished", "report", "reply")


@pytest.mark.parametrize("how", WAYS)
def test_every_hang_in_the_simulator_is_an_error(
    how: str, words: list[str], network_file: Build, tmp_path: Path
) -> None:
    words += [f"network={network_file(1)}"] if how in BY_WORKER else []
    began = time.monotonic()
    with pytest.raises(GeomxError) as caught:
        geomx.run([*words, f"accel.bad.how={how}"])
    assert re.fullmatch(WAYS[how] + ".*", str(caught.value)), caught.value
    assert time.monotonic() - began < 30
    if (tmp_path / "run" / "summary.json").exists():
        aborted = geomx.Results.load(tmp_path / "run").summary["aborted"]
        assert aborted == str(caught.value) or how == "hook"


def test_a_standstill_is_detected_although_a_process_advances_time(words: list[str]) -> None:
    with pytest.raises(GeomxError, match=SILENT):
        geomx.run([*words, "accel.bad.how=process_ticks"])


def test_a_standstill_names_the_waiting_nodes_and_their_peers(words: list[str]) -> None:
    """A worker that ends one round before the others."""
    with pytest.raises(GeomxError, match=STANDSTILL) as caught:
        geomx.run([*words, "accel.bad.how=fewer"])
    said = str(caught.value)
    assert re.search(
        r"beijing/worker. waits for round 20 of hidden.weight .* from beijing/serv", said
    )
    lacking = r"chengdu/server waits for round 20 of hidden.weight from chengdu/worker. \(which has"
    assert re.search(lacking, said)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("error", rf"{POLICY}Policy.after_step {FILE} failed: ZeroDivisionError: oh"),
        ("process_fails", rf"accel bad: Bad.geomx_sim.<locals>.look {FILE} failed: ZeroDivision.*"),
        ("process_fails_oddly", rf"accel bad: Bad.geomx_sim.<locals>.look {FILE} failed: Odd: odd"),
        (
            "process_yields",
            rf'accel bad: SimPy process Bad.geomx_sim.<locals>.look {FILE} failed: .* value "3"',
        ),
    ],
)
def test_exceptions_in_processes_and_policies_are_one_sentence(
    how: str, said: str, words: list[str]
) -> None:
    with pytest.raises(geomx.PluginError) as caught:
        geomx.run([*words, f"accel.bad.how={how}"])
    assert re.fullmatch(said, str(caught.value)), caught.value


TERM, INT = signal.SIGTERM, signal.SIGINT  # which come to the same handler
SIGNALLED = {
    ("sim", TERM): ("after_step", "process_loops", "sleep"),
    ("sim", INT): ("stubborn", "coordinator", "process_spins", "after_step"),
    ("live", TERM): ("after_step", "silent"),
    ("live", INT): ("coordinator", "after_step"),
}


@pytest.mark.parametrize(("mode", "number"), SIGNALLED)
def test_a_signal_ends_a_run_that_hangs(
    mode: str, number: signal.Signals, words: list[str], network_file: Build, tmp_path: Path
) -> None:
    """One signal is sufficient, whatever the plugin does, and no process remains."""
    hows = SIGNALLED[mode, number]
    words += [f"network={network_file(1)}"]
    started = {}
    for how in hows:
        place = tmp_path / how
        own = [f"accel.bad.how={how}", f"hydra.run.dir={place}", "runtime.failure_timeout_s=300"]
        said = [word for word in words if not word.startswith(("hydra", "runtime"))]
        command = [sys.executable, "-m", "geomx", *said, *own, f"mode={mode}", "runtime.pace=false"]
        hangs = tmp_path / f"{how} hangs"
        started[how] = process = subprocess.Popen(
            command, env={**os.environ, "HANGS": str(hangs)},
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        while not hangs.exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.send_signal(number)  # before the next starts, because this one may loop
    began = time.monotonic()
    for how, process in started.items():
        _, err = process.communicate(timeout=40)
        assert time.monotonic() - began < 30, how
        assert process.returncode not in (0, 2), (how, err)
        assert "interrupted" in err and "Traceback" not in err, (how, err)
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)
    aborted = geomx.Results.load(tmp_path / "after_step").summary["aborted"]
    assert aborted == "interrupted"
    assert not _left(tmp_path)


def _left(folder: Path) -> list[str]:
    """Return the processes whose command line contains `folder`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in command:
            found.append(command)
    return found


@pytest.mark.parametrize("how", ["stubborn", "process_swallows"])
def test_code_that_swallows_interruptions_ends_with_its_process(
    how: str, words: list[str], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "geomx", *words, f"accel.bad.how={how}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("accel bad: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("how", ["after_step", "finished", "report", "reply", "coordinator"])
def test_policies_and_coordinators_that_loop_in_live_runs_are_named(
    how: str, words: list[str], network_file: Build
) -> None:
    said = WAYS[how].removesuffix(CALL).replace(": TimeoutError:", "").replace("Mind.", "")
    live = ["mode=live", "runtime.failure_timeout_s=1.5", f"network={network_file(1)}"]
    with pytest.raises(GeomxError, match=rf"{said} did not return for .*runtime.failure_timeout_s"):
        geomx.run([*words, *live, f"accel.bad.how={how}"])


ANSWER = r"an answer of the coordinator Mind \(accel bad: geomx_sync_policy\)"
ORDER = r"an order of the coordinator Orders \(accel bad: geomx_overlay\)"


@pytest.mark.parametrize(
    ("how", "limit_s", "what"),
    [("silent", 1.5, ANSWER), ("picky", 1.5, ANSWER), ("no_push", 1, ORDER), ("no_pull", 1, ORDER)],
)
def test_a_coordinator_that_says_nothing_in_a_live_run_is_named(
    how: str, limit_s: float, what: str, words: list[str], network_file: Build
) -> None:
    said = (
        rf"party0/worker0, party1/worker0 waited more than {limit_s} s for {what} on hub/scheduler"
    )
    live = ["mode=live", f"runtime.failure_timeout_s={limit_s}"]
    live += [f"network={network_file(1, 1)}"]
    with pytest.raises(geomx.PluginError, match=said):
        geomx.run([*words, f"accel.bad.how={how}", *live])


SCRIPT = """
import numpy as np
import geomx.kv
store = geomx.kv.create("dist_sync")
store.init("w", values := np.ones(3, np.float32))
for step in (rhythm := store.rhythm(3)):
    if rhythm.due():
        store.push("w", values)
        store.pull("w", values)
        rhythm.exchanged()
"""


def test_scripts_too_are_told_that_a_coordinator_says_nothing(
    words: list[str], network_file: Build, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    words = [word for word in words if not word.startswith(("workload", "runtime"))]
    words += [f"network={network_file(1, 1)}", "runtime.failure_timeout_s=1"]
    command = ["accel.bad.how=picky", "--", sys.executable, str(tmp_path / "train.py")]
    with pytest.raises(geomx.PluginError, match=rf"waited more than 1 s for {ANSWER} on hub/sched"):
        launch.main([*words, *command])


def launch_script(script: str, network_file: Build, tmp_path: Path, *arguments: str) -> None:
    """Launch a script on two parties of one worker, of which none may wait for more than 1 s."""
    (tmp_path / "train.py").write_text(script)
    words = [f"network={network_file(1, 1)}", "runtime.failure_timeout_s=1"]
    words += [f"hydra.run.dir={tmp_path / 'run'}", "--", sys.executable, str(tmp_path / "train.py")]
    launch.main([*words, *arguments])


MORE = """
import sys
import numpy as np
import geomx.kv
store = geomx.kv.create("dist_sync")
keys = ["a", "b"][: 1 + (store.global_rank == int(sys.argv[1]))]
for key in keys:
    store.init(key, np.ones(3, np.float32))
for step in range(2):
    for key in keys:
        store.push(key, np.ones(3, np.float32))
    for key in keys:
        store.pull(key, np.ones(3, np.float32))
"""


@pytest.mark.parametrize("rank", [0, 1])
def test_scripts_with_different_models_are_named(
    rank: int, network_file: Build, tmp_path: Path
) -> None:
    said = f"party{rank}/worker0 has initialised b, and party{1 - rank}/worker0 has not"
    with pytest.raises(GeomxError, match=said):
        launch_script(MORE, network_file, tmp_path, str(rank))


ALONE = """
import numpy as np
import geomx.kv
store = geomx.kv.create("dist_sync")
store.init("a", np.ones(3, np.float32))
if store.global_rank == 1:
    store.set_optimizer("sgd", learning_rate=0.1)
store.push("a", np.ones(3, np.float32))
store.pull("a", np.ones(3, np.float32))
"""


def test_a_script_whose_first_worker_sets_no_optimizer_is_named(
    network_file: Build, tmp_path: Path
) -> None:
    said = "party1/worker0 has set an optimizer, and party0/worker0 has not, and all wait"
    with pytest.raises(GeomxError, match=said):
        launch_script(ALONE, network_file, tmp_path)


DEEPER = """
import sys, threading
import geomx.mxnet
import mxnet as mx
from mxnet import autograd, gluon
store = mx.kv.create("dist_sync")
net = gluon.nn.Sequential()
net.add(gluon.nn.Dense(2, in_units=4))
if store.global_rank == int(sys.argv[1]):
    net.add(gluon.nn.Dense(2, in_units=2))
net.initialize()
trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore=store)
def train():
    for step in range(2):
        with autograd.record():
            loss = net(mx.nd.ones((1, 4))).sum()
        loss.backward()
        trainer.step(1)
        loss.asscalar()
if sys.argv[2] == "main":
    train()
else:
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
"""


@pytest.mark.parametrize(("rank", "thread"), [(0, "main"), (1, "main"), (1, "another")])
def test_gluon_scripts_with_different_models_are_named(
    rank: int, thread: str, network_file: Build, tmp_path: Path
) -> None:
    """They wait in MXNet, for an operation of its engine."""
    said = rf"party{rank}/worker0 has initialised 2( and 1 more)?, and party{1 - rank}/worker0 has"
    with pytest.raises(GeomxError, match=said):
        launch_script(DEEPER, network_file, tmp_path, str(rank), thread)


def test_a_lost_worker_does_not_hide_that_a_coordinator_says_nothing(
    words: list[str], network_file: Build
) -> None:
    live = ["mode=live", "runtime.failure_timeout_s=1", f"network={network_file(1, 2)}"]
    kill = ["faults.on_loss=continue", "scenario=[{at_s: 0.3, kill: party1/worker1}]"]
    said = rf"party0/worker0, party1/worker0 waited more than 1 s for {ANSWER} on hub/scheduler"
    with pytest.raises(geomx.PluginError, match=said):
        geomx.run([*words, "accel.bad.how=picky", *live, *kill])


def test_computing_gradients_has_no_time_limit(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit applies to plugins' calls, not to the computation of a workload."""
    from geomx.workloads.tiny import TinyModel

    real, slow = TinyModel.step, iter([2 * LIMIT_S])

    def step(self: object, *arguments: int) -> float:
        time.sleep(next(slow, 0.0))
        return real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(TinyModel, "step", step)
    assert "aborted" not in geomx.run([*words, "accel.bad.how=none"]).summary
