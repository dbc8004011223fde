"""What is kept of a composition and filled with values equals what Hydra composes as a whole."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
import pytest
from hydra import compose, initialize_config_module
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import OmegaConf

import conf
from geomx.config import compose as composing
from geomx.config import composition
from geomx.errors import ConfigError
from geomx.pages.commands import setting
from geomx.plugin.registry import Registry

OVERRIDES = [
    [],
    ["sync=hfa", "accel=[dgt,fp16]", "sync.k1=3", "accel.dgt.k=0.5"],
    ["sync.k2=3", "+sync=hfa"],  # values are set last
    ["accel=[bisparse]", "accel=[fp16]"],
    ["accel=[mpq,p3]", "track=[tensorboard]", "accel.p3.slice_elements=5"],
    ["experiment=accelerators", "iterations=7"],
    ["experiment=accelerators", "accel=[dgt]", "sync=fsa"],
    ["accel=fp16"],
    ["workload=tiny", "seed=1", "seed=2"],
    ["network=five_regions", "network.delay_ms=7"],
    ["+sim.edges={a: 1}", "hydra.run.dir=there"],
    ["++iterations=5", "~seed"],
    ["network.delay_ms=9", "network={delay_ms: 3}"],
    ["scenario=[{at: 1, do: stop, node: hub/scheduler}]", "workload=resnet50"],
]  # fmt: skip
WRONG = [
    ["sync.k9=3"],
    ["accel=[fp16,nothing]"],
    ["~accel", "sync=esync"],
    ["accel.fp16.lan=true"],
    ["accel=[fp16]", "accel.fp16.lan=perhaps"],
    ["accel=[fp16]", "accel.fp16.wan=true"],
    ["iterations=many"],
    ["seed=[1]"],
    ["+seed=1"],
    ["~nothing"],
    ["sync=hfa,fsa"],
    ["sync=nothing"],
    ["seed=1,2"],
]
Composer = Callable[[list[str]], Any]


def whole(words: list[str], offered: object = None) -> Any:
    return compose("config", overrides=words, return_hydra_config=True)


def outcome(compose: Composer, words: list[str]) -> Any:
    """Return a configuration as plain values, or the text of an error."""
    composing._offer(Registry.discover())
    with composing._set_aside(), initialize_config_module("geomx.conf", version_base="1.3"):
        try:
            return OmegaConf.to_container(compose(words))
        except HydraException as error:
            return type(error), str(error), str(error.__cause__)


@pytest.mark.parametrize("words", OVERRIDES + WRONG, ids=" ".join)
def test_a_kept_composition_equals_a_new_one(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [word.removeprefix("+") if word.startswith("+sync=") else word for word in words]
    expected = outcome(whole, words)
    assert isinstance(expected, dict) == (words not in WRONG)
    for _ in range(2):
        assert outcome(lambda words: composition.composed(words, ()), words) == expected
    monkeypatch.chdir(tmp_path)
    moved = outcome(lambda words: composition.composed(words, ()), words)
    if isinstance(moved, dict):
        assert moved.pop("hydra")["runtime"].pop("cwd") == os.getcwd()
        assert moved == {key: value for key, value in expected.items() if key != "hydra"}


def network(folder: Path, delay_ms: float) -> str:
    """Write a network file; return the override that chooses it."""
    text = (Path(conf.__file__).parent / "network/two_parties.yaml").read_text(encoding="utf-8")
    file = folder / "wan.yaml"
    file.write_text(re.sub("delay_ms: 30 ", f"delay_ms: {delay_ms} ", text), encoding="utf-8")
    return f"network={file}"


def test_values_need_no_other_composition(tmp_path: Path) -> None:
    """Neither those of options, nor those within a network file, nor other accelerators."""
    composition._chosen.cache_clear()
    for k1, accel in ((2, "fp16"), (3, "dgt")):
        words = ["sync=hfa", network(tmp_path, 30), f"sync.k1={k1}", f"network.delay_ms={k1}"]
        words.append(f"accel=[{accel}]")
        experiment, _ = composing.compose(words, directory=tmp_path)
        assert experiment.selection.sync[1]["k1"] == k1
    assert composition._chosen.cache_info()[:2] == (1, 1)


def test_a_changed_network_file_is_another_choice(tmp_path: Path) -> None:
    for delay_ms in (5, 7, 5):
        words = [network(tmp_path, delay_ms)]
        experiment, _ = composing.compose(words, directory=tmp_path)
        delays = {edge["delay_ms"] for *_, edge in experiment.cluster.graph.edges(data=True)}
        assert delay_ms in delays


@pytest.mark.parametrize(
    "name", ["größe (a b)", "c,d=e: f & g", "it's [h]{i}", 'j\\k\\"l"m\\', "${seed}"]
)
def test_paths_may_have_any_characters(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    network(folder, 5)
    file = (folder / "wan.yaml").rename(folder / f"{name}.yaml")
    words = [setting("hydra.run.dir", folder / "run"), f"network={file}"]
    assert composing.compose(words)[1] == folder / "run"
    assert setting("hydra.run.dir", tmp_path) == f"hydra.run.dir={tmp_path}"


def test_errors_name_the_word_of_the_command_line() -> None:
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"sync\.k9"):
            composing.compose(["sync.k9=3"])


# --- the one run of a command


@pytest.mark.parametrize(
    "words",
    [
        ["sync=hfa", "accel=[dgt,fp16]", "sync.k1=3"],
        ["workload=tiny", "+sim.edges={a: 1}", "network.delay_ms=7"],
    ],
    ids=" ".join,
)
def test_one_run_is_that_of_hydras_main(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same configuration, composed once."""
    loaded: list[object] = []
    load = ConfigLoaderImpl.load_configuration

    def counted(*args: Any, **kwargs: Any) -> Any:
        loaded.append(args)
        return load(*args, **kwargs)

    monkeypatch.setattr(ConfigLoaderImpl, "load_configuration", counted)
    composing._offer(Registry.discover())
    monkeypatch.setattr(sys, "argv", ["geomx", *words, f"hydra.run.dir={tmp_path / 'run'}"])
    told: list[Any] = []

    def job(config: Any) -> None:
        told.append([OmegaConf.to_container(each) for each in (config, HydraConfig.get())])

    with composing._set_aside():
        hydra.main(f"pkg://{composition.CONF}", "config", version_base="1.3")(job)()
        files = {path.name: path.read_text() for path in (tmp_path / "run/.hydra").iterdir()}
        loaded.clear()
        composition.run_once(sys.argv[1:], job)
    assert len(loaded) == 1
    assert told[0] == told[1]
    assert files == {path.name: path.read_text() for path in (tmp_path / "run/.hydra").iterdir()}
    assert len(files) == 3


def test_an_experiment_may_be_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file asks Hydra for one, so that no flag is needed."""
    folder = tmp_path / "files/experiment"
    folder.mkdir(parents=True)
    text = "# @package _global_\nhydra: {mode: MULTIRUN, sweeper: {params: {seed: '1,2'}}}\n"
    (folder / "seeds.yaml").write_text(text)
    path = f"hydra.searchpath=[file://{tmp_path / 'files'}]"
    words = ["experiment=seeds", path, "workload=tiny", f"hydra.sweep.dir={tmp_path / 'sweep'}"]
    seeds: list[int] = []
    composing.main(words, lambda experiment, directory: seeds.append(experiment.seed))
    assert seeds == [1, 2]


@pytest.mark.parametrize(
    "word", ["hydra.mode=MULTIRUN", "hydra/sweeper=basic", "+experiment=x", "++hydra.job.name=x"]
)
def test_hydras_settings_may_ask_for_a_sweep(word: str) -> None:
    assert composition.is_one_run(["sync=hfa", "hydra.run.dir=x"])
    assert not composition.is_one_run(["sync=hfa", word])
