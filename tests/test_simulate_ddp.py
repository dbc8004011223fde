"""A script that uses DDP inside each party, simulated and launched."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from geomx.config.compose import compose
from geomx.live.launcher import run_script
from geomx.results.results import Results
from geomx.runner import simulate_command

pytest.importorskip("torch")
pytestmark = pytest.mark.slow(8)

ROOT = Path(__file__).parents[1]
NETWORK = """
central: {name: hub, uplink_mbps: 1000, downlink_mbps: 1000}
parties:
  east: {workers: 1, uplink_mbps: 1000, downlink_mbps: 1000}
  west: {workers: 1, uplink_mbps: 1000, downlink_mbps: 1000}
delay_ms: 2
lan: {mbps: 10, delay_ms: 0.5}
"""


# In place of torch.distributed.run: what the example uses is imported once per party.
FORKING = f"""
import os, runpy, sys
sys.path.append({str(ROOT / "tests")!r})
from ports import free_port
import sklearn.datasets, torch
count, port = int(sys.argv[1]), free_port()
rank = next((each for each in range(1, count) if os.fork() == 0), 0)
place = dict(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=count, MASTER_PORT=port)
os.environ.update({{name: str(value) for name, value in place.items()}}, MASTER_ADDR="127.0.0.1")
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
for _ in range(1, count if rank == 0 else 1):
    assert os.wait()[1] == 0
"""


# Every process of a group evaluates, as if it were alone.
EVALUATES = """
import sys, torch, geomx.torch
from torch.nn.parallel import DistributedDataParallel
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
grouped = sys.argv[1] == "ddp"
if grouped:
    torch.distributed.init_process_group("gloo")
    hook = geomx.torch.PartyHook(model)
    net = DistributedDataParallel(model)
    net.register_comm_hook(hook, geomx.torch.PartyHook.average)
else:
    net, optimizer = model, geomx.torch.Optimizer(optimizer, model, steps=3)
for step in range(3):
    optimizer.zero_grad()
    net(torch.ones(4, 2)).sum().backward()
    optimizer.step()
    geomx.report(loss=step)
if grouped:
    hook.close()
    torch.distributed.destroy_process_group()
"""


def ran(folder: Path, mode: str, processes: int) -> Results:
    """Run three steps of the example of DDP, with so many processes in each party."""
    network = folder / "network.yaml"
    network.write_text(NETWORK)
    words = [f"network={network}", f"hydra.run.dir={folder / mode}{processes}"]
    experiment, directory = compose(words)
    example = str(ROOT / "examples" / "torch_ddp.py")
    command = [sys.executable, "-c", FORKING, str(processes), example, "--steps", "3"]
    if mode == "live":
        return run_script(experiment, directory, command)
    return simulate_command(experiment, directory, command, "constant:0.05")


def test_ddp_is_simulated_as_it_is_launched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With equal bytes and parameters; reductions and answers inside a party take their time."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "light"))
    alone, pair, live = (ran(tmp_path, *how) for how in (("sim", 1), ("sim", 2), ("live", 2)))
    for what in ("iterations", "rounds"):
        assert pair.summary[what] == live.summary[what]
    for what in ("wan_push", "wan_pull", "lan"):
        assert pair.summary["bytes"][what] == live.summary["bytes"][what]
    for name, value in live.parameters().items():
        np.testing.assert_array_equal(pair.parameters()[name], value)

    whole_s = 4 * (64 * 128 + 128 + 128 * 10 + 10) * 8 / 10e6
    steps_s = [
        [row["end_s"] - row["start_s"] for row in results.iterations if row["iteration"] == 1]
        for results in (alone, pair)
    ]
    for one, two in zip(*steps_s, strict=True):  # of each party's worker
        reduced_s, shared_s = 2 * (whole_s / 2 + 1e-3), whole_s + 1e-3
        assert two - one == pytest.approx(reduced_s + shared_s, abs=1e-4)


@pytest.mark.parametrize(("kind", "processes"), [("ddp", 2), ("optimizer", 1)])
def test_an_evaluation_after_a_step_has_the_number_of_that_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, processes: int
) -> None:
    """Of a group, only the process with the store reports."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "light"))
    (tmp_path / "network.yaml").write_text(NETWORK)
    (tmp_path / "train.py").write_text(EVALUATES)
    words = [f"network={tmp_path / 'network.yaml'}", f"hydra.run.dir={tmp_path / 'run'}"]
    experiment, directory = compose(words)
    script = str(tmp_path / "train.py")
    command = [sys.executable, "-c", FORKING, str(processes), script, kind]
    results = simulate_command(experiment, directory, command, "constant:0.05")
    rows = [(row["iteration"], row["loss"]) for row in results.evaluations]
    assert rows == [(0, 0), (1, 1), (2, 2)]
