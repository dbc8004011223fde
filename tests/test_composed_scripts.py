"""Scripts of PyTorch and MXNet learn with local steps and codecs for the WAN."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
import pytest

from geomx import kv
from geomx.workload import Workload

pytestmark = pytest.mark.slow

STEPS = 12
SYNCS: dict[str, dict[str, Any]] = {
    "diloco": {"h": 3, "party_quorum": 1, "outer_momentum": 0.0, "outer_lr": 1.0},
    "halos": {"h": 3, "k": 2, "by_speed": False},
    "fedbuff": {"h": 3, "k": 1, "party_k": 1},
}
CODECS = ("sparseloco", "demo", "lowbit", "powersgd")


@pytest.mark.parametrize(("sync", "accel"), [*product(SYNCS, CODECS)])
@pytest.mark.needs("diloco", "halos", "fedbuff", *CODECS)
def test_pytorch_learns_with_no_change(sync: str, accel: str, seed: int) -> None:
    laws = pytest.importorskip("tests.torch_laws")
    torch, loss_of = laws.torch, laws.torch.nn.functional.cross_entropy
    inputs, targets = laws.data(seed)

    def loss(values: list[np.ndarray]) -> float:
        net = laws.network()
        with torch.no_grad():
            for parameter, value in zip(net.parameters(), values, strict=True):
                parameter.copy_(torch.from_numpy(value))
            return float(loss_of(net(inputs), targets))

    before = loss([each.detach().numpy() for each in laws.network().parameters()])
    body = laws.shared(laws.SGD, seed, STEPS, steps=STEPS)
    for values in laws.everyone(body, sync=(sync, SYNCS[sync]), accel=[accel]):
        assert loss(values) < before


@pytest.mark.parametrize(("sync", "accel"), [*product(SYNCS, CODECS)])
@pytest.mark.needs("diloco", "halos", "fedbuff", *CODECS)
def test_mxnet_learns_by_exchanges(sync: str, accel: str, tiny: Workload, seed: int) -> None:
    laws = pytest.importorskip("tests.torch_laws")
    if find_spec("mxnet") is None:
        pytest.skip("mxnet is not installed")
    from geomx.mxnet import EngineExchange, KVStore, mx

    names = [tensor.name for tensor in tiny.tensors]

    def train(store: kv.KVStore) -> list[np.ndarray]:
        model = tiny.model(seed)
        store.use(EngineExchange(store.member.loop))
        outside = KVStore(store, "dist_sync")
        values = {
            name: mx.nd.array(each) for name, each in zip(names, model.parameters, strict=True)
        }
        outside.init(names, list(values.values()))
        for step in (rhythm := outside.rhythm(STEPS)):
            for key, name in enumerate(names):
                model.set(key, values[name].asnumpy())
            model.step(step, store.global_rank, store.num_all_workers)
            for key, name in enumerate(names):
                values[name] -= mx.nd.array(0.1 * model.gradients[key])
            rhythm.exchange(values)
        return [value.asnumpy().copy() for value in values.values()]

    model = tiny.model(seed)
    _, before = model.evaluate(model.parameters)
    for values in laws.everyone(train, sync=(sync, SYNCS[sync]), accel=[accel]):
        assert model.evaluate(values)[1] < before
