"""Values that the store cannot carry are refused, and so are keys of which workers disagree."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomx import kv
from geomx.errors import GeomxError
from geomx.kv.values import check_fits, narrow, to_float32

INTEGERS = [np.dtype(kind + size) for kind in "iu" for size in "1248"]


@pytest.fixture
def alone() -> Iterator[kv.KVStore]:
    """Return the store of a script that was not launched by geomx."""
    store = kv.create()
    yield store
    store.close()


def near_powers(dtype: np.dtype[Any]) -> st.SearchStrategy[int]:
    """Return integers of a type, most of them where a type's numbers end or become sparse."""
    limits = np.iinfo(dtype)
    near = st.builds(
        lambda power, by, sign: sign * (2**power + by),
        st.integers(0, 64),
        st.integers(-2, 2),
        st.sampled_from([-1, 1]),
    )
    return near.filter(lambda number: limits.min <= number <= limits.max)


@given(st.data(), st.sampled_from(INTEGERS))
def test_integers_are_sent_as_they_are_or_refused(data: st.DataObject, dtype: Any) -> None:
    numbers = data.draw(st.lists(near_powers(dtype), min_size=1, max_size=3))
    array = np.array(numbers, dtype)
    rounded = [number for number in numbers if int(np.float32(number)) != number]
    if rounded:
        with pytest.raises(GeomxError, match=rf"key 'w': {rounded[0]} of {dtype} would be rounded"):
            to_float32("w", array)
    else:
        assert [int(number) for number in to_float32("w", array)] == numbers


@given(st.data(), st.sampled_from(INTEGERS))
def test_values_fit_an_integer_type_unless_it_wraps(data: st.DataObject, dtype: Any) -> None:
    power = data.draw(st.integers(0, 70))
    number = data.draw(st.sampled_from([-1, 1])) * (2**power + data.draw(st.integers(-2, 2)))
    value = np.array([0, number], np.float32)
    limits = np.iinfo(dtype)
    if limits.min <= int(value[1]) <= limits.max:
        check_fits("w", value, dtype.name)
        assert int(value.astype(dtype)[1]) == int(value[1])
    else:
        with pytest.raises(GeomxError, match=f"key 'w': .* does not fit {dtype.name}"):
            check_fits("w", value, dtype.name)


@pytest.mark.parametrize(
    ("array", "sum_", "what"),
    [
        (np.full(3, 200, np.uint8), None, ""),
        (np.full(3, 200, np.uint8), 256, "256 does not fit uint8"),
        (np.full(3, 7, np.uint16), -1, "-1 does not fit uint16"),
        (np.full(3, 2**30, np.int32), 2**31, "2147483648 does not fit int32"),
        (np.full(3, 5, np.int64), np.nan, "nan does not fit int64"),
        (np.full(3, 60000, np.float16), 65504, ""),
        (np.full(3, 60000, np.float16), 120000, "120000 does not fit float16"),
        (np.full(3, 1, np.float16), np.inf, ""),
        (np.ones(3, np.float64), 2**40, ""),
    ],
)
def test_what_does_not_fit_the_array_to_fill_is_refused(
    alone: kv.KVStore, array: Any, sum_: float | None, what: str
) -> None:
    alone.init("w", array)
    assert np.array_equal(alone.pull("w", out=np.zeros_like(array)), array)
    alone.push("w", array if sum_ is None else np.full(3, sum_, np.float32))
    out = [np.zeros(3, np.float32), np.zeros_like(array)]
    if what:
        with pytest.raises(GeomxError, match=f"key 'w': its value {what}.*float32"):
            alone.pull("w", out=out)
        assert not np.any(out)  # none was filled
        alone.pull("w", out=out[:1])
    else:
        alone.pull("w", out=out)
        assert np.array_equal(out[1], array if sum_ is None else np.full(3, sum_, array.dtype))
    assert np.array_equal(out[0], array if sum_ is None else np.full(3, sum_), equal_nan=True)


def test_tensors_of_other_frameworks_are_checked_too(alone: kv.KVStore) -> None:
    torch = pytest.importorskip("torch")
    wrong = torch.full((2,), 2**24 + 1, dtype=torch.int64)
    with pytest.raises(GeomxError, match="16777217 of int64 would be rounded"):
        alone.init("w", wrong)
    with pytest.raises(GeomxError, match=r"Parameter: .* require gradient, use tensor.detach"):
        alone.init("w", torch.nn.Parameter(torch.ones(2)))
    alone.init("w", torch.ones(2))
    alone.push("w", torch.full((2,), 300.0))
    for dtype, fits in [(torch.int8, False), (torch.int16, True), (torch.bfloat16, True)]:
        out = torch.zeros(2, dtype=dtype)
        if fits:
            alone.pull("w", out=out)
            assert out.tolist() == [300, 300]
        else:
            with pytest.raises(GeomxError, match="300 does not fit int8"):
                alone.pull("w", out=out)
            assert out.tolist() == [0, 0]


def test_pushes_of_float32_cost_no_check() -> None:
    array = np.zeros(3, np.float32)
    assert to_float32("w", array) is array
    assert not narrow(array)


# ---- keys ----


SCRIPT = """
import sys
import numpy as np
from geomx import kv
store = kv.create("dist_sync")
turned = sys.argv[1] == "turned" and store.global_rank == 3
for name in ["b", "a"] if turned else ["a", "b"]:
    store.init(name, np.zeros(2, np.float32))
store.push(["a", "b"], [np.full(2, 1, np.float32), np.full(2, 100, np.float32)])
print("sums", *(store.pull(name)[0] for name in "ab"), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["simulate", "launch"])
@pytest.mark.parametrize("order", ["same", "turned"])
def test_keys_in_another_order_are_an_error(tmp_path: Path, verb: str, order: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "geomx", verb, "--", sys.executable, str(script), order]
    ended = subprocess.run(
        command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    if order == "same":
        assert ended.returncode == 0, ended.stderr
        assert "sums 4.0 400.0" in ended.stdout
    else:
        assert ended.returncode != 0
        what = (
            r"key 0 \(piece 0\) has another name at \w+/worker1 than at [\w/]+: all workers must "
            "initialise the same keys in the same order"
        )
        assert re.search(what, ended.stderr), ended.stderr


FORKS = """
import os, sys
import numpy as np
import geomx.kv

store = geomx.kv.create()
store.init(0, np.zeros(3))
store.push(0, np.ones(3))
store.pull(0)
if os.fork() == 0:
    for call in (lambda: store.push(0, np.ones(3)), lambda: store.pull(0), store.barrier):
        try:
            call()
        except RuntimeError as error:
            assert "was forked from process" in str(error), error
        else:
            os._exit(1)
    sys.exit(7)
print("child", os.waitstatus_to_exitcode(os.wait()[1]))
store.push(0, np.ones(3))
print("sum", store.pull(0)[0])
"""


@pytest.mark.slow
def test_a_forked_process_is_refused_its_parents_store() -> None:
    """It has none of its parent's threads, for which it would wait without end, also at exit."""
    ended = subprocess.run(
        [sys.executable, "-c", FORKS], check=False, capture_output=True, text=True, timeout=120
    )
    assert (ended.returncode, ended.stdout) == (0, "child 7\nsum 1.0\n"), ended.stderr
    assert ended.stderr == ""
