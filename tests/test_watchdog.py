"""Attended work: one thread for works one after another, another one after an interruption."""

from __future__ import annotations

import threading
import time

import pytest

from geomx.errors import PluginError
from geomx.limits import rules, watchdog
from geomx.limits.watchdog import any_abandoned, attended


def thread() -> threading.Thread:
    return attended(threading.current_thread)


def test_works_one_after_another_share_a_thread() -> None:
    assert thread() is thread() is not threading.current_thread()


def test_works_at_the_same_time_have_threads_of_their_own() -> None:
    meeting = threading.Barrier(2, timeout=10)
    found: list[threading.Thread] = []

    def work() -> None:
        meeting.wait()
        found.append(threading.current_thread())

    callers = [threading.Thread(target=attended, args=(work,)) for _ in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(10)
    assert len(set(found)) == 2


def test_an_exception_leaves_the_thread_as_it_was() -> None:
    before = thread()
    with pytest.raises(ZeroDivisionError):
        attended(lambda: 1 / 0)
    assert thread() is before


@pytest.mark.parametrize(
    "sleeps_s",
    [pytest.param(0.0, id="loops"), pytest.param(2.0, id="sleeps", marks=pytest.mark.slow)],
)
def test_a_thread_that_was_interrupted_does_no_other_work(
    sleeps_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late exception would hit what has nothing to do with it."""
    monkeypatch.setattr(rules, "HOOK_LIMIT_S", 0.1)
    monkeypatch.setattr(watchdog, "_abandoned", [])  # calls of other tests may still run
    used: list[threading.Thread] = []

    def work() -> None:
        used.append(threading.current_thread())
        with rules.hook_limited("it"):
            time.sleep(sleeps_s)
            while True:
                pass

    with pytest.raises((PluginError, TimeoutError), match="did not return"):
        attended(work)
    assert any_abandoned() == (sleeps_s > 0)
    assert thread() is not used[0]
    used[0].join(10)
    assert not used[0].is_alive()
    assert not any_abandoned()
