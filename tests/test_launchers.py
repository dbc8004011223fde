"""Launchers other than SSH: Slurm, Kubernetes, Ray and people, as far as one machine can test."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from geomx.cli.main import main
from geomx.errors import ConfigError, GeomxError
from geomx.live.spec import Spec
from geomx.machines import jobfile, kubernetes, ray
from geomx.machines.certs import make
from geomx.machines.launch import composed_experiment, launch
from geomx.results.results import Results
from tests.ports import free_port

PARTIES = {
    "hub": {"scheduler": "n0", "global_server": "n0"},
    "east": {"server": "n1", "worker": ["n0", "n1"]},
}
WORDS = ["iterations=2", "numerics=false"]
NODES = 5


def write(folder: Path, **content: Any) -> Path:
    """Write a job file."""
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump({"parties": PARTIES, **content}))
    return file


def program(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a program as the first of that name on the path."""
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


# ---- Slurm ----


@pytest.mark.slow
def test_a_job_runs_on_the_allocation_of_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With local programs that accept the arguments of srun and scontrol."""
    log = tmp_path / "srun.log"
    steps = 'while [ "${1#--}" != "$1" ]; do echo "$1" >> LOG; shift; done\nexec "$@"'
    program(tmp_path / "bin", "srun", steps.replace("LOG", str(log)), monkeypatch)
    granted = '[ "$1 $2 $3" = "show hostnames two[1-2]" ] && echo localhost && echo 127.0.0.1'
    program(tmp_path / "bin", "scontrol", granted, monkeypatch)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "two[1-2]")
    file = write(tmp_path, hosts="slurm")
    _, results = launch(file, [*WORDS, f"hydra.run.dir={tmp_path}/run"])
    assert results is not None
    assert len(results.iterations) == 4
    asked = log.read_text().split()
    assert asked.count("--nodelist=localhost") == 3
    assert asked.count("--nodelist=127.0.0.1") == 2
    assert asked.count("--overlap") == NODES


def test_without_an_allocation_slurm_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    with pytest.raises(ConfigError, match="hosts=slurm: needs an allocation"):
        jobfile.read(write(tmp_path, hosts="slurm"))


# ---- Ray ----


RAYLET = "import os, geomx.kv; geomx.kv.create(); print('by', os.environ['RAY_RAYLET_PID'])"


def test_a_job_is_placed_by_the_resources_of_a_ray_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Three Ray nodes on this machine, one for every site."""
    library = pytest.importorskip("ray", reason="needs ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    small = {"num_cpus": 0, "object_store_memory": 80 << 20, "include_dashboard": False}
    cluster = Cluster()
    try:
        raylets = {}
        for site in ("hub", "east", "west"):
            there = cluster.add_node(resources={site: 1}, **small)
            (raylet,) = there.all_processes["raylet"]
            raylets[site] = str(raylet.process.pid)
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        parties = {
            "hub": {"scheduler": "hub", "global_server": "hub"},
            "east": {"server": "east", "worker": "east"},
            "west": {"server": "west", "worker": "west"},
        }
        file = write(tmp_path, hosts="ray", parties=parties, insecure=True)
        command = [sys.executable, "-c", RAYLET]
        launch(file, [f"hydra.run.dir={tmp_path}/run"], command)
        by = dict(re.findall(r"(\S+) +\| by (\d+)", capfd.readouterr().err))
        assert set(by) == {"east/worker0", "west/worker0"}
        for worker, raylet in by.items():
            assert raylet == raylets[worker.split("/")[0]]
        with pytest.raises(GeomxError, match="has the resource south: ray start --resources"):
            ray.carry("south", ["true"])
    finally:
        library.shutdown()
        cluster.shutdown()


def test_a_job_on_ray_needs_tls_or_insecure(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"hosts.n\d.address=auto: is beyond this machine"):
        launch(write(tmp_path, hosts="ray"), WORDS)


# ---- Kubernetes ----


@pytest.fixture(params=["insecure", "tls and a standby"])
def objects(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[list[dict[str, Any]]]:
    """Return the objects that ``geomx manifest`` writes."""
    machines = {name: {"address": "127.0.0.1"} for name in ("n0", "n1")}
    insecure = request.param == "insecure"
    how = {"insecure": True} if insecure else {"tls": "certs", "words": ["faults.durable=replica"]}
    file = write(tmp_path, hosts=machines, **how)
    if not insecure:
        make(tmp_path / "certs", composed_experiment(jobfile.read(file)).cluster)
    assert main(["manifest", str(file), *WORDS, "--image", "an/image", "--claim", "disk"]) == 0
    yield list(yaml.safe_load_all(capsys.readouterr().out))


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in objects if each["kind"] == kind]


@pytest.mark.slow
def test_a_manifest_conforms_to_the_schema(objects: list[dict[str, Any]]) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate")
    for each in objects:
        validator.validate(each, validator.latest_version(), strict=True)


@pytest.mark.slow
def test_a_manifest_has_a_consistent_set_for_every_party(
    objects: list[dict[str, Any]],
) -> None:
    (service,) = of_kind(objects, "Service")
    (secret,) = of_kind(objects, "Secret")
    (config,) = of_kind(objects, "ConfigMap")
    sets = {each["metadata"]["name"]: each["spec"] for each in of_kind(objects, "StatefulSet")}
    run = Spec.from_json(config["data"]["experiment.json"])
    pods = {name: each["replicas"] for name, each in sets.items()}
    assert pods == {"job-hub": 2 + len(run.cluster.standbys), "job-east": 3}
    assert run.iterations == 2
    for spec in sets.values():
        template = spec["template"]
        labels = template["metadata"]["labels"]
        assert spec["selector"]["matchLabels"] == labels
        assert service["spec"]["selector"].items() <= labels.items()
        assert spec["serviceName"] == service["metadata"]["name"]
        (container,) = template["spec"]["containers"]
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
        for item in volumes.get("tls", {}).get("secret", {}).get("items", []):
            assert secret["stringData"][item["key"]].startswith("-----BEGIN")


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("My_Job 1", "my-job-1"),
        ("2025-run", "job-2025-run"),
        ("北京", "job"),
        ("a" * 52, "a" * 52),
        (f"{'a' * 42}-{'b' * 20}", r"a{42}-[0-9a-f]{8}"),
        (f"{'a' * 51}..b", r"a{43}-[0-9a-f]{8}"),
    ],
)
def test_names_of_objects_are_those_that_kubernetes_takes(text: str, label: str) -> None:
    """They begin with a letter, and names that are too long still differ."""
    made = kubernetes._label(text)
    assert re.fullmatch(label, made)
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?", made)
    longer = [kubernetes._label(f"{text}{'c' * 52}{end}") for end in "12"]
    assert len(set(longer)) == 2 and set(map(len, longer)) <= {51, 52}


def test_a_manifest_has_the_variables_and_the_directory_of_a_job(tmp_path: Path) -> None:
    """Kubernetes replaces $(NAME), in variables and commands, and makes $ of $$."""
    hosts = {"n0": {"address": "127.0.0.1", "env": {"B": "2"}}, "n1": {"address": "127.0.0.1"}}
    about = {"insecure": True, "env": {"A": "$(HOME)"}, "directory": "/work"}
    job = jobfile.read(write(tmp_path, hosts=hosts, **about))
    with pytest.warns(match=r"hosts\.n0\.env has no effect in a manifest: `env` of the job file"):
        text = kubernetes.manifest(job, "job", "image", command=["sh", "-c", "echo $(pwd)"])
    commands = []
    for each in of_kind([*yaml.safe_load_all(text)], "StatefulSet"):
        (container,) = each["spec"]["template"]["spec"]["containers"]
        assert {"name": "A", "value": "$$(HOME)"} in container["env"]
        assert container["workingDir"] == "/work"
        commands.append(container["command"][2])
    assert [text.count(" -- sh -c 'echo $$(pwd)'") for text in commands] == [0, 2]
    job.directory = "work"
    with pytest.raises(ConfigError, match="directory=work: must be an absolute path"):
        kubernetes.manifest(job, "job", "image")


@pytest.mark.parametrize(
    ("programs", "said"),
    [
        ({"geomx": "trap 'echo left; exit 0' TERM; touch began; {wait}"}, "left\n"),
        ({"geomx": "exit 0", "sleep": "touch began; {wait}"}, ""),
    ],
)
def test_a_pod_ends_at_once_when_it_is_deleted(
    tmp_path: Path, programs: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shell, its first process, gets SIGTERM: while the node runs, which leaves, or later."""
    pause = shlex.quote(shutil.which("sleep") or "sleep")
    wait = f"while [ ! -e over ]; do {pause} 0.1; done"
    hosts = {name: {"address": "127.0.0.1"} for name in ("n0", "n1")}
    job = jobfile.read(write(tmp_path, hosts=hosts, insecure=True))
    objects = yaml.safe_load_all(kubernetes.manifest(job, "job", "image"))
    (pods, *_) = of_kind([*objects], "StatefulSet")
    (container,) = pods["spec"]["template"]["spec"]["containers"]
    for name, script in programs.items():
        program(tmp_path / "bin", name, script.format(wait=wait), monkeypatch)
    pod = subprocess.Popen(
        container["command"],
        env={**os.environ, "HOSTNAME": "job-hub-0", "POD_IP": "127.0.0.1"},
        cwd=tmp_path, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "began").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        pod.terminate()
        status = pod.wait(60)
    finally:
        (tmp_path / "over").touch()
        pod.kill()
    assert (pod.communicate()[0], status) == (said, 0)


@pytest.mark.slow
def test_the_pods_of_a_manifest_train(
    objects: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run every pod's command locally; volumes are folders, and all host names are this machine."""
    program(tmp_path / "bin", "sleep", "exit 0", monkeypatch)
    (secret,) = of_kind(objects, "Secret")
    (config,) = of_kind(objects, "ConfigMap")
    home = tmp_path / "home"
    pods = []
    for each in of_kind(objects, "StatefulSet"):
        name, pod = each["metadata"]["name"], each["spec"]["template"]["spec"]
        folder = home / name
        folder.mkdir(parents=True)
        (folder / "experiment.json").write_text(config["data"]["experiment.json"])
        (folder / "run").symlink_to(tmp_path / "run")
        for volume in pod["volumes"]:
            for item in volume.get("secret", {}).get("items", []):
                file = folder / "tls" / item["path"]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(secret["stringData"][item["key"]])
        script = pod["containers"][0]["command"][2]
        script = script.replace("/geomx/", f"{folder}/").replace("job-hub-0.job:", "localhost:")
        pods += [(f"{name}-{number}", script) for number in range(each["spec"]["replicas"])]
    (tmp_path / "run").mkdir()
    token = secret["stringData"]["token"]
    running = [
        subprocess.Popen(
            ["sh", "-c", script],
            env={**os.environ, "HOSTNAME": name, "POD_IP": "127.0.0.1", "GEOMX_TOKEN": token},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for name, script in reversed(pods)
    ]  # fmt: skip
    for process in running:
        said, _ = process.communicate(timeout=240)
        assert process.returncode == 0, said
    assert main(["collect", str(tmp_path / "job.yaml"), str(tmp_path / "run"), *WORDS]) == 0
    assert len(Results.load(tmp_path / "run").iterations) == 4


# ---- by hand ----


SCRIPT = """
import numpy as np
import geomx.kv
store = geomx.kv.create()
store.init(0, np.zeros(7))
for step in range(3):
    store.push(0, np.ones(7))
    value = store.pull(0)
assert (value == store.num_all_workers).all(), value
"""


@pytest.mark.slow
@pytest.mark.parametrize("told", [True, False])
def test_nodes_started_by_hand_may_run_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    """All may be given its command. The scheduler must be; workers say so if it was not.

    What they leave in a folder that they share becomes the files of a run.
    """
    monkeypatch.setenv("GEOMX_TOKEN", "secret")
    (tmp_path / "run/nodes").mkdir(parents=True)
    (tmp_path / "run/nodes/east-worker0.jsonl").write_text('{"iteration": 7}\n')  # another run's
    port, command = str(free_port()), ["--", sys.executable, "-c", SCRIPT]
    whom = ["--scheduler", f"127.0.0.1:{port}"]
    hosts = {name: {"address": "127.0.0.1"} for name in ("n0", "n1")}
    file = str(write(tmp_path, hosts=hosts))
    job = ["--port", port, "--job", file]
    nodes = {
        ("scheduler", "hub", "0"): [*job, *(command if told else [])],
        ("global_server", "hub", "0"): whom,
        ("server", "east", "0"): [*whom, *command],
        ("worker", "east", "0"): [*whom, *command],
        ("worker", "east", "1"): [*whom, *command],
    }
    processes = []
    with ExitStack() as stack:
        for (role, party, index), words in nodes.items():
            place = ["--role", role, "--party", party, "--index", index, "--directory", "run"]
            argv = [sys.executable, "-m", "geomx", "node", *place, *words]
            pipe = subprocess.PIPE
            process = subprocess.Popen(argv, cwd=tmp_path, stderr=pipe, text=True)
            processes.append(stack.enter_context(process))
            stack.callback(process.terminate)
        errors = [
            process.communicate(timeout=60)[1]
            for process in (processes if told else processes[-2:])
        ]
    if told:
        assert [process.returncode for process in processes] == [0] * NODES, errors
        assert main(["collect", file, str(tmp_path / "run")]) == 0
        results = Results.load(tmp_path / "run")
        assert [row["iteration"] for row in results.iterations] == [0, 0, 1, 1, 2, 2]
        assert results.summary["script"]["command"] == shlex.join(command[1:])
        assert results.summary["workload"]["elements"] == 7
        (value,) = results.parameters().values()
        assert value.tolist() == [2.0] * 7
    else:
        sentence = "is trained by this run, not a script: give it to the scheduler, too, after --"
        assert all(sentence in error for error in errors), errors
