"""Tensors of other frameworks in the store, and the build of the GPU's kernels, if nvcc exists.

The results of the kernels are tested in C++ (runtime_cpp/tests/device_test.cc), on every device.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geomx import _core
from geomx.cli import main as cli
from geomx.cluster import NodeSpec
from geomx.errors import ConfigError, GeomxError
from geomx.experiment.wiring import node_config
from geomx.frameworks import tensors
from geomx.kv.local import LocalCluster, unshaped
from geomx.kv.store import KVStore
from geomx.kv.values import to_float32
from geomx.options.parsing import build_options
from geomx.options.schema import FaultOptions, RuntimeOptions
from tests.compilers import newest_clang

ROOT = Path(__file__).resolve().parents[1]
DEVICES = [name for name, _ in _core.devices()]
TOOLKIT = ("bin/ptxas", "include/cuda_runtime.h", "include/nv/target", "nvvm/libdevice")
needs_device = pytest.mark.skipif(len(DEVICES) == 1, reason="no device")


class Foreign:
    """An array with no interface but DLPack."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        self.shape = array.shape

    def __dlpack__(self) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


@pytest.fixture
def store() -> Iterator[KVStore]:
    cluster = LocalCluster(unshaped({"here": 1}))
    made = KVStore(cluster.workers[0], "dist_sync", cluster.close)
    yield made
    made.close()


# ---- tensors ----


@pytest.mark.parametrize("type_", [np.float32, np.float16, np.float64, np.int32])
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (0, 4)])
def test_tensors_are_read_and_written_in_place(type_: Any, shape: tuple[int, ...]) -> None:
    array = np.asarray(10 * np.random.default_rng(1).standard_normal(shape)).astype(type_)
    found = to_float32(0, Foreign(array))
    assert found.dtype == np.float32
    assert found.shape == shape
    assert np.array_equal(found, array.astype(np.float32))
    assert not np.shares_memory(found, array)
    target = np.zeros(shape, type_)
    tensors.write(found.reshape(-1), Foreign(target))
    assert np.array_equal(target, found.astype(type_))


def test_views_are_read_and_written() -> None:
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    view = array[::2, 1:4]
    assert np.array_equal(to_float32(0, Foreign(view)), view)
    tensors.write(np.full(view.size, 7, np.float32), Foreign(view))
    assert array.sum() == 24 * 23 / 2 - sum([1, 2, 3, 13, 14, 15]) + 6 * 7


def test_tensors_of_other_types_are_refused() -> None:
    with pytest.raises(GeomxError, match="not made of numbers"):
        to_float32("key", Foreign(np.zeros(3, np.complex64)))


def test_a_tensor_on_an_unknown_device_is_refused() -> None:
    class Elsewhere(Foreign):
        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 99)

    with pytest.raises(GeomxError, match="no device cuda:99; there is cpu"):
        to_float32(0, Elsewhere(np.zeros(3, np.float32)))


def test_the_store_takes_tensors(store: KVStore) -> None:
    start = np.arange(6, dtype=np.float32).reshape(2, 3)
    store.init(0, Foreign(start))
    target = np.zeros((2, 3), np.float16)
    store.pull(0, Foreign(target))
    assert np.array_equal(target, start)
    store.push(0, [Foreign(start), Foreign(start)])  # as from two devices
    start[:] = -1  # allowed as soon as push has returned
    several = [np.zeros((2, 3), np.float32) for _ in range(2)]
    store.pull(0, [Foreign(several[0]), several[1]])
    assert several[0].tolist() == several[1].tolist() == [[0, 2, 4], [6, 8, 10]]
    with pytest.raises(GeomxError, match="shape"):
        store.push(0, Foreign(np.zeros(6, np.float32)))


@pytest.mark.parametrize("accel", [(), (("fp16", {}),)])
def test_a_staged_tensor_is_pushed_like_an_array(accel: tuple[Any, ...]) -> None:
    """The path of a GPU's tensors, with the processor's queue: the received bits are equal."""
    cluster = LocalCluster(replace(unshaped({"here": 1}), accel=accel))
    store = KVStore(cluster.workers[0], close=cluster.close)
    draw = np.random.default_rng(3).standard_normal((2, 700_000)).astype(np.float32)
    store.init([0, 1], [draw, draw[0]])
    for key, array in ((0, draw), (1, draw[0])):
        store.push(key, array)
        expected = store.pull(key)
        for copied in (True, False):
            pushed = array.copy()
            value = tensors.take(Foreign(pushed), copied)
            store.member.loop.push_value(store.entry(key).key, value)
            if copied:
                pushed[:] = -1
            assert store.member.loop.wait(store.entry(key).key, 2 + (not copied), 20) > 0
            found = np.empty(array.size, np.float32)
            store.member.loop.value(store.entry(key).key, found)
            assert np.array_equal(found, expected.reshape(-1))
    store.close()


@pytest.mark.parametrize("accel", [(), (("fp16", {}),), (("mpq", {}),)])
def test_values_are_decoded_on_the_device_of_the_tensor(accel: tuple[Any, ...]) -> None:
    """The path to a GPU's tensors, with the processor's queue; the first round arrives decoded."""
    cluster = LocalCluster(replace(unshaped({"here": 1}), accel=accel))
    store = KVStore(cluster.workers[0], close=cluster.close)
    random = np.random.default_rng(4)
    shapes = [(7,), (123, 321), (2, 250_000)]
    store.init([0, 1, 2], [np.zeros(shape, np.float32) for shape in shapes])
    for _ in range(3):
        for key, shape in enumerate(shapes):
            draw = random.standard_normal(shape).astype(np.float32)
            store.push(key, draw)
            number = store.entry(key).key
            store.exchange.wait(number)
            targets = [np.full(shape, 7, type_) for type_ in (np.float32, np.float16)]
            for target in targets:
                tensors.fill(store.member.loop, number, Foreign(target))
            value = store.pull(key)
            for target in targets:
                assert np.array_equal(target, value.astype(target.dtype))
    with pytest.raises(ValueError, match="elements, not 4"):
        tensors.fill(store.member.loop, store.entry(0).key, Foreign(np.zeros(4, np.float32)))
    store.close()


def test_torch_tensors(store: KVStore) -> None:
    torch = pytest.importorskip("torch")
    draw = torch.randn(4, 5)
    for type_ in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        tensor = draw.to(type_)
        assert np.array_equal(to_float32(0, tensor), tensor.float().numpy())
        target = torch.zeros(4, 5, dtype=type_)
        tensors.write(draw.numpy().reshape(-1), target)
        assert torch.equal(target, tensor)
    store.init(0, draw)
    store.push(0, draw.bfloat16())
    assert np.array_equal(store.pull(0), draw.bfloat16().float().numpy())


def test_a_stage_limits_its_kept_memory() -> None:
    stage = _core.DeviceStaging("cpu", most_kept=1000)
    source = np.arange(200, dtype=np.float32)
    for count in (100, 200, 50, 0):
        out = np.empty(count, np.float32)
        stage.fetch(source.ctypes.data, "float32", out)
        assert np.array_equal(out, source[:count])
        assert stage.kept <= 1000
    assert stage.kept >= 800
    with pytest.raises(ValueError, match="a tensor of int8"):
        stage.fetch(source.ctypes.data, "int8", out)


def test_a_staged_sum_is_pushed_like_the_arrays(store: KVStore) -> None:
    draw = np.random.default_rng(3).standard_normal((5, 31, 7)).astype(np.float32)
    store.init(0, draw[0])
    store.push(0, list(draw))
    expected = store.pull(0)
    pushed = draw.copy()
    value = tensors.take([Foreign(each) for each in pushed], True)
    pushed[:] = -1
    store.member.loop.push_value(store.entry(0).key, value)
    assert store.member.loop.wait(store.entry(0).key, 2, 20) > 0
    found = np.empty(draw[0].size, np.float32)
    store.member.loop.value(store.entry(0).key, found)
    assert np.array_equal(found, expected.reshape(-1))
    strange = Foreign(np.zeros((31, 7), np.int32))
    with pytest.raises(GeomxError, match=r"a tensor of int32.*make it float32"):
        tensors.take([Foreign(draw[0]), strange], True)


@needs_device
def test_the_store_takes_tensors_of_a_device(store: KVStore) -> None:
    torch = pytest.importorskip("torch")
    draw = torch.randn(1000, 33)
    store.init(0, draw.cuda())
    for type_ in (torch.float32, torch.float16, torch.bfloat16):
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            tensor = draw.cuda().to(type_)
            for _ in range(50):
                tensor = tensor + 1  # is still being computed when it is pushed
            store.push(0, tensor)
            target = torch.zeros_like(tensor)
            store.pull(0, target)
            store.push(0, [tensor] * 3)
            several = torch.zeros_like(draw).cuda()
            store.pull(0, several)
        assert torch.equal(target.cpu(), tensor.cpu())
        assert torch.equal(several, tensor.float() + tensor.float() + tensor.float())


# ---- the build ----


def test_a_missing_server_device_is_named(
    experiment: Callable[..., Any], network: Callable[..., Any], sized: Callable[..., Any]
) -> None:
    built = experiment(network(1, 1), sized(9))
    members, selection = built.cluster, built.selection
    runtime = RuntimeOptions(server_device="cuda:77")

    def configure(node: NodeSpec, live: bool) -> None:
        node_config(
            members,
            selection,
            node,
            phantom=False,
            runtime=runtime,
            faults=FaultOptions(),
            live=live,
            seed=0,
        )

    server = members.parties[0].server
    devices = ", ".join(DEVICES)
    told = f"runtime.server_device=cuda:77: the machine of {server.name} has only {devices};"
    with pytest.raises(ConfigError, match=re.escape(told)):
        configure(server, live=True)
    configure(server, live=False)
    configure(members.workers[0], live=True)
    with pytest.raises(ConfigError, match="server_device=gpu: must be cpu, cuda or cuda:N"):
        build_options(RuntimeOptions, {"server_device": "gpu"}, "runtime")


def test_info_shows_the_build_and_the_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info"]) == 0
    said = capsys.readouterr().out
    assert f"gpu {_core.build_info()['gpu']}" in said
    assert "device cpu: the processor" in said
    assert said.count("device cuda:") == len(DEVICES) - 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_the_cuda_sources_compile() -> None:
    """For every architecture, with warnings as errors; the program also runs without a GPU."""
    folder = ROOT / "build" / "cpp-tests-cuda"
    (folder / "CMakeCache.txt").unlink(missing_ok=True)
    cmake = shutil.which("cmake", path=str(Path(sys.executable).parent)) or shutil.which("cmake")
    assert cmake
    switches = ["-DGEOMX_PYTHON=OFF", "-DGEOMX_BENCHMARKS=ON", "-DGEOMX_CUDA=on"]
    said = _output(cmake, "-S", ROOT, "-B", folder, *switches)
    assert "geomx: CUDA " in said
    cores = str(os.cpu_count() or 1)
    _output(cmake, "--build", folder, "--target", "device_timings", "--parallel", cores)
    program = folder / "runtime_cpp" / "device_timings"
    assert _output(program, "cpu", "large", 4321).strip() == "ok"
    symbols = program.read_bytes()
    assert b"AccumulateKernel" in symbols


@pytest.mark.slow
def test_an_old_cuda_compiler_is_named(tmp_path: Path) -> None:
    """With GEOMX_CUDA=auto it is left out; CMake's own error would end the build."""
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 11.8, V11.8.89'\n")
    nvcc.chmod(0o755)
    cmake = shutil.which("cmake", path=str(Path(sys.executable).parent)) or shutil.which("cmake")
    assert cmake
    words = [cmake, "-S", ROOT, "-B", tmp_path / "build", "-DGEOMX_PYTHON=OFF", "-DGEOMX_CUDA=on"]
    done = subprocess.run(
        [*words, f"-DCMAKE_CUDA_COMPILER={nvcc}"],
        check=False, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode != 0
    told = " ".join(done.stderr.split())
    assert f"{nvcc} is of CUDA 11, and 12 or newer is needed" in told
    assert "CMAKE_CUDA_COMPILER" not in (tmp_path / "build" / "CMakeCache.txt").read_text()


VOLTA = "needs clang 16 or newer, and nvidia-cuda-{nvcc,runtime,cccl}-cu12 of PyPI"


@pytest.mark.slow
def test_the_cuda_sources_compile_for_volta(tmp_path: Path) -> None:
    """nvcc 13 has dropped sm_70; clang compiles it with the headers and ptxas of CUDA 12."""
    clang = newest_clang()
    nvidia = importlib.util.find_spec("nvidia")
    roots = [Path(root) for root in nvidia.submodule_search_locations or ()] if nvidia else []
    parts = [root / name for root in roots for name in ("cuda_nvcc", "cuda_runtime", "cuda_cccl")]
    if clang is None or not all(any((part / f).exists() for part in parts) for f in TOOLKIT):
        pytest.skip(VOLTA)
    toolkit = tmp_path / "cuda"
    for path in (path for part in parts for path in part.glob("*/*")):
        link = toolkit / path.parent.name / path.name
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(path)
    # Clang's headers include one of a library that is not used here.
    (toolkit / "include" / "curand_mtgp32_kernel.h").touch()
    words = [clang, "-x", "cuda", f"--cuda-path={toolkit}", "--cuda-gpu-arch=sm_70", "-std=c++20"]
    words += ["--cuda-device-only", "-Wno-unknown-cuda-version", "-O1", "-ffp-contract=off"]
    words += [
        f"-I{ROOT / 'runtime_cpp'}",
        "-DGEOMX_CUDA_LOWEST=70",
        '-DGEOMX_CUDA_BUILD="12"',
        "-c",
    ]
    sources = sorted((ROOT / "runtime_cpp" / "kernels" / "cuda").glob("*.cu"))
    assert len(sources) > 5
    for source in sources:
        _output(*words, source, "-o", tmp_path / source.stem)
        assert (tmp_path / source.stem).read_bytes().startswith(b"\x7fELF")


def _output(*words: str | Path | int) -> str:
    done = subprocess.run(
        [str(word) for word in words], check=False, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    return done.stdout


# ---- the benchmark ----


@pytest.mark.slow
def test_the_benchmark_trains_on_tensors() -> None:
    said = _output(sys.executable, ROOT / "benchmarks" / "gpu" / "training.py", "cpu")
    found = json.loads(said.splitlines()[-1])
    assert found["largest_difference"] < 1e-3 < found["largest_weight"]


def test_the_benchmark_writes_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "gpu"))
    run = importlib.import_module("run")
    rows = [
        {"name": name, "elements": run.GIB, "seconds": seconds, "bytes": size * run.GIB,
         "of_copy": 2e-3 * size / seconds / 8}
        for name, seconds, size in [
            ("copy", 2e-3, 8), ("narrow to fp16", 1.6e-3, 6), ("widen and add fp16", 4e-3, 10),
            ("add 1", 3e-3, 12), ("add 2", 4e-3, 16), ("add 4", 6e-3, 24), ("add 8", 10e-3, 40),
            ("sparsify", 10e-3, 20),
        ]
    ]  # fmt: skip
    theirs = [{"library": "torch", "name": "sparsify", "elements": run.GIB, "seconds": 60e-3}]
    exchanged = {"codec": "fp16", "place": "device", "servers": "cpu"}
    exchanged |= {"median_s": 0.25, "least_s": 0.2}
    report = {
        "device": "cuda:0",
        "machine": run.machine(),
        "steps": {
            "timings": {"ok": True, "wall_s": 1, "rows": rows, "about": {"description": "a GPU"}},
            "others": {"ok": True, "wall_s": 1, "rows": theirs},
            "training": {"ok": False, "wall_s": 1, "error": "RuntimeError: no\nluck"},
            "stores": {"ok": True, "wall_s": 1, "tensors": 161, "rows": [exchanged]},
        },
    }
    report["verdicts"] = run.verdicts(report)
    found = {each["what"]: (each["found"], each["ok"]) for each in report["verdicts"]}
    assert found["narrow to fp16: of copy bandwidth"] == (pytest.approx(0.938, abs=1e-3), True)
    assert found["widen and add fp16: of copy bandwidth"] == (0.625, False)
    assert found["sparsify: times its state once"] == (2.0, True)
    assert found["sparsify: times faster than torch.topk"] == (6.0, True)
    text = run.page(report)
    assert "# Kernels on a GPU" in text
    assert "FAILED: RuntimeError: no luck" in text
    assert "| fp16 | device | cpu | 0.250 | 0.200 |" in text
    assert "| sparsify | 268435456 | 10000.0 | 536.9 | 0.50 | 60000.0 |  |" in text
