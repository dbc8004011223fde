"""Codecs and slicers written in Python."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from geomx import hookimpl
from geomx.errors import PluginError
from geomx.experiment.build import build_experiment
from geomx.plugin.registry import Registry
from geomx.runner import execute

pytestmark = [pytest.mark.slow, pytest.mark.interpreter]

NETWORK = {
    "central": {
        "name": "hub", "global_servers": 1, "workers": 0,
        "uplink_mbps": 1000, "downlink_mbps": 1000,
    },
    "parties": {
        "a": {"workers": 2, "uplink_mbps": 100, "downlink_mbps": 100},
        "b": {"workers": 1, "uplink_mbps": 100, "downlink_mbps": 100},
    },
    "delay_ms": 5,
    "lan": {"mbps": 10000, "delay_ms": 0.05},
}  # fmt: skip


class SignCodec:
    """One sign per element and one scale per shard, with error feedback."""

    whole = frozenset({"bits", "scale"})
    survives_holes = False

    def __init__(self) -> None:
        self.residual = None

    def layout(self, spec):
        elements = spec["values"][0]
        return {"bits": (-(-elements // 8), "u1"), "scale": (1, "u4")}

    def encode(self, parts):
        values = parts["values"] + (0 if self.residual is None else self.residual)
        scale = np.abs(values).mean(dtype=np.float32)
        self.residual = values - np.where(values >= 0, scale, -scale)
        return {"bits": np.packbits(values >= 0), "scale": np.array([scale]).view(np.uint32)}

    def decode(self, parts, length):
        signs = np.unpackbits(parts["bits"], count=length).astype(bool)
        scale = parts["scale"].view(np.float32)[0]
        return {"values": np.where(signs, scale, -scale).astype(np.float32)}


class TypedCodec:
    """Sends parts of several types, and checks that they arrive as the layout says."""

    whole = frozenset(("scale", "origin", "swapped", "count"))
    survives_holes = False

    def layout(self, spec):
        length = spec["values"][0]
        whole = {"scale": (1, "f4"), "origin": (1, "f8"), "swapped": (1, ">i2"), "count": (1, "i8")}
        return {"steps": (length, "i1"), **whole}

    def encode(self, parts):
        values = parts["values"]
        scale = np.abs(values).max(keepdims=True) / np.float32(127)
        steps = np.rint(values / (scale or 1)).astype(np.int8)
        whole = {"origin": np.array([-0.5]), "swapped": np.array([-2], ">i2")}
        return {"steps": steps, "scale": scale, "count": np.array([-len(values)]), **whole}

    def decode(self, parts, length):
        types = {name: part.dtype.str for name, part in parts.items()}
        layout = self.layout({"values": (1,)})
        said = {name: np.dtype(type).str for name, (_, type) in layout.items()}
        if types != said or (parts["origin"][0], parts["swapped"][0]) != (-0.5, -2):
            raise ValueError(f"{types} {parts}")
        if parts["count"] != [-length]:
            raise ValueError(f"{parts['count']} for {length}")
        return {"values": parts["steps"] * parts["scale"]}


class ObjectCodec(TypedCodec):
    def layout(self, spec):
        return {"any": (1, "O")}


class HalfCodec:
    """Half precision by rows; slices can be decoded separately."""

    whole = frozenset()
    survives_holes = True

    def layout(self, spec):
        return {"values": (spec["values"][0], "f2")}

    def encode(self, parts):
        return {"values": parts["values"].astype(np.float16)}

    def decode(self, parts, length):
        return {"values": parts["values"].astype(np.float32)}


class Reverse:
    """Divides into blocks of 1000 rows, and sends the last first."""

    def cut(self, slices, row_bytes, round_number):
        blocks = []
        for first, rows, priority, channel in slices:
            for at in range(0, rows, 1000):
                blocks.append((first + at, min(1000, rows - at), priority, channel))
        return blocks[::-1]


class Liar(HalfCodec):
    def layout(self, spec):
        return {"values": (spec["values"][0], "u1")}


class Short(HalfCodec):
    def encode(self, parts):
        return {"values": parts["values"][1:].astype(np.float16)}


class Raiser(HalfCodec):
    def encode(self, parts):
        raise ZeroDivisionError("on purpose")


def _module(name: str, hook: str, answer) -> types.ModuleType:
    import dataclasses

    config = dataclasses.make_dataclass("Config", [])

    class Plugin:
        """A plugin with one hook."""

        def __init__(self, config) -> None:
            pass

    def method(self, link):
        return answer() if link.kind == "wan" and link.direction == "push" else None

    method.__name__ = hook
    setattr(Plugin, hook, hookimpl(method))
    module = types.ModuleType(f"third_party_{name}")

    @hookimpl
    def geomx_register(register) -> None:
        register("accel", name, config, Plugin)

    module.geomx_register = geomx_register
    sys.modules[module.__name__] = module
    return module


def _run(tmp_path, accel: dict, iterations: int = 12, numerics: bool = True):
    registry = Registry.discover()
    registry.ask(_module("halves", "geomx_codec", HalfCodec))
    registry.ask(_module("sign", "geomx_codec", SignCodec))
    registry.ask(_module("reverse", "geomx_slicer", Reverse))
    registry.ask(_module("liar", "geomx_codec", Liar))
    registry.ask(_module("short", "geomx_codec", Short))
    registry.ask(_module("raiser", "geomx_codec", Raiser))
    registry.ask(_module("typed", "geomx_codec", TypedCodec))
    registry.ask(_module("objects", "geomx_codec", ObjectCodec))
    content = {
        "network": NETWORK,
        "accel": accel,
        "iterations": iterations,
        "evaluate_every": iterations,
        "numerics": numerics,
    }
    experiment = build_experiment(content, None, "digits_cnn", [], registry)
    return execute(experiment, tmp_path)


@pytest.fixture(autouse=True)
def _needs_mxnet():
    pytest.importorskip("sklearn")


def test_a_python_codec_halves_the_bytes(tmp_path):
    plain = _run(tmp_path / "plain", {}, numerics=False)
    halved = _run(tmp_path / "halved", {"halves": {}}, numerics=False)
    ratio = halved.summary["bytes"]["wan_push"] / plain.summary["bytes"]["wan_push"]
    assert ratio == pytest.approx(0.5, rel=0.01)
    assert halved.summary["bytes"]["wan_pull"] == plain.summary["bytes"]["wan_pull"]


def test_a_python_codec_equals_the_native_one(tmp_path):
    python = _run(tmp_path / "python", {"halves": {}}, iterations=4)
    assert (
        python.summary["bytes"]
        == _run(tmp_path / "sizes", {"halves": {}}, iterations=4, numerics=False).summary["bytes"]
    )
    plain = _run(tmp_path / "plain", {}, iterations=4)
    for name, value in plain.parameters().items():
        np.testing.assert_allclose(python.parameters()[name], value, atol=2e-2)


def test_a_codec_with_whole_parts_learns_with_one_bit_per_element(tmp_path):
    plain = _run(tmp_path / "plain", {}, iterations=40)
    signs = _run(tmp_path / "signs", {"sign": {}}, iterations=40)
    assert signs.summary["bytes"]["wan_push"] < plain.summary["bytes"]["wan_push"] / 28
    assert signs.summary["accuracy"]["final"] > 0.5


def test_parts_arrive_with_the_types_of_the_layout(tmp_path):
    typed = _run(tmp_path / "typed", {"typed": {}}, iterations=4)
    plain = _run(tmp_path / "plain", {}, iterations=4)
    for name, value in plain.parameters().items():
        np.testing.assert_allclose(typed.parameters()[name], value, atol=2e-2)
    with pytest.raises(PluginError, match=r'ObjectCodec.layout.*"any" of Python objects'):
        _run(tmp_path / "objects", {"objects": {}})


def test_a_python_slicer_does_not_change_the_result(tmp_path):
    cut = _run(tmp_path / "cut", {"reverse": {}}, iterations=4)
    plain = _run(tmp_path / "plain", {}, iterations=4)
    for name, value in plain.parameters().items():
        np.testing.assert_array_equal(cut.parameters()[name], value)
    assert cut.summary["bytes"]["wan_push"] > plain.summary["bytes"]["wan_push"]


def test_a_broken_promise_is_named(tmp_path):
    words = r'accel liar: geomx_codec: Liar.encode produced "values" of 16 bits, which layout did'
    with pytest.raises(PluginError, match=words):
        _run(tmp_path, {"liar": {}})
    words = r"accel short: geomx_codec: Short.encode produced \d+ bytes, layout promised \d+"
    with pytest.raises(PluginError, match=words):
        _run(tmp_path, {"short": {}})


def test_an_exception_of_a_codec_is_named(tmp_path):
    words = r"accel raiser: geomx_codec: Raiser.encode: ZeroDivisionError: on purpose"
    with pytest.raises(PluginError, match=words):
        _run(tmp_path, {"raiser": {}})
