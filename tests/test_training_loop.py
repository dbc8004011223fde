"""The training loop exists once: its rules, and that all drivers ask the same of a sync policy."""

from __future__ import annotations

import pytest

from geomx import _core

# ---- passes over the layers ----

S = 1_000_000_000


def clock(forward_s: list[float], backward_s: list[float]) -> _core.PassClock:
    """Of a worker with one key per layer, whose initial values have come at once."""
    pace = _core.Pace(
        [round(each * S) for each in forward_s], [round(each * S) for each in backward_s]
    )
    made = _core.PassClock(list(range(len(forward_s))), pace)
    assert made.arrived([(0, key, 0) for key in made.awaited()]) == 0
    return made


def test_layers_wait_one_by_one_and_gradients_leave_backwards() -> None:
    passes = clock([0.1, 0.2, 0.0], [0.3, 0.4, 0.5])
    passes.forward(0)
    assert passes.awaited() == []
    assert passes.arrived([]) == 0.3 * S
    assert passes.backward("gradients", False, False, 300_000_000) == [
        (2, 0.8 * S), (1, 1.2 * S), (0, 1.5 * S)
    ]  # fmt: skip
    assert passes.now_ns == 1.5 * S
    assert passes.awaited() == [0]  # what the next step begins with
    assert passes.arrived([(2 * S, 0, 1)]) == 2 * S
    passes.take_spans()
    passes.forward(2 * S)
    assert passes.awaited() == [1, 2]
    assert passes.arrived([(3 * S, 1, 1), (S, 2, 1)]) == 3.2 * S
    assert passes.take_spans() == [
        ("forward", {}, 2 * S, 2.1 * S),
        ("wait", {"key": 1, "round": 1}, 2.1 * S, 3 * S),
        ("forward", {}, 3 * S, 3.2 * S),
    ]


def test_parameters_leave_when_the_pass_is_over_and_the_last_step_waits_for_all() -> None:
    passes = clock([0.5, 0.5], [1.0, 1.0])
    passes.forward(2 * S)
    end = passes.arrived([])
    assert passes.backward("parameters", True, False, end) == [(1, 5 * S), (0, 5 * S)]
    assert passes.awaited() == [0, 1]
    assert passes.arrived([(7 * S, 0, 1), (6 * S, 1, 1)]) == 7 * S


def test_a_reply_is_waited_for_like_a_value() -> None:
    passes = clock([1.0], [1.0])
    for reply, end in ((5 * S, 5 * S), (S // 2, 3 * S)):
        passes.forward(0)
        forward = passes.arrived([])
        pushes = passes.backward("parameters", False, True, forward)
        assert pushes == [(0, 2 * S)]
        assert passes.arrived([(3 * S, 0, 1)], reply) == end


def test_a_step_that_pushes_nothing_waits_for_nothing() -> None:
    passes = clock([1.0], [1.0])
    passes.forward(0)
    assert passes.backward("nothing", False, False, passes.arrived([])) == []
    assert passes.awaited() == []
    assert passes.arrived([]) == 2 * S


def test_orders_out_of_turn_are_refused() -> None:
    passes = clock([1.0], [1.0])
    passes.forward(0)
    with pytest.raises(RuntimeError, match="still being carried out"):
        passes.forward(0)
    passes.backward("gradients", False, False, passes.arrived([]))
    with pytest.raises(RuntimeError, match="not told of"):
        passes.arrived([])
    with pytest.raises(ValueError, match="nothing, gradients or parameters"):
        passes.backward("everything", False, False, 0)
    with pytest.raises(ValueError, match="belongs to no layer"):
        _core.PassClock([1], _core.Pace([1], [1]))
