"""Tests of where the local steps of a script begin and end."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from geomx._core import LocalSteps


def test_a_step_ends_where_the_store_returned_before_a_key_is_pushed_again() -> None:
    steps = LocalSteps()
    assert [steps.push(key, 5) for key in (0, 1, 2)] == [None] * 3
    assert steps.push(1, 7) == (0, 0, 7)
    assert steps.computed() and not steps.computed()
    assert steps.push(0, 8) is None
    assert steps.leave(9) == (1, 7, 9)
    assert steps.leave(9) is None and steps.done == 2


def test_a_script_may_tell_where_its_steps_begin() -> None:
    steps = LocalSteps()
    assert steps.begin(3) is None
    for _ in range(2):
        assert steps.push(0, 4) is None  # as often as it likes
    assert steps.computed()
    assert steps.begin(6) == (0, 3, 6)
    assert steps.begin(7) is None  # nothing was computed
    steps.computed()
    assert steps.leave(9) == (1, 6, 9)


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(0, 5))
def test_steps_follow_each_other_and_push_no_key_twice(keys: list[int], start: int) -> None:
    steps, found = LocalSteps(start), []
    for number, key in enumerate(keys):
        step = steps.push(key, start + number)
        found += [] if step is None else [step]
    last = steps.leave(start + len(keys))
    assert (last is None) == (not keys)
    found += [] if last is None else [last]
    assert [number for number, *_ in found] == list(range(len(found)))
    bounds = [start, *(end for *_, end in found)]
    assert [begin for _, begin, _ in found] == bounds[:-1]
    for begin, end in itertools.pairwise(bounds):
        pushed = keys[begin - start : end - start]
        assert pushed
        assert len(set(pushed)) == len(pushed)
