"""A script lets its worker leave a job (`KVStore.leave`), and others continue."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import yaml

from geomx import kv
from geomx.cli import launch, simulate
from geomx.errors import Left
from geomx.kv.local import LocalCluster, unshaped
from geomx.live.member import Member
from geomx.options.schema import FaultOptions
from geomx.results.files import read_json
from tests.laws import by_all_workers, short_form

HFA = ("hfa", {"k1": 1, "k2": 1})
STEPS = 5


def each(body: Callable[[kv.KVStore], Any], sync: tuple[str, dict[str, Any]] = HFA) -> list[Any]:
    """Run `body` for both workers of a job that continues without one; return the results."""
    faults = FaultOptions(on_loss="continue")
    cluster = LocalCluster(replace(unshaped({"east": 1, "west": 1}), sync=sync, faults=faults))

    def act(member: Member) -> Any:
        store = kv.KVStore(member)
        try:
            return body(store)
        finally:
            store.close()

    return by_all_workers(cluster, act)


@pytest.mark.parametrize("before", [True, False])
def test_a_rhythm_ends_after_the_next_step(before: bool) -> None:
    """Also one that begins when the worker was already asked to leave."""

    def body(store: kv.KVStore) -> int:
        values, made = {"weights": np.zeros(3, np.float32)}, 0
        store.init("weights", values["weights"])
        if before and store.global_rank == 1:
            store.leave()
        for _ in (rhythm := store.rhythm(STEPS)):
            made += 1
            if not before and store.global_rank == 1 and made == 1:
                store.leave()
            rhythm.exchange(values)
        return made

    assert each(body) == [STEPS, 1 if before else 2]


@pytest.mark.parametrize("sync", [("fsa", {}), HFA])
@pytest.mark.parametrize("before", [True, False])
def test_an_optimizer_makes_one_more_step(sync: tuple[str, dict[str, Any]], before: bool) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import geomx.torch

    def body(store: kv.KVStore) -> int:
        if before and store.global_rank == 1:
            store.leave()
        model, made = torch.nn.Linear(2, 1), 0
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = geomx.torch.Optimizer(sgd, model, store=store)
        try:
            while made < STEPS:
                if not before and store.global_rank == 1 and made == 1:
                    store.leave()
                optimizer.zero_grad()
                model(torch.ones(1, 2)).square().mean().backward()
                optimizer.step()
                made += 1
        except Left:
            assert optimizer.done
        return made

    assert each(body, sync) == [STEPS, 1 if before else 2]


SCRIPT = """
import numpy as np
import geomx.kv
store = geomx.kv.create("dist_sync")
store.init("weights", np.zeros(3, np.float32))
for step in range(6):
    if step == 2 and store.global_rank == 1:
        store.leave()
    store.push("weights", np.ones(3, np.float32))
    store.pull("weights")
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", [launch, simulate])
def test_a_script_leaves_when_it_is_simulated_too(way: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "network.yaml").write_text(yaml.safe_dump(short_form(1, 1)))
    words = [f"network={tmp_path / 'network.yaml'}", f"hydra.run.dir={tmp_path / 'run'}"]
    way.main([*words, "--", sys.executable, str(tmp_path / "train.py")])
    assert read_json(tmp_path / "run" / "summary.json")["iterations_made"] == [2, 6]
