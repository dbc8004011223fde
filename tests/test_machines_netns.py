"""Jobs over machines with addresses of their own: over SSH or not, in the clear or with TLS."""

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
from geomx.machines.launch import composed_experiment, launch
from geomx.results import Results
from tests import sites
from tests.sites import Sites, SshServers

pytestmark = pytest.mark.skipif(bool(sites.why_not()), reason=sites.why_not() or "there are")
needs_sshd = pytest.mark.skipif(
    not Path("/usr/sbin/sshd").exists() or shutil.which("ssh") is None, reason="needs ssh and sshd"
)
NODES = ("hub/scheduler", "hub/global_server0", "east/server", "east/worker0", "west/server")
FILES = ("summary.json", "iterations.csv", "evaluations.csv", "links.csv", "trace.json")
PORT = 7411
GONE_S = 15.0
PIECE = 32  # bytes of parameters in a row that cannot come about by chance


@pytest.fixture(scope="module")
def places() -> Iterator[Sites]:
    """Two parties, a central site and one for the scheduler."""
    with Sites() as made:
        yield made


def job(places: Sites, folder: Path, **more: Any) -> Path:
    """A job file."""
    content: dict[str, Any] = {
        "hosts": {name: {"address": places.address[name]} for name in sites.NAMES},
        "parties": {
            "hub": {"scheduler": "core", "global_server": "hub"},
            "east": {"server": "east", "worker": "east"},
            "west": {"server": "west", "worker": "west"},
        },
        "reach": f"ip netns exec {places.name('{host}')} {{command}}",
        "port": PORT,
        **more,
    }
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(content))
    if "tls" in more:
        make(folder / more["tls"], composed_experiment(read(file)).cluster.nodes)
    return file


def complete(folder: Path) -> Results:
    """The results of a run that left all that a run leaves."""
    for file in (*FILES, "report.html", "parameters.npz", "network.json"):
        assert (folder / file).stat().st_size > 0
    results = Results.load(folder)
    assert {row["worker"] for row in results.iterations} == {"east/worker0", "west/worker0"}
    assert results.summary["accuracy"]["final"] is not None
    assert results.summary["bytes"]["wan_push"] > 0
    return results


# ---- in the clear, and not ----


@pytest.mark.parametrize("protected", [False, True])
def test_a_job_over_four_sites_is_complete_and_tls_hides_it(
    places: Sites, tmp_path: Path, protected: bool
) -> None:
    file = job(places, tmp_path, **({"tls": "certs"} if protected else {"insecure": True}))
    words = ["iterations=2", "accel=[dgt]", f"hydra.run.dir={tmp_path}/run"]
    with places.listening() as packets:
        launch(file, words)
    results = complete(tmp_path / "run")
    assert len(packets) > 500
    passed = b"".join(packets)
    known = [
        array.tobytes()[start : start + PIECE]
        for array in map(np.ascontiguousarray, results.parameters().values())
        for start in range(0, array.nbytes - PIECE, 4096)
    ]
    seen = sum(piece in passed for piece in known)
    if protected:
        assert seen == 0
        assert b"two_parties" not in passed and b'"format"' not in passed
    else:  # so that this test would see them
        assert seen > len(known) / 2
        assert b'"format"' in passed


STRANGER = """
import sys
from geomx import _core
tls = tuple(sys.argv[2:]) or None
loop = _core.Loop("0.0.0.0", 0, "a guess", tls)
try:
    loop.join(sys.argv[1], "west/worker0", 6, 10.0)
except RuntimeError as error:
    print(error)
"""


def test_strangers_are_refused_and_logged_and_the_job_goes_on(
    places: Sites, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    same = composed_experiment(read(job(places, other, insecure=True))).cluster
    make(other / "certs", same.nodes)
    file = job(places, tmp_path, tls="certs")
    words = ["iterations=60", "numerics=false", f"hydra.run.dir={tmp_path}/run"]
    launcher = background(places, file, *words)
    await_training(launcher, tmp_path / "run")
    forged = other / "certs/nodes/west-worker0"
    genuine = tmp_path / "certs/nodes/west-worker0"
    scheduler = f"{places.address['core']}:{PORT}"
    said = [
        subprocess.run(
            ["ip", "netns", "exec", places.name("west"), sys.executable, "-c", STRANGER,
             scheduler, *map(str, files)],
            check=True, capture_output=True, text=True,
        ).stdout
        for files in (
            [],
            [forged / "authority.pem", forged / "node.pem", forged / "node.key"],
            # Believes the job's authority, which does not believe it; then its token is wrong.
            [genuine / "authority.pem", forged / "node.pem", forged / "node.key"],
            [genuine / "authority.pem", genuine / "node.pem", genuine / "node.key"],
        )
    ]  # fmt: skip
    _, errors = launcher.communicate(timeout=300)
    assert launcher.returncode == 0, errors
    assert "ended the connection" in said[0]
    assert "certificate verify failed" in said[1]
    assert re.search("unknown ca|decrypt error|reset", said[2])
    assert "ended the connection" in said[3]
    log = (tmp_path / "run/nodes/hub-scheduler.log").read_text()
    refused = re.findall(rf"refused {places.address['west']}:\d+: (.*)", log)
    assert len(refused) == 4, log
    assert "certificate verify failed" in refused[2]
    assert refused[3] == "not a member"


# ---- SSH ----


def background(places: Sites, file: Path, *words: str) -> subprocess.Popen[str]:
    """``geomx launch``, run from the site in the middle."""
    program = "import sys; from geomx.cli import main; sys.exit(main())"
    return subprocess.Popen(
        ["ip", "netns", "exec", places.middle, sys.executable, "-c", program, "launch", str(file),
         *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def await_training(launcher: subprocess.Popen[str], folder: Path) -> None:
    """Wait until some iterations are over."""
    deadline = time.monotonic() + 300
    table = folder / "iterations.csv"
    while not table.exists() or table.read_text().count("\n") < 5:
        assert launcher.poll() is None, launcher.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)


@needs_sshd
def test_a_job_over_ssh_is_complete(places: Sites, tmp_path: Path) -> None:
    with SshServers(places, tmp_path) as servers:
        file = job(places, tmp_path, tls="certs", reach=servers.client)
        launcher = background(places, file, "iterations=2", f"hydra.run.dir={tmp_path}/run")
        _, errors = launcher.communicate(timeout=500)
    assert launcher.returncode == 0, errors
    complete(tmp_path / "run")


@needs_sshd
def test_nothing_is_left_anywhere_when_ssh_is_killed(places: Sites, tmp_path: Path) -> None:
    with SshServers(places, tmp_path) as servers:
        file = job(places, tmp_path, insecure=True, reach=servers.client)
        words = ["iterations=5000", "numerics=false", f"hydra.run.dir={tmp_path}/run"]
        launcher = background(places, file, *words)
        await_training(launcher, tmp_path / "run")
        clients = subprocess.run(
            ["pgrep", "-f", f"^ssh .*{tmp_path}/key"], check=True, capture_output=True, text=True
        ).stdout.split()
        assert len(clients) == 6
        for client in clients:
            os.kill(int(client), 9)
        deadline = time.monotonic() + GONE_S
        while set(places.processes()) - servers.pids and time.monotonic() < deadline:
            time.sleep(0.1)
        left = set(places.processes()) - servers.pids
        _, errors = launcher.communicate(timeout=60)
    assert left == set()
    assert launcher.returncode == 1
    assert "was lost" in errors.splitlines()[-1]
