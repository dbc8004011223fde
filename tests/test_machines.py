"""Runs on many machines: job files, agents and their connections. All machines are this one."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from geomx import _core
from geomx.cli.main import main
from geomx.config.compose import compose
from geomx.errors import ConfigError, NodeLost
from geomx.kv.local import unshaped
from geomx.live import access
from geomx.live.fork_pool import POOL
from geomx.live.launcher import run_script
from geomx.machines import jobfile, reach
from geomx.machines.certs import make
from geomx.machines.frames import SILENCE_S
from geomx.machines.launch import composed_experiment, launch
from geomx.machines.line import Line
from geomx.results.results import Results
from tests.ports import free_port

JOB = {
    "hosts": {"a": {"address": "127.0.0.1"}, "b": {"address": "127.0.0.1"}},
    "parties": {
        "hub": {"scheduler": "a", "global_server": "a"},
        "east": {"server": "b", "worker": ["a", "b"]},
    },
    "reach": "env {command}",
}
NAMES = ["hub/scheduler", "hub/global_server0", "east/server", "east/worker0", "east/worker1"]
GONE_S = 15.0  # time limit for the end of a job whose launcher was killed


def write(folder: Path, **changes: object) -> Path:
    """Write a job file."""
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump({**JOB, **changes}))
    return file


# ---- job files ----


def test_the_default_network_is_built_from_the_parties(tmp_path: Path) -> None:
    job = jobfile.read(write(tmp_path))
    cluster = composed_experiment(job).cluster
    assert [node.name for node in cluster.nodes] == NAMES
    assert job.homes(cluster) == dict(zip(NAMES, "aabab", strict=True))


def test_a_network_may_be_named_and_nodes_may_share_a_machine(tmp_path: Path) -> None:
    site = {"server": "b", "worker": "b"}
    parties = {"hub": JOB["parties"]["hub"], "beijing": site, "chengdu": site}
    job = jobfile.read(write(tmp_path, network="two_parties", parties=parties))
    homes = job.homes(composed_experiment(job).cluster)
    assert homes["beijing/worker1"] == homes["chengdu/worker0"] == "b"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"hosts": {}}, "no such machine"),
        ({"parties": {"hub": {"sheduler": "a"}}}, "did you mean scheduler"),
        ({"parties": {"east": {"worker": "a"}}}, "scheduler and the global servers"),
        ({"reach": "ssh {address}"}, "needs {command}"),
        ({"reach": "ssh {there} {command}"}, "is not a valid template"),
        ({"reach": "sh -c {command}"}, r"-c takes the first only: leave `sh -c` out, or write sh"),
        ({"reach": "ssh {address} /bin/bash -lc {command}"}, "leave `/bin/bash -lc` out"),
        ({"network": "two_parties"}, "the network has no"),
        ({"colour": "red"}, "unknown option"),
    ],
)
def test_errors_in_job_files_are_named(
    tmp_path: Path, changes: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        job = jobfile.read(write(tmp_path, **changes))
        job.homes(composed_experiment(job).cluster)


def test_the_arguments_of_a_command_are_unchanged() -> None:
    words = reach.argv("srun -w {host} {command}", "n1", "10.0.0.1", ["python", "-m", "x y"])
    assert words == ["srun", "-w", "n1", "python", "-m", "x y"]


def test_addresses_beyond_loopback_need_certificates(tmp_path: Path) -> None:
    hosts = {"a": {"address": "10.9.8.7"}, "b": {"address": "127.0.0.1"}}
    with pytest.raises(ConfigError, match=r"hosts.a.address=10.9.8.7: .*geomx certs.*insecure"):
        launch(write(tmp_path, hosts=hosts), [])


def test_without_tls_in_the_core_only_local_runs_are_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built = {**_core.build_info(), "tls": "no_openssl"}  # as tls_absent.cc reports
    assert built.keys() == _core.build_info().keys()
    monkeypatch.setattr(_core, "build_info", lambda: built)
    assert main(["info"]) == 0
    assert "TLS: this geomx was built without TLS: install OpenSSL's headers (libssl-dev" in (
        capsys.readouterr().out
    )
    hosts = {"a": {"address": "10.9.8.7"}, "b": {"address": "127.0.0.1"}}
    for secured in ({}, {"tls": "certs"}):
        with pytest.raises(ConfigError, match=r"hosts.a.address=10.9.8.7: .*without TLS.*libssl"):
            launch(write(tmp_path, hosts=hosts, **secured), [])


# ---- whole jobs ----


@pytest.mark.slow
def test_a_job_writes_the_same_files_as_a_local_run(tmp_path: Path) -> None:
    _, results = launch(write(tmp_path), ["iterations=3", f"hydra.run.dir={tmp_path}/run"])
    assert results is not None
    assert sorted({row["worker"] for row in results.iterations}) == ["east/worker0", "east/worker1"]
    assert results.summary["rounds"] == 3
    assert results.summary["accuracy"]["final"] is not None
    assert results.parameters()
    files = ("summary.json", "iterations.csv", "evaluations.csv", "links.csv", "trace.json")
    for file in (*files, "report.html", "parameters.npz", "network.json"):
        assert (tmp_path / "run" / file).stat().st_size > 0
    for name in NAMES:
        assert (tmp_path / "run/nodes" / f"{name.replace('/', '-')}.log").exists()


SCRIPT = """
    import os, sys
    import numpy as np
    import geomx.kv
    store = geomx.kv.create("dist_sync")
    store.init(0, np.zeros(4, np.float32))
    store.push(0, np.ones(4, np.float32))
    print("sum", store.pull(0)[0], os.environ["COLOUR"], sys.argv[1])
"""


@pytest.mark.slow
def test_every_worker_runs_the_script_and_its_output_is_labelled(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    file = write(tmp_path, directory=str(tmp_path), env={"COLOUR": "red"})
    command = [sys.executable, "train.py", "a b"]
    directory, results = launch(file, [f"hydra.run.dir={tmp_path}/run"], command)
    assert directory == results.directory == tmp_path / "run"
    assert [row["worker"] for row in results.iterations] == ["east/worker0", "east/worker1"]
    np.testing.assert_array_equal(results.parameters()["0"], [2, 2, 2, 2])
    shown = capfd.readouterr().err
    for worker in ("east/worker0", "east/worker1"):
        assert f"{worker}       | sum 2.0 red a b\n" in shown
    assert "sum 2.0" in (tmp_path / "run/nodes/east-worker1.log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("agents", [True, False])
def test_a_failure_stops_all_nodes_and_is_named(
    agents: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also processes in their own sessions, like those of torchrun."""
    script = "import geomx.kv, subprocess as s; store = geomx.kv.create();"
    script += f" s.Popen(['sleep', '600'], start_new_session=True); open('{tmp_path}/slept', 'w');"
    script += " print(no_data) if store.rank else s.run(['sleep', '600'])"
    words, command = [f"hydra.run.dir={tmp_path}/run"], [sys.executable, "-c", script]
    monkeypatch.setenv("GEOMX_TEST", str(tmp_path))
    with pytest.raises(NodeLost, match=r"\w/worker\d was lost: exit status 1: .*no_data"):
        if agents:
            launch(write(tmp_path), words, command)
        else:
            run_script(*compose(["network=two_parties", *words]), command)
    if kept := POOL.take():  # which tests share
        kept.end()
    assert (tmp_path / "slept").exists()
    assert all_gone(tmp_path)


@pytest.mark.slow
def test_an_unreachable_machine_is_named_with_the_error_output(tmp_path: Path) -> None:
    broken = "sh -c 'echo no route to host >&2; exit 255' {command}"
    hosts = {**JOB["hosts"], "b": {"address": "127.0.0.1", "reach": broken}}
    sentence = r"east/\w+ was lost: no route to host; the connection to it broke \(sh: "
    with pytest.raises(NodeLost, match=sentence):
        launch(write(tmp_path, hosts=hosts), [f"hydra.run.dir={tmp_path}/run"])


@pytest.mark.slow
def test_a_machine_that_does_not_answer_is_named_with_the_command(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Some commands start a program that reads its input and never answers."""
    silent = "sh -c 'exec cat > /dev/null' {command}"
    hosts = {**JOB["hosts"], "a": {"address": "127.0.0.1", "reach": silent}}
    words = ["runtime.failure_timeout_s=1", f"hydra.run.dir={tmp_path}/run"]
    job = threading.Thread(target=_launched_in_vain, args=(write(tmp_path, hosts=hosts), words))
    job.start()
    shown = ""
    deadline = time.monotonic() + 30
    while "waited" not in shown and time.monotonic() < deadline:
        shown += capfd.readouterr().err
        time.sleep(0.1)
    for pid in children("cat"):
        os.kill(pid, signal.SIGKILL)
    job.join(60)
    assert re.search(
        r"Z warning: the launcher has waited \d+ s for 1 agents to answer; the first is that of "
        r"hub/scheduler, reached by `sh -c 'exec cat > /dev/null' ",
        shown,
    ), shown


def _launched_in_vain(file: Path, words: list[str]) -> None:
    with pytest.raises(NodeLost):
        launch(file, words)


def children(name: str) -> list[int]:
    """Return the child processes of that name."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            head, _, tail = (entry / "stat").read_text().rpartition(")")
        except OSError:
            continue
        if head.endswith(f"({name}") and int(tail.split()[1]) == os.getpid():
            found.append(int(entry.name))
    return found


def test_missing_files_of_certificates_are_named(tmp_path: Path) -> None:
    for name in ("authority.pem", "node.key"):
        (tmp_path / name).write_text("")
    with pytest.raises(ConfigError) as caught:
        access.read_files(tmp_path)
    assert str(caught.value) == f"tls={tmp_path}: lacks node.pem, which `geomx certs` makes"


# ---- manually started nodes ----


def node(folder: Path, *words: str, token: str = "a secret") -> subprocess.Popen[str]:
    """Start ``geomx node``."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "geomx", "node", *words, "--directory", str(folder / "run")],
        env={**os.environ, "GEOMX_TOKEN": token, "GEOMX_TEST": str(folder)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.slow
def test_nodes_may_be_started_in_any_order_and_collected(tmp_path: Path) -> None:
    port = str(free_port())
    whom = ("--scheduler", f"localhost:{port}")
    east = ("--party", "east")
    nodes = [
        node(tmp_path, "--role", "worker", *east, "--index", "1", *whom),
        node(tmp_path, "--role", "worker", *east, *whom),
        node(tmp_path, "--role", "server", *east, *whom),
        node(tmp_path, "--role", "global_server", "--name", "hub/global_server0", *whom),
    ]
    time.sleep(1.0)  # the scheduler starts last
    words = ["iterations=2", "numerics=false"]
    scheduler = ("--role", "scheduler", "--party", "hub", "--port", port)
    nodes.append(node(tmp_path, *scheduler, "--job", str(write(tmp_path)), *words))
    for process in reversed(nodes):  # the scheduler first: without it, all others wait
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert main(["collect", str(tmp_path / "job.yaml"), str(tmp_path / "run"), *words]) == 0
    results = Results.load(tmp_path / "run")
    assert len(results.iterations) == 4
    assert results.summary["rounds"] == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("127.0.0.1:9", r"no connection to 127\.0\.0\.1:9 in [12]\.\d s \(\d+ attempts, .*check"),
        ("nowhere.invalid:9", r"nowhere\.invalid:9 could not be resolved in [12]\.\d s .*check"),
    ],
)
def test_an_unreachable_scheduler_is_named_with_its_address(
    tmp_path: Path, address: str, sentence: str
) -> None:
    words = ("--role", "server", "--party", "east", "--scheduler", address, "--patience", "1.5")
    process = node(tmp_path, *words)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert re.search(sentence, errors), errors


@pytest.mark.slow
def test_a_wrong_token_is_refused_and_logged(tmp_path: Path) -> None:
    port = str(free_port())
    words = ("--role", "scheduler", "--party", "hub", "--port", port)
    scheduler = node(tmp_path, *words, "--job", str(write(tmp_path)))
    words = ("--role", "server", "--party", "east", "--scheduler", f"127.0.0.1:{port}")
    stranger = node(tmp_path, *words, token="a guess")
    _, said = stranger.communicate(timeout=120)
    assert scheduler.stderr is not None
    patience = threading.Timer(60, scheduler.terminate)
    patience.start()
    line = scheduler.stderr.readline()  # it may not have started yet
    patience.cancel()
    scheduler.terminate()
    scheduler.communicate(timeout=60)
    assert stranger.returncode == 1
    assert "check that token, node, version and certificate" in said
    assert re.fullmatch(r"refused 127\.0\.0\.1:\d+: not a member\n", line), line


@pytest.mark.slow
def test_a_certificate_of_another_node_is_named_on_both_sides(tmp_path: Path) -> None:
    port, file = str(free_port()), write(tmp_path, tls="certs")
    assert main(["certs", str(file)]) == 0
    certs = tmp_path / "certs" / "nodes"
    words = ("--role", "scheduler", "--party", "hub", "--port", port, "--job", str(file))
    scheduler = node(tmp_path, *words, "--tls", str(certs / "hub-scheduler"))
    words = ("--role", "server", "--party", "east", "--scheduler", f"127.0.0.1:{port}")
    impostor = node(tmp_path, *words, "--tls", str(certs / "east-worker0"))
    _, said = impostor.communicate(timeout=120)
    assert scheduler.stderr is not None
    told = next(line for line in scheduler.stderr if line.startswith("refused"))
    scheduler.terminate()
    scheduler.communicate(timeout=60)
    reason = "its certificate is that of east/worker0, and it calls itself east/server"
    assert f"refused this node ({reason}): check that" in said
    assert re.search(rf"refused 127\.0\.0\.1:\d+: {reason}\n", told), told


@pytest.mark.slow
def test_a_log_names_a_hundred_refused_callers_and_counts_all(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(unshaped({"east": 1}).to_json())
    words = ["-P", "-m", "geomx.live", "--experiment", "spec.json", "--notes", "notes"]
    scheduler = subprocess.Popen(
        [sys.executable, *words], cwd=tmp_path, env={**os.environ, "GEOMX_TOKEN": "t"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert scheduler.stdout is not None
    port = scheduler.stdout.readline().strip().rpartition(":")[2]
    met, deadline = 0, time.monotonic() + 60
    while met < 120 and time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", int(port)), timeout=5) as stranger:
                stranger.sendall(bytes(200))
                stranger.recv(1)
        except ConnectionRefusedError:
            time.sleep(0.1)
            continue
        except OSError:
            pass
        met += 1
    scheduler.terminate()
    _, said = scheduler.communicate(timeout=60)
    assert said.count("refused 127.0.0.1:") == 100
    assert "refused 120 connections in total; the first 100 are named above\n" in said


# ---- killed nodes ----


@pytest.mark.slow
def test_a_killed_node_of_a_job_is_restarted(tmp_path: Path) -> None:
    """The others continue, and the new process takes part."""
    scenario = "scenario=[{at_s: 0.5, kill: east/worker1, restart_s: 0.1}]"
    words = ["faults.on_loss=continue", "iterations=250", "numerics=false", scenario]
    _, results = launch(write(tmp_path), [f"hydra.run.dir={tmp_path}/run", *words])
    assert results is not None
    (fault,) = results.summary["faults"]
    assert fault["node"] == "east/worker1" and fault["recovered_s"] > 0
    log = (tmp_path / "run/nodes/hub-scheduler.log").read_text()
    assert "east/worker1 is lost, rounds complete without it" in log
    assert "east/worker1 is back" in log


@pytest.mark.slow(2)
def test_killed_servers_of_a_job_resume_on_their_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the bits of an undisturbed job; their journals are deleted in the end."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "states"))
    events = ", ".join(
        f"{{at_s: {at_s}, kill: hub/{node}, restart_s: 0.2}}"
        for at_s, node in ((0.3, "global_server0"), (0.5, "scheduler"))
    )
    found = []
    for name, scenario in (("calm", ""), ("killed", events)):
        words = ["workload=tiny", "workload.forward_ms=20", "iterations=60"]
        words += ["faults.on_loss=continue", "faults.durable=log", f"scenario=[{scenario}]"]
        _, results = launch(write(tmp_path), [f"hydra.run.dir={tmp_path}/{name}", *words])
        assert results is not None
        found.append(results)
    calm, killed = found
    rows = killed.summary["faults"]
    assert [row["node"] for row in rows] == ["hub/global_server0", "hub/scheduler"]
    assert all(row["recovered_s"] > 0.2 for row in rows)
    for key, value in calm.parameters().items():
        assert np.array_equal(value, killed.parameters()[key])
    log = (tmp_path / "killed/nodes/hub-global_server0.log").read_text()
    assert "hub/global_server0 continues from its journal" in log
    assert list((tmp_path / "states/geomx").iterdir()) == []


def test_what_cannot_resume_on_several_machines_is_refused(tmp_path: Path) -> None:
    sentence = "needs faults.on_loss=continue on several machines"
    with pytest.raises(ConfigError, match=sentence):
        launch(write(tmp_path), [f"hydra.run.dir={tmp_path}/run", "faults.durable=log"])


REPLICA = ["workload=tiny", "faults.durable=replica", "faults.suspect_s=1"]


def with_standby(folder: Path, site: str = "hub", **changes: object) -> Path:
    """Write a job file that has a machine for a standby."""
    parties = {party: dict(roles) for party, roles in JOB["parties"].items()}
    parties[site]["standby"] = "b"
    return write(folder, parties=parties, **changes)


@pytest.mark.slow(2)
def test_a_standby_on_another_machine_takes_over(tmp_path: Path) -> None:
    """With the bits of an undisturbed job, with TLS, and with all that both had to report."""
    file = with_standby(tmp_path, tls="certs", words=REPLICA)
    make(tmp_path / "certs", composed_experiment(jobfile.read(file)).cluster)
    found = []
    for name, scenario in (("calm", ""), ("killed", "{at_s: 0.4, kill: hub/global_server0}")):
        words = ["workload.forward_ms=20", "iterations=100", f"scenario=[{scenario}]"]
        _, results = launch(file, [f"hydra.run.dir={tmp_path}/{name}", *words])
        assert results is not None
        found.append(results)
    calm, killed = found
    (row,) = killed.summary["faults"]
    assert row["node"] == "hub/global_server0" and 0 < row["recovered_s"] < 30
    for key, value in calm.parameters().items():
        assert np.array_equal(value, killed.parameters()[key])
    log = (tmp_path / "killed/nodes/hub-standby0.log").read_text()
    assert "hub/global_server0 goes on here, at its standby's place" in log
    notes = (tmp_path / "killed/nodes/hub-global_server0.jsonl").read_text().splitlines()
    assert [next(iter(json.loads(note))) for note in notes].count("end") == 1


@pytest.mark.slow
def test_a_standby_takes_over_when_the_machine_of_its_server_is_out_of_reach(
    tmp_path: Path,
) -> None:
    file = with_standby(tmp_path, site="east")
    process = started(file, *REPLICA, "faults.standby=east", "iterations=400")
    (agent,) = [
        pid
        for pid in processes(tmp_path)
        if b"\0node\0--role\0global_server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    os.kill(agent, signal.SIGKILL)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    lost = "hub/global_server0 was lost with the connection to its machine: its standby"
    assert lost in errors and "goes on here, at its standby's place" in errors
    assert max(row["iteration"] for row in Results.load(tmp_path / "run").iterations) == 399


@pytest.mark.parametrize(
    ("standby", "words", "sentence"),
    [
        (False, REPLICA, r"parties\.hub\.standby.*must be one machine"),
        (True, ["workload=tiny"], r"no standby there \(needs faults\.durable=replica"),
    ],
)
def test_machines_of_standbys_are_those_that_the_options_need(
    tmp_path: Path, standby: bool, words: list[str], sentence: str
) -> None:
    file = with_standby(tmp_path) if standby else write(tmp_path)
    with pytest.raises(ConfigError, match=sentence):
        launch(file, [f"hydra.run.dir={tmp_path}/run", *words])


def test_times_of_other_machines_are_converted() -> None:
    line = object.__new__(Line)
    line._ahead_s = 40.0
    for what in ("started", "recovered"):
        assert json.loads(line._on_this_clock(json.dumps({what: 42.5}))) == {what: 2.5}
    other = json.dumps({"iteration": 1})
    assert line._on_this_clock(other) == other


@pytest.mark.slow
def test_scripts_on_several_machines_keep_logs_where_they_can(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = []
    monkeypatch.setattr("geomx.machines.launch.run_script", lambda made, *_: chosen.append(made))
    for name, words in (("first", []), ("second", ["+accel=[tsengine]"])):
        launch(write(tmp_path), [f"hydra.run.dir={tmp_path}/{name}", *words], ["true"])
    options = [(made.faults.on_loss, made.faults.durable) for made in chosen]
    assert options == [("continue", "log"), ("stop", "none")]
    assert "warning: faults.durable=none, since log is not possible" in capfd.readouterr().err


# ---- killed launchers ----


def processes(folder: Path) -> list[int]:
    """Return the processes of a job whose environment contains `folder`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"GEOMX_TEST={folder}\0".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return [number for number in found if number != os.getpid()]


def started(file: Path, *words: str) -> subprocess.Popen[str]:
    """Start ``geomx launch``; return when it trains."""
    folder = file.parent
    program = "import sys; from geomx.cli.main import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "launch", str(file), "iterations=5000", "numerics=false",
         f"hydra.run.dir={folder}/run", *words],
        env={**os.environ, "GEOMX_TEST": str(folder)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    table = folder / "run" / "iterations.csv"
    while not table.exists() or table.read_text().count("\n") < 5:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return process


def all_gone(folder: Path) -> bool:
    """Return whether all processes end within the time limit."""
    deadline = time.monotonic() + GONE_S
    while processes(folder) and time.monotonic() < deadline:
        time.sleep(0.1)
    return processes(folder) == []


@pytest.mark.slow
def test_nothing_outlives_a_killed_launcher(tmp_path: Path) -> None:
    process = started(write(tmp_path))
    assert len(processes(tmp_path)) >= 11  # the launcher, and five agents and nodes
    process.kill()
    process.communicate(timeout=GONE_S)
    assert all_gone(tmp_path)


@pytest.mark.slow
def test_nothing_outlives_a_launcher_that_falls_silent(tmp_path: Path) -> None:
    assert SILENCE_S < GONE_S - 4
    process = started(write(tmp_path))
    process.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + GONE_S
    while len(processes(tmp_path)) > 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    left = [pid for pid in processes(tmp_path) if pid != process.pid and not zombie(pid)]
    process.kill()
    process.communicate(timeout=GONE_S)
    assert left == []


def zombie(pid: int) -> bool:
    """Return whether a process has ended but has not been waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.slow
def test_ctrl_c_keeps_results(tmp_path: Path) -> None:
    process = started(write(tmp_path))
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert f"interrupted; results up to then are in {tmp_path}" in errors
    assert all_gone(tmp_path)
    kept = Results.load(tmp_path / "run")
    assert len(kept.iterations) >= 4
    assert kept.summary["aborted"] == "interrupted"
