"""`geomx simulate --shadows`: one process runs the script, the other workers do what it does."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geomx.cli import simulate
from geomx.config.compose import compose
from geomx.errors import GeomxError
from geomx.results.results import Results
from geomx.runner import simulate_command
from tests.test_simulate import contents

# The first worker is neither the fastest nor the one with the shortest way to the hub, and parties
# have different sizes, by which hfa scales what is pushed.
NETWORK = """
name: uneven
central: {name: hub, uplink_mbps: 100, downlink_mbps: 100}
parties:
  here: {workers: 2, uplink_mbps: 10, downlink_mbps: 20, speed: [0.8, 1.0]}
  near: {workers: 1, uplink_mbps: 50, downlink_mbps: 50, speed: 0.6}
delay_ms: {here: {hub: 35, near: 40}, near: {hub: 2}}
"""

# What a worker computes depends on the values that it has received, and not on which one it is.
GRADIENTS = """
import numpy as np, geomx, geomx.kv
store = geomx.kv.create("dist_sync")
weights = {"a": np.arange(40000, dtype=np.float32) / 40000, "b": np.ones((3, 5), np.float32)}
store.init(list(weights), list(weights.values()))
store.set_optimizer("sgd", learning_rate=0.05, momentum=0.9)
for step in range(4):
    for name in reversed(weights):
        store.push(name, np.sin(weights[name] * (step + 1)))
    for name in weights:
        weights[name] = store.pull(name)
    geomx.report(loss=float(weights["a"].sum()))
    geomx.sleep(0.01)
store.barrier()
"""

PARAMETERS = """
import numpy as np, geomx.kv
store = geomx.kv.create()
weights = {name: np.full(size, 0.5, np.float32) for name, size in (("a", 40000), ("b", 15))}
store.init(list(weights), list(weights.values()))
for step in (rhythm := store.rhythm(12)):
    for value in weights.values():
        value += 0.1 * np.cos(value * (step + 1))
    rhythm.exchange(weights)
"""


CONSTANT = GRADIENTS.replace("weights[name] * (step + 1)", "np.full(weights[name].shape, step)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("shadows")
    (made / "uneven.yaml").write_text(NETWORK)
    (made / "gradients.py").write_text(GRADIENTS)
    (made / "constant.py").write_text(CONSTANT)
    (made / "parameters.py").write_text(PARAMETERS)
    return made


def simulated(folder: Path, script: str, where: str, *words: str, shadows: bool) -> Results:
    """Simulate a script on NETWORK."""
    experiment, directory = compose(
        [f"network={folder / 'uneven.yaml'}", f"hydra.run.dir={folder / where}", *words]
    )
    command = [sys.executable, str(folder / f"{script}.py")]
    return simulate_command(experiment, directory, command, "constant:0.05", shadows=shadows)


def told(results: Results) -> dict[str, Any]:
    """What a run says of times and sizes."""
    folder = results.directory
    return {
        name: (folder / name).read_bytes() for name in ("iterations.csv", "links.csv", "trace.json")
    }


RUNS = {
    "fsa": ("gradients", ("+accel=[fp16,p3]", "accel.p3.slice_elements=10000")),
    "mixedsync": ("constant", ("+sync=mixedsync",)),
    "hfa": ("parameters", ("+sync=hfa", "sync.k1=2", "sync.k2=2")),
    "esync": ("parameters", ("+sync=esync",)),
    "halos": ("parameters", ("+sync=halos", "sync.h=3", "sync.k=2")),
}
OWN_STEPS = ("esync", "halos")


@pytest.mark.slow
@pytest.mark.needs("fp16", "p3", "mixedsync", "hfa", "esync", "halos")
@pytest.mark.parametrize("run", RUNS)
def test_shadows_of_equal_workers_are_those_workers(run: str, folder: Path) -> None:
    script, words = RUNS[run]
    whole = simulated(folder, script, f"{run}-whole", *words, shadows=False)
    shadows = simulated(folder, script, f"{run}-shadows", *words, shadows=True)
    assert told(shadows) == told(whole)
    assert shadows.summary["script"]["shadows"] == 2
    steps = Counter(row["worker"] for row in shadows.iterations)
    assert (len(set(steps.values())) > 1) == (run in OWN_STEPS)
    if run == "fsa":
        assert shadows.evaluations == whole.evaluations != []
    if run == "mixedsync":
        before = contents(shadows.directory)
        shutil.rmtree(shadows.directory)
        simulated(folder, script, f"{run}-shadows", *words, shadows=True)
        assert contents(shadows.directory) == before
    for name, value in whole.parameters().items() if run not in OWN_STEPS else ():
        np.testing.assert_array_equal(shadows.parameters()[name], value)


@pytest.mark.slow
def test_what_shadows_cannot_do_is_refused(folder: Path) -> None:
    save = "store.member.ask_states()\nstore.member.wait_state()\n"
    (folder / "save.py").write_text(GRADIENTS + save)
    with pytest.raises(GeomxError, match=r"saves the state of .* leave --shadows out"):
        simulated(folder, "save", "save", shadows=True)


@pytest.mark.slow
def test_the_command_and_the_page_tell_of_shadows(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [f"network={folder / 'uneven.yaml'}", f"hydra.run.dir={folder / 'cli'}"]
    how = ["--shadows", "--compute", "constant:0.05", "--", sys.executable]
    simulate.main([*words, *how, str(folder / "constant.py")])
    assert "one worker ran the script, and 2 were its shadows" in capfd.readouterr().err
    page = (folder / "cli" / "report.html").read_text()
    assert "2 of these workers are shadows of the first" in page
    assert "--compute constant:0.05 --shadows --" in page
