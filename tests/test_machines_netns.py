"""Jobs over SSH to emulated machines with their own addresses, with and without TLS."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from geomx.machines.certs import make
from geomx.machines.jobfile import read
from geomx.machines.launch import composed_experiment
from geomx.results.results import Results
from tests import sites
from tests.sites import Sites, SshServers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(sites.why_not()), reason=sites.why_not() or "there are"),
    pytest.mark.skipif(
        not Path("/usr/sbin/sshd").exists() or shutil.which("ssh") is None,
        reason="needs ssh and sshd",
    ),
]
FILES = ("summary.json", "iterations.csv", "evaluations.csv", "links.csv", "trace.json")
PORT = 7411
GONE_S = 15.0
PIECE = 32  # consecutive bytes of parameters; too many to occur by chance


@pytest.fixture(scope="module")
def places() -> Iterator[Sites]:
    """Return two parties, a central site and a site for the scheduler."""
    with Sites() as made:
        yield made


def job(places: Sites, folder: Path, **more: Any) -> Path:
    """Write a job file."""
    content: dict[str, Any] = {
        "hosts": {name: {"address": places.address[name]} for name in sites.NAMES},
        "parties": {
            "hub": {"scheduler": "core", "global_server": "hub"},
            "east": {"server": "east", "worker": "east"},
            "west": {"server": "west", "worker": "west"},
        },
        "port": PORT,
        **more,
    }
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(content))
    if "tls" in more:
        make(folder / more["tls"], composed_experiment(read(file)).cluster)
    return file


def complete(folder: Path) -> Results:
    """Check that a run has all its files; return its results."""
    for file in (*FILES, "report.html", "parameters.npz", "network.json"):
        assert (folder / file).stat().st_size > 0
    results = Results.load(folder)
    assert {row["worker"] for row in results.iterations} == {"east/worker0", "west/worker0"}
    assert results.summary["accuracy"]["final"] is not None
    assert results.summary["bytes"]["wan_push"] > 0
    return results


# ---- launching ----


def background(places: Sites, file: Path, *words: str) -> subprocess.Popen[str]:
    """Start ``geomx launch`` at the central site."""
    program = "import sys; from geomx.cli.main import main; sys.exit(main())"
    return subprocess.Popen(
        ["ip", "netns", "exec", places.middle, sys.executable, "-c", program, "launch", str(file),
         *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def await_training(launcher: subprocess.Popen[str], folder: Path) -> None:
    """Wait until some iterations are complete."""
    deadline = time.monotonic() + 300
    table = folder / "iterations.csv"
    while not table.exists() or table.read_text().count("\n") < 3:
        assert launcher.poll() is None, launcher.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)


# ---- without and with TLS ----


STRANGERS = """
import sys
from geomx import _core
for files in sys.argv[2:]:
    tls = tuple(filter(None, files.split(","))) or None
    loop = _core.Loop("0.0.0.0", 0, "a guess", tls, True)
    try:
        loop.join(sys.argv[1], "west/worker0", 6, 10.0)
    except RuntimeError as error:
        print(error)
    loop.close()
"""


@pytest.mark.parametrize("protected", [False, True])
def test_a_job_over_ssh_to_four_sites_completes_and_tls_encrypts_it(
    places: Sites, tmp_path: Path, protected: bool
) -> None:
    """With TLS, unauthorised nodes try to join during the job, which is not affected."""
    iterations = 60 if protected else 5
    words = [f"iterations={iterations}", "accel=[dgt]", f"hydra.run.dir={tmp_path}/run"]
    with SshServers(places, tmp_path) as servers, places.listening() as packets:
        secured = {"tls": "certs"} if protected else {"insecure": True}
        file = job(places, tmp_path, **secured, reach=servers.client)
        other = strangers(tmp_path)
        launcher = background(places, file, *words)
        await_training(launcher, tmp_path / "run")
        if protected:
            intrude(places, tmp_path, other)
            assert launcher.poll() is None  # still training
        _, errors = launcher.communicate(timeout=500)
    assert launcher.returncode == 0, errors
    results = complete(tmp_path / "run")
    assert len(results.iterations) == 2 * iterations
    passed = b"".join(packets)
    known = [
        array.tobytes()[start : start + PIECE]
        for array in map(np.ascontiguousarray, results.parameters().values())
        for start in range(0, array.nbytes - PIECE, 4096)
    ]
    seen = sum(piece in passed for piece in known)
    if protected:
        assert seen == 0
        assert b'"evaluate_every"' not in passed
        log = (tmp_path / "run/nodes/hub-scheduler.log").read_text()
        refused = re.findall(rf"refused {places.address['west']}:\d+: (.*)", log)
        assert len(refused) == 4, log
        assert "certificate verify failed" in refused[2]
        assert refused[3] == "not a member"
    else:  # verifies that the capture would contain them
        assert seen > len(known) / 2
        assert b'"evaluate_every"' in passed


def strangers(folder: Path) -> Path:
    """Create certificates of another authority for a node of a job."""
    cluster = composed_experiment(read(folder / "job.yaml")).cluster
    make(folder / "other", [cluster.node("west/worker0")])
    return folder / "other/nodes/west-worker0"


def intrude(places: Sites, folder: Path, forged: Path) -> None:
    """Try to join without a certificate, with another authority's, and with a stolen one."""
    genuine = folder / "certs/nodes/west-worker0"
    own = [forged / "node.pem", forged / "node.key"]
    tries = [
        [],
        [forged / "authority.pem", *own],
        [genuine / "authority.pem", *own],  # trusts the job's authority, but is not trusted
        [genuine / name for name in ("authority.pem", "node.pem", "node.key")],  # no token
    ]
    said = subprocess.run(
        ["ip", "netns", "exec", places.name("west"), sys.executable, "-c", STRANGERS,
         f"{places.address['core']}:{PORT}", *(",".join(map(str, files)) for files in tries)],
        check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    assert "ended the connection" in said[0]
    assert "certificate verify failed" in said[1]
    assert re.search("unknown ca|decrypt error|reset", said[2])
    assert "ended the connection" in said[3]


# ---- killed processes ----


@pytest.mark.parametrize("killed", ["every client", "the launcher"])
def test_no_process_remains_after_ssh_or_the_launcher_is_killed(
    places: Sites, tmp_path: Path, killed: str
) -> None:
    with SshServers(places, tmp_path) as servers:
        file = job(places, tmp_path, insecure=True, reach=servers.client)
        words = ["iterations=5000", "numerics=false", f"hydra.run.dir={tmp_path}/run"]
        launcher = background(places, file, *words)
        await_training(launcher, tmp_path / "run")
        clients = ssh_clients(tmp_path)
        assert len(clients) == 6
        for victim in clients if killed == "every client" else [launcher.pid]:
            os.kill(victim, 9)
        deadline = time.monotonic() + GONE_S
        while set(places.processes()) - servers.pids and time.monotonic() < deadline:
            time.sleep(0.1)
        left = set(places.processes()) - servers.pids
        _, errors = launcher.communicate(timeout=60)
        assert ssh_clients(tmp_path) == []
    assert left == set()
    if killed == "every client":
        assert launcher.returncode == 1
        assert "was lost" in errors.splitlines()[-1]


def ssh_clients(folder: Path) -> list[int]:
    """Return the launcher's SSH clients, found by their key file."""
    words = ["pgrep", "-f", f"^ssh .*{folder}/key"]
    return [
        int(pid)
        for pid in subprocess.run(words, check=False, capture_output=True, text=True).stdout.split()
    ]
