"""The built-in workloads: shapes, data, and reproducible gradients."""

from __future__ import annotations

import gzip
import hashlib
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from geomx import workloads
from geomx.errors import ConfigError
from geomx.frameworks.mxnet_loader import load_mxnet
from geomx.plugin.registry import Registry
from geomx.workload import Model, Workload
from geomx.workloads.cnn import DigitsConfig, IdxConfig, digits_cnn, fashion_mnist, mnist
from geomx.workloads.images import batch_indices, load_digits, own_slice
from geomx.workloads.resnet50 import ResNet50Config, resnet50
from geomx.workloads.synthetic import SyntheticConfig, synthetic
from geomx.workloads.tiny import TinyConfig, tiny

CNN_SIZES = [400, 16, 12800, 32, 131072, 256, 32768, 128, 1280, 10]


@pytest.fixture(scope="module")
def model() -> Model:
    """Return a model of the default workload, shared by tests that restore what they change."""
    return with_mxnet(digits_cnn(DigitsConfig()), seed=3)


def with_mxnet(workload: Workload, seed: int) -> Model:
    """Return a model; skip the test if MXNet is not installed."""
    try:
        load_mxnet()
    except ConfigError as error:
        pytest.skip(str(error))
    return workload.model(seed)


def values(model: Model, arrays: Any) -> list[NDArray[np.float32]]:
    return [model.get(arrays, key) for key in range(len(arrays))]


# --- shapes and times


def test_workloads_are_registered_like_plugins() -> None:
    announced: dict[str, tuple[type, Callable[[Any], Any]]] = {}

    def register(kind: str, name: str, config: type, factory: Callable[[Any], Any]) -> None:
        assert kind == "workload"
        announced[name] = (config, factory)

    workloads.geomx_register(register)
    built_in = ["digits_cnn", "mnist", "fashion_mnist", "profile", "resnet50", "synthetic", "tiny"]
    names = [*built_in, "torch_transformer"]
    assert list(announced) == names
    for name in ("digits_cnn", "resnet50"):
        config, factory = announced[name]
        assert factory(config()).name == name


def test_the_example_cnn_has_geomxs_tensors() -> None:
    workload = digits_cnn(DigitsConfig())
    assert [tensor.elements for tensor in workload.tensors] == CNN_SIZES
    assert workload.elements == 178_762
    assert workload.has_numerics
    assert workload.optimizer == {"name": "adam", "learning_rate": 0.002}


def test_resnet50_has_161_tensors_and_the_published_cost() -> None:
    workload = resnet50(ResNet50Config())
    assert len(workload.tensors) == 161
    assert workload.elements == 25_557_032
    assert len(workload.layers) == 54
    assert workload.tensors[0].shape == (64, 3, 7, 7)
    assert max(tensor.elements for tensor in workload.tensors) == 512 * 512 * 9
    assert not workload.has_numerics
    with pytest.raises(ConfigError, match="sizes and times only"):
        workload.model(0)
    from geomx.workloads.resnet50 import stages

    # He et al. (2015), table 1, count 3.8e9 multiply-adds.
    assert sum(stage.multiply_adds for stage in stages()) == pytest.approx(3.86e9, rel=0.01)


def test_a_synthetic_network_has_the_given_sizes() -> None:
    workload = synthetic(SyntheticConfig(elements=[3, 5, 2], forward_ms=6, backward_ms=12))
    assert [(tensor.elements, tensor.layer) for tensor in workload.tensors] == [
        (3, 0), (5, 1), (2, 2),
    ]  # fmt: skip
    assert {(layer.forward_s, layer.backward_s) for layer in workload.layers} == {(0.002, 0.004)}
    assert not workload.has_numerics
    for sizes in ([], [3, 0]):
        with pytest.raises(ConfigError, match=r"workload\.elements"):
            Registry.discover().workload("synthetic", {"elements": sizes})


@pytest.mark.parametrize(
    "workload",
    [
        digits_cnn(DigitsConfig(forward_ms=7, backward_ms=13)),
        resnet50(ResNet50Config(forward_ms=7, backward_ms=13)),
        synthetic(SyntheticConfig(elements=[1, 7, 1_000_000], forward_ms=7, backward_ms=13)),
    ],
    ids=lambda workload: workload.name,
)
def test_layers_share_the_step_time_and_use_every_tensor(workload: Workload) -> None:
    assert workload.step_s == pytest.approx(0.020)
    assert sum(layer.forward_s for layer in workload.layers) == pytest.approx(0.007)
    assert all(layer.forward_s > 0 and layer.backward_s > 0 for layer in workload.layers)
    used = [tensor.layer for tensor in workload.tensors]
    assert used == sorted(used)
    assert set(used) == set(range(len(workload.layers)))
    assert len({tensor.name for tensor in workload.tensors}) == len(workload.tensors)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("batch_size", 0),
        ("iterations", -1),
        ("evaluate_every", 0),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("optimizer", "adamm"),
        ("forward_ms", -1.0),
        ("backward_ms", float("inf")),
    ],
)
def test_invalid_options_are_refused_by_name(option: str, value: Any) -> None:
    registry = Registry.discover()
    for name in ("digits_cnn", "resnet50", "synthetic"):
        with pytest.raises(ConfigError) as caught:
            registry.workload(name, {option: value})
        assert caught.value.key == f"workload.{option}"


# --- division of data


def test_slices_are_disjoint_and_equal_and_cover_all_but_a_remainder() -> None:
    seed = random.randrange(2**32)
    generator = random.Random(seed)
    for _ in range(200):
        workers = generator.randint(1, 40)
        samples = generator.randint(workers, 3000)
        slices = [own_slice(samples, worker, workers) for worker in range(workers)]
        assert len({len(mine) for mine in slices}) == 1, seed
        together = [index for mine in slices for index in mine]
        assert together == list(range(len(together))), seed
        assert samples - len(together) < workers, seed


def test_more_workers_than_samples_is_refused() -> None:
    with pytest.raises(ConfigError, match="only 3 training samples"):
        own_slice(3, 0, 4)
    with pytest.raises(ConfigError, match="only 480 training samples"):
        tiny(TinyConfig()).model(0).step(0, 0, 481)


def test_every_epoch_visits_every_sample_once_in_a_new_order() -> None:
    seed = random.randrange(2**32)
    generator = random.Random(seed)
    for _ in range(100):
        mine = range(start := generator.randint(0, 50), start + generator.randint(1, 90))
        size = generator.randint(1, 40)
        key = (generator.randint(0, 99), generator.randint(0, 9))
        steps = 3 * len(mine)
        batches = [batch_indices(mine, size, step, key) for step in range(steps)]
        assert all(len(batch) == size for batch in batches), seed
        visits = np.concatenate(batches).reshape(-1, len(mine))
        assert (np.sort(visits, axis=1) == np.array(mine)).all(), seed
        if len(mine) > 20:
            assert (visits[0] != visits[1]).any(), seed
        again = batch_indices(mine, size, steps - 1, key)
        assert (again == batches[-1]).all(), seed


def test_the_split_of_the_digits_is_fixed_with_every_class_in_both_parts() -> None:
    pytest.importorskip("sklearn")
    one, two = load_digits(), load_digits()
    assert one.training.shape == (1437, 28, 28)
    assert one.held_out.shape == (360, 28, 28)
    assert one.training.dtype == np.float32
    assert (one.training == two.training).all()
    assert one.training.min() == 0.0
    assert one.training.max() == 1.0
    together = np.concatenate([one.training, one.held_out])
    from sklearn.datasets import load_digits as original

    # Enlargement preserves corners, so those of every original occur exactly.
    corners = original().images[:, ::7, ::7] / 16
    enlarged = together[:, ::27, ::27].astype(np.float64)
    assert sorted(map(tuple, enlarged.reshape(-1, 4))) == sorted(map(tuple, corners.reshape(-1, 4)))
    assert len(np.unique(together.reshape(1797, -1), axis=0)) == 1797
    assert np.bincount(one.held_out_labels, minlength=10).min() >= 34
    sliced = one.by_class().training_labels[list(own_slice(1437, 0, 10))]
    assert len(np.unique(sliced)) <= 2
    assert len(np.unique(one.training_labels[list(own_slice(1437, 0, 10))])) == 10


def test_a_damaged_or_missing_cache_of_the_digits_is_rebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn")
    before = load_digits()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for damage in (None, b"", b"PK\3\4", "half"):
        kept = list((tmp_path / "geomx").glob("digits-*.npz"))
        assert len(kept) == (damage is not None)
        for path in kept:
            path.write_bytes(path.read_bytes()[:3000000] if damage == "half" else damage)
        after = load_digits()
        for name, array in vars(before).items():
            assert (array == getattr(after, name)).all()
    (kept_last,) = (tmp_path / "geomx").iterdir()  # and no partial file
    assert kept_last.stat().st_size > 5000000


def test_a_read_only_cache_folder_is_not_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn")
    (tmp_path / "geomx").write_text("a file where the folder would be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert load_digits().training.shape == (1437, 28, 28)


# --- numerics


def test_step_is_a_pure_function_of_parameters_and_its_arguments(model: Model) -> None:
    before = values(model, model.parameters)
    loss = model.step(5, 1, 4)
    gradients = values(model, model.gradients)
    assert model.step(6, 1, 4) != loss
    assert model.step(5, 2, 4) != loss
    assert model.step(5, 1, 3) != loss
    model.evaluate(before)
    assert model.step(5, 1, 4) == loss
    for key, gradient in enumerate(values(model, model.gradients)):
        assert (gradient == gradients[key]).all()
        assert gradient.shape == before[key].shape
        assert np.abs(gradient).max() > 0
    for key, parameter in enumerate(values(model, model.parameters)):
        assert (parameter == before[key]).all()


def test_gradients_equal_the_slope_of_the_mean_loss(model: Model) -> None:
    """Central differences along the gradient of each tensor."""
    before = values(model, model.parameters)
    model.step(0, 0, 4)
    for key, gradient in enumerate(values(model, model.gradients)):
        norm = float(np.sqrt((gradient.astype(np.float64) ** 2).sum()))
        losses = []
        for sign in (1, -1):
            model.set(key, before[key] + np.float32(sign * 1e-2 / norm) * gradient)
            losses.append(model.step(0, 0, 4))
        model.set(key, before[key])
        assert (losses[0] - losses[1]) / 2e-2 == pytest.approx(norm, rel=0.05), key


def test_initial_parameters_depend_on_the_seed_only(model: Model) -> None:
    workload = digits_cnn(DigitsConfig(batch_size=8))
    same, other = workload.model(3), workload.model(4)
    for mine, twin, stranger in zip(
        values(digits_cnn(DigitsConfig()).model(3), model.parameters),
        values(same, same.parameters),
        values(other, other.parameters),
        strict=True,
    ):
        assert (mine == twin).all()
        if mine.ndim > 1:
            bound = np.sqrt(6 / ((mine.shape[0] + mine.shape[1]) * np.prod(mine.shape[2:])))
            assert 0.9 * bound < np.abs(mine).max() <= bound
            assert (mine != stranger).any()
        else:
            assert not mine.any()


def test_evaluate_uses_its_arguments_and_does_not_change_the_model(model: Model) -> None:
    before = values(model, model.parameters)
    blank = [np.zeros_like(value) for value in before]
    accuracy, loss = model.evaluate(blank)
    assert loss == pytest.approx(np.log(10), rel=1e-5)
    assert accuracy == pytest.approx(0.1, abs=0.01)
    assert model.evaluate(before) != (accuracy, loss)
    assert model.evaluate(blank) == (accuracy, loss)
    for key, value in enumerate(values(model, model.parameters)):
        assert (value == before[key]).all()


FINGERPRINT = """
import hashlib
from geomx.workloads.cnn import DigitsConfig, digits_cnn
model = digits_cnn(DigitsConfig()).model(3)
digest = hashlib.sha256()
for step, worker in ((0, 0), (1, 3), (12, 2)):
    digest.update(repr(model.step(step, worker, 4)).encode())
    for key in range(10):
        digest.update(model.get(model.gradients, key).tobytes())
print(digest.hexdigest())
"""


@pytest.mark.slow
def test_another_process_computes_the_same_bits(model: Model) -> None:
    del model
    path = os.pathsep.join(entry for entry in sys.path if entry)
    printed = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout.strip()
        # The second process has other allocations and computations before.
        for code in (
            FINGERPRINT,
            "import numpy; kept = [numpy.ones(n) for n in range(999)]\n"
            + FINGERPRINT.replace("digest = h", "model.step(3, 1, 2)\ndigest = h"),
        )
    ]
    assert printed[0] == printed[1]
    assert len(printed[0]) == len(hashlib.sha256().hexdigest())


@pytest.mark.slow
def test_four_workers_learn_the_digits_within_the_default_iterations() -> None:
    workload = digits_cnn(DigitsConfig())
    model = with_mxnet(workload, seed=0)
    parameters = values(model, model.parameters)
    first = [np.zeros_like(value) for value in parameters]
    second = [np.zeros_like(value) for value in parameters]
    for step in range(workload.iterations):
        total = [np.zeros_like(value) for value in parameters]
        for worker in range(4):
            model.step(step, worker, 4)
            for key, gradient in enumerate(values(model, model.gradients)):
                total[key] += gradient / 4
        rate = workload.optimizer["learning_rate"]
        rate *= np.sqrt(1 - 0.999 ** (step + 1)) / (1 - 0.9 ** (step + 1))
        for key, gradient in enumerate(total):
            first[key] += np.float32(0.1) * (gradient - first[key])
            second[key] += np.float32(0.001) * (gradient**2 - second[key])
            parameters[key] -= np.float32(rate) * first[key] / (np.sqrt(second[key]) + 1e-8)
            model.set(key, parameters[key])
    assert model.evaluate(parameters)[0] >= 0.95


# --- IDX files


def idx(magic: int, shape: tuple[int, ...], data: bytes) -> bytes:
    return struct.pack(f">{1 + len(shape)}I", magic, *shape) + data


def write_idx(folder: Path, packed: bool = False, training: int = 40, held_out: int = 20) -> None:
    generator = np.random.default_rng(0)
    for part, count in (("train", training), ("t10k", held_out)):
        pictures = generator.integers(0, 256, count * 784, dtype=np.uint8).tobytes()
        labels = (np.arange(count) % 10).astype(np.uint8).tobytes()
        for name, content in (
            (f"{part}-images-idx3-ubyte", idx(0x803, (count, 28, 28), pictures)),
            (f"{part}-labels-idx1-ubyte", idx(0x801, (count,), labels)),
        ):
            if packed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))
            else:
                (folder / name).write_bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
def test_training_on_idx_files_equals_the_digits(tmp_path: Path, packed: bool) -> None:
    write_idx(tmp_path, packed)
    config = IdxConfig(path=str(tmp_path), batch_size=5, split_by_class=True)
    for factory in (mnist, fashion_mnist):
        workload = factory(config)
        assert workload.samples == 40
        assert [tensor.elements for tensor in workload.tensors] == CNN_SIZES
    model = with_mxnet(workload, seed=0)
    assert model.step(0, 1, 4) > 0
    assert model.evaluate(values(model, model.parameters))[1] > 0


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("train-images-idx3-ubyte", None, "has neither train-images-idx3-ubyte nor"),
        ("t10k-labels-idx1-ubyte", None, "has neither t10k-labels-idx1-ubyte nor"),
        ("train-images-idx3-ubyte", b"", "ends within its header (0 bytes)"),
        ("train-images-idx3-ubyte", b"\x00\x00\x08", "ends within its header (3 bytes)"),
        ("train-labels-idx1-ubyte", idx(0x803, (40,), b""), "magic number 0x00000803, expected"),
        ("train-images-idx3-ubyte", idx(0x803, (40, 9, 28), b""), "images of 9x28"),
        ("train-labels-idx1-ubyte", idx(0x801, (41,), bytes(41)), "41 labels for 40 images"),
        ("train-labels-idx1-ubyte", idx(0x801, (40,), bytes(39)), "it has 39"),
        ("train-labels-idx1-ubyte", idx(0x801, (40,), bytes(50)), "it has more"),
        ("train-labels-idx1-ubyte", idx(0x801, (40,), bytes([9] * 39 + [10])), "label 10"),
        ("t10k-labels-idx1-ubyte.gz", b"not gzip at all", "cannot be read"),
        (
            "t10k-labels-idx1-ubyte.gz",
            gzip.compress(idx(0x801, (20,), bytes(20)), mtime=0)[:-9],
            "cannot",
        ),
    ],
)
def test_damaged_idx_files_are_named(
    tmp_path: Path, name: str, damage: bytes | None, message: str
) -> None:
    write_idx(tmp_path)
    (tmp_path / name.removesuffix(".gz")).unlink()
    if damage is not None:
        (tmp_path / name).write_bytes(damage)
    with pytest.raises(ConfigError) as caught:
        mnist(IdxConfig(path=str(tmp_path))).model(0)
    assert message in str(caught.value)
    assert name.removesuffix(".gz") in str(caught.value)
    assert caught.value.key == "workload.path"


@pytest.mark.parametrize("path", ["", "nowhere/at/all", "a\0b"])
def test_a_folder_must_be_named_and_exist(path: str) -> None:
    with pytest.raises(ConfigError, match=r"workload\.path"):
        mnist(IdxConfig(path=path))


def test_a_header_that_claims_terabytes_is_a_damaged_file(tmp_path: Path) -> None:
    write_idx(tmp_path)
    huge = 0xFFFFFFFF
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(0x803, (huge, 28, 28), bytes(784)))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(0x801, (huge,), bytes(1)))
    with pytest.raises(ConfigError, match="train-images-idx3-ubyte: its header promises"):
        mnist(IdxConfig(path=str(tmp_path))).model(0)


def test_random_bytes_are_a_config_error(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    generator = random.Random(seed)
    write_idx(tmp_path, training=3, held_out=2)
    names = sorted(path.name for path in tmp_path.iterdir())
    originals = {name: (tmp_path / name).read_bytes() for name in names}
    for _ in range(150):
        name = generator.choice(names)
        data = bytearray(originals[name])
        for _ in range(generator.randint(1, 4)):
            data[generator.randrange(min(len(data), 24))] = generator.randrange(256)
        (tmp_path / name).write_bytes(data[: generator.randint(0, len(data))])
        try:
            from geomx.workloads.idx import load_idx

            images = load_idx(str(tmp_path))
            assert len(images.training) == len(images.training_labels), seed
        except ConfigError as error:
            assert "ubyte" in str(error), seed
        (tmp_path / name).write_bytes(originals[name])
