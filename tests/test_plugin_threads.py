"""Plugins of live runs are asked by one thread: that of the node's program."""

from __future__ import annotations

from pathlib import Path

import pytest

import geomx
from tests.strangers import install

SOURCE = '''
from dataclasses import dataclass
from threading import current_thread
import sys
import time
import geomx

@dataclass(frozen=True)
class Options:
    pass

class Asked:
    """Says which thread asks it."""
    def __init__(self, config):
        pass
    @geomx.hookimpl
    def geomx_sync_policy(self, cluster):
        print("asked by", current_thread().name, file=sys.stderr, flush=True)
        time.sleep(0.2)  # in which other threads have their turn
        return None

@geomx.hookimpl
def geomx_register(register):
    register("accel", "asked", Options, Asked)
'''


@pytest.mark.slow
def test_only_the_main_thread_of_a_node_asks_plugins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", "asked_stranger", SOURCE, monkeypatch)
    folder = tmp_path / "run"
    words = ["mode=live", "workload=tiny", "iterations=2", "+accel=[asked]"]
    geomx.run([*words, f"hydra.run.dir={folder}"])
    logs = {log.stem: log.read_text() for log in (folder / "nodes").glob("*.log")}
    said = {name: text for name, text in logs.items() if "asked by" in text}
    assert said.keys() >= {"beijing-server", "chengdu-worker1", "hub-global_server0"}
    for name, text in said.items():
        assert set(text.splitlines()) == {"asked by MainThread"}, name
