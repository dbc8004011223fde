"""The documented code and commands for PyTorch and JAX in README and the examples run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from geomx import kv
from geomx.kv.local import LocalCluster, unshaped
from tests.laws import by_all_workers

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'geomx[torch]'")

ROOT = Path(__file__).resolve().parents[1]
GEOMX = "import sys; from geomx.cli.main import main; sys.exit(main())"
TIMEOUT_S = 300
STEPS = "--steps=20"
# Workers take most of their time to import scikit-learn and PyTorch's compiler.
LIGHT = {"PYTHONPATH": str(ROOT / "tests" / "light")}


# ---- README's training diff ----


def readme() -> list[str]:
    """Return the lines of the diff with their first characters."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- pytorch -->\n```diff\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1].splitlines()


def batches(samples: Any, count: int = 5) -> Any:
    """Return a list of (inputs, targets) of `count` batches."""
    size = len(samples) // count
    for start in range(0, count * size, size):
        inputs, targets = zip(*samples[start : start + size], strict=True)
        yield torch.stack(inputs), torch.stack(targets)


def run_lines(lines: list[str], seed: int, lock: threading.Lock) -> list[Any]:
    """Run one side of the diff; return the parameters."""
    with lock:
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
        samples = [(torch.randn(5), torch.randint(3, ())) for _ in range(120)]
    scope = {
        "torch": torch, "model": model, "samples": samples, "batches": batches,
        "loss_of": torch.nn.CrossEntropyLoss(),
    }  # fmt: skip
    exec("\n".join(line[1:] for line in lines), scope)
    return list(model.state_dict().values())


def test_readmes_three_lines_train_in_every_data_centre(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, lock = readme(), threading.Lock()
    assert [line[0] for line in lines].count("+") == 3
    assert {line[0] for line in lines} == {"+", " "}
    before = [line for line in lines if line[0] == " "]
    expected = run_lines(before, seed, lock)
    mine = threading.local()
    monkeypatch.setattr(kv, "create", lambda: mine.store)
    cluster = LocalCluster(unshaped({"east": 2, "west": 2}))

    def worker(member: Any) -> list[Any]:
        mine.store = kv.KVStore(member)
        values = run_lines(lines, seed, lock)
        mine.store.close()
        return values

    for values in by_all_workers(cluster, worker):
        for value, wanted in zip(values, expected, strict=True):
            assert torch.allclose(value, wanted, rtol=0, atol=1e-4)
    unmoved = run_lines(before[:1], seed, lock)
    assert not torch.allclose(expected[0], unmoved[0], rtol=0, atol=1e-2)


# ---- the examples ----


def documented(example: str, beginning: str) -> list[str]:
    """Return the command in an example's docstring with this beginning."""
    text = (ROOT / "examples" / example).read_text(encoding="utf-8").split('"""')[1]
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip().startswith(beginning):
            return shlex.split(line, comments=True)
    raise AssertionError(f"{example} has no command {beginning}...")


def loss(command: list[str], *more: str, **variables: str) -> float:
    """Run a documented command; return the loss that its script prints."""
    programs = {
        "geomx": [sys.executable, "-c", GEOMX],
        "python": [sys.executable],
        "torchrun": [sys.executable, "-m", "torch.distributed.run"],
    }
    words = [part for word in command for part in programs.get(word, [word])]
    done = subprocess.run(
        [*words, *more], cwd=ROOT, env={**os.environ, **variables},
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    printed = re.match(r"loss (\d+\.\d+)\n", done.stdout)  # then the table of a launched run
    assert printed is not None, done.stdout
    return float(printed[1])


@pytest.fixture(scope="module")
def plain() -> float:
    """Return the loss of PyTorch without geomx, with all that it imports."""
    reached = loss(documented("torch_train.py", "python examples/torch_train.py --plain"), STEPS)
    assert reached < 1.0  # initially 2.3
    return reached


def test_two_data_centres_reach_the_loss_of_one_process(plain: float) -> None:
    launched = documented("torch_train.py", "geomx launch network=two_parties --")
    assert loss(launched, STEPS, **LIGHT) == pytest.approx(plain, abs=1e-4)


def test_ddp_inside_parties_reaches_the_loss_of_one_process(plain: float) -> None:
    launched = documented("torch_ddp.py", "geomx launch")
    assert loss(launched, STEPS, **LIGHT) == pytest.approx(plain, abs=1e-4)


@pytest.mark.skipif(
    find_spec("jax") is None or find_spec("optax") is None, reason="jax is not installed"
)
def test_jax_and_optax_reach_the_loss_of_one_process() -> None:
    alone = loss(documented("jax_train.py", "python examples/jax_train.py --plain"), STEPS)
    assert alone < 1.0
    launched = documented("jax_train.py", "geomx launch")
    assert loss(launched, STEPS) == pytest.approx(alone, abs=1e-4)
