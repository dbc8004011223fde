"""Files of the user's own, in ``--config-dir``: where they are found, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from geomx.cli import main as cli
from geomx.config import compose as composing
from geomx.config.compose import main
from geomx.errors import ConfigError
from geomx.testing.worlds import NETWORK
from tests.test_network import LAUGHS

pytestmark = pytest.mark.interpreter  # Hydra and argument parsing


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (LAUGHS, r"mine\.yaml its aliases stand for"),
        ("seed: &a [*a]", r"mine\.yaml contains itself by an alias at line 1"),
        ("seed: [", r"mine\.yaml is not YAML: "),
        ("\udcff", r"mine\.yaml cannot be read: "),
    ],
)
def test_unusable_files_of_a_folder_are_named(content: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    file = tmp_path / "experiment" / "mine.yaml"
    file.write_text(content, errors="surrogateescape")
    with pytest.raises(ConfigError, match=f"experiment=mine: .*{sentence}"):
        main(["--config-dir", str(tmp_path), "experiment=mine"], lambda made, directory: None)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("iterations: 4", "mine: in its file, the first line must be '# @package _global_'"),
        ("\ufeff# @package _global_\nseed: 4", "mine: in its file, the first line must be"),
        ("# @package _global_\ndefaults: hfa", r"mine: in .*mine.yaml, defaults must be a list"),
        ("defaults: [3]", r"mine: in .*mine.yaml, 3 in its list of defaults must be one of"),
        ("defaults: [{a: b, c: d}]", r"mine: in .*mine.yaml, .* in its list of defaults must be"),
        ("defaults: [{override /sync: {hfa: 3}}]", r"mine: .*: 3}} in its list of defaults must"),
        ("defaults: [{override /sync: [hfa]}]", r"mine: .* in its list of defaults must choose on"),
        ("defaults: [{override /sync: null}]", r"mine: .* in its list of defaults must choose one"),
        ("defaults: [{override /accel: [dgt, dgt]}]", r"mine: .* of defaults lists dgt twice"),
        (
            "defaults: [{override sync: hfa}]",
            "mine: its list of defaults overrides .* begins with a slash",
        ),
        ("defaults: [mine]", "mine: its file is chosen again by its own list of defaults"),
        ("defaults: [nope]", "nope: no such experiment; .*allowed: .*quickstart"),
    ],
)
def test_wrong_lists_of_defaults_are_named(content: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(content, encoding="utf-8")
    for words in (["--config-dir", str(tmp_path)], [f"hydra.searchpath=[file://{tmp_path}]"]):
        with pytest.raises(ConfigError, match=f"^experiment={sentence}"):
            main([*words, "experiment=mine"], lambda made, directory: None)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("sync: hfa", r"it sets a plugin as an option; .*'- override /sync: NAME'"),
        ("accel: [p3]", "it sets a plugin as an option; "),
        ("iterations: ten", "iterations must be a whole number"),
        ("iteration: 4", r"iteration: unknown key; did you mean iterations\?"),
        ("sync: {k1: 3}", "sync.k1: is an option of sync=hfa, which is not chosen"),
    ],
)
def test_values_of_a_file_that_do_not_fit_are_named(
    content: str, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "experiment").mkdir()
    file = tmp_path / "experiment" / "mine.yaml"
    file.write_text(f"# @package _global_\n{content}\n")
    words = ["--config-dir", str(tmp_path), "experiment=mine", "workload=tiny"]
    with pytest.raises(ConfigError, match=f"^experiment=mine: in its file, {sentence}"):
        main(words, lambda made, directory: None)


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("experiment=mine", "# @package _global_\nruntime: {pace: VALUE}\n"),
        ("+runtime=mine", "pace: VALUE\n"),
        ("+own=mine", "# @package runtime\npace: VALUE\n"),
        ("+own/deep@runtime=mine", "pace: VALUE\n"),
    ],
)
def test_a_number_for_a_truth_value_in_a_users_file_is_refused(
    word: str, text: str, tmp_path: Path
) -> None:
    group = word.strip("+").partition("=")[0].partition("@")[0]
    (tmp_path / group).mkdir(parents=True)
    file = tmp_path / group / "mine.yaml"
    words = [f"hydra.searchpath=[file://{tmp_path}]", word]
    for value, allowed in (("2", False), ("-3", False), ("1", True), ("false", True)):
        file.write_text(text.replace("VALUE", value))
        if allowed:
            assert composing.compose(words)[0].runtime.pace is (value == "1")
            continue
        with pytest.raises(ConfigError, match=rf"^runtime.pace={value}: must be true .*{file}"):
            composing.compose(words)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"seed: 1\nseed: 2\n", "seed comes twice at line 1"),
        (b"seed: [\n", "is not YAML: .*expected.* at line 2"),
        (b"name: Z\xfcrich\n", "cannot be read: it is not a text file"),
        (b"seed: &a [*a]\n", "contains itself by an alias at line 1"),
    ],
)
def test_an_unusable_file_that_another_one_chooses_is_named(
    content: bytes, why: str, tmp_path: Path
) -> None:
    for name in ("experiment", "network", "own/deep"):
        (tmp_path / name).mkdir(parents=True)
    chosen = {
        "experiment": "low",
        "network": "override /network: low",
        "own/deep": "/own/deep: low",
    }
    for group, default in chosen.items():
        file = tmp_path / group / "low.yaml"
        file.write_bytes(content)
        text = f"# @package _global_\ndefaults:\n  - {default}\n"
        (tmp_path / "experiment/mine.yaml").write_text(text)
        for words in (
            [f"hydra.searchpath=[file://{tmp_path}]", "experiment=mine"],
            ["--config-dir", str(tmp_path), "experiment=mine"],
        ):
            with pytest.raises(ConfigError, match=rf"^{group}=low: {file} .*{why}"):
                composing.main(words, lambda experiment, directory: None)


def test_folders_of_an_unknown_kind_are_refused() -> None:
    sentence = "^hydra.searchpath=foo://x: must be file:///FOLDER or pkg://PACKAGE$"
    for words in (["hydra.searchpath=[foo://x]"], ["+hydra.searchpath=[pkg://geomx.conf,foo://x]"]):
        with pytest.raises(ConfigError, match=sentence):
            main(words, lambda made, directory: None)
        with pytest.raises(ConfigError, match=sentence):
            composing.compose(words)


def test_a_network_of_the_users_is_called_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "network").mkdir()
    network = {key: value for key, value in NETWORK.items() if key != "name"}
    for name, given in (("mine", {}), ("named", {"name": "theirs"})):
        file = tmp_path / f"network/{name}.yaml"
        file.write_text(OmegaConf.to_yaml(network | given))
        words = [f"hydra.searchpath=[file://{tmp_path}]", f"network={name}"]
        experiment, _ = composing.compose(words, directory=tmp_path / name)
        assert experiment.cluster.name == given.get("name", name)


@pytest.mark.needs("dgt", "hfa")
def test_files_of_the_users_name_a_plugin(tmp_path: Path) -> None:
    """That is installed: one of the same name, or one per table."""
    for name, text in (
        ("accel/flat", "k: 0.3"),
        ("accel/other", "# @package accel.other\nk: 0.3"),
        ("accel/good", "dgt: {k: 0.3}"),
        ("sync/mine", "k1: 3"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.yaml").write_text(text)
    place = f"hydra.searchpath=[file://{tmp_path}]"
    below = "options stand below the name of their plugin"
    for word, sentence in (
        ("accel=flat", f"accel=flat: .*flat.yaml sets accel.k, .*{below}"),
        ("accel=[dgt,flat]", f"accel=flat: .*flat.yaml sets accel.k, .*{below}"),
        ("accel=other", f"accel=other: .*other.yaml sets accel.other, .*{below}"),
        ("sync=mine", r"sync=mine: .*mine.yaml .*FOLDER/experiment/NAME.yaml .*'- override /sync"),
    ):
        with pytest.raises(ConfigError, match=f"^{sentence}"):
            composing.compose([place, word])
    experiment, _ = composing.compose([place, "accel=good"], directory=tmp_path / "run")
    assert dict(experiment.selection.accel)["dgt"]["k"] == 0.3


@pytest.mark.parametrize("command", ["run", "plan", "launch", "simulate", "calibrate", "plan --"])
def test_every_command_with_overrides_finds_files_of_the_users(
    command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Their values are refused here, so that nothing is run."""
    name, *scripted = command.split()
    behind = ["--", "true"] if scripted or name in ("launch", "simulate") else []
    for folder, text in (("my, $own", "defaults: [other]"), ("more", "seed: -7")):
        (tmp_path / folder / "experiment").mkdir(parents=True)
        file = tmp_path / folder / "experiment" / ("other" if folder == "more" else "mine")
        file.with_suffix(".yaml").write_text(f"# @package _global_\n{text}\n")
    words = ["--config-dir", str(tmp_path / "my, $own"), "experiment=mine"]
    words.append(f"hydra.searchpath=[file://{tmp_path}/more]")
    assert cli.main([name, *words, *behind]) == cli.WRONG
    assert capfd.readouterr().err.startswith("seed=-7: must be ")
    for flag in (["--config-dir=none"], ["-cd", "none"]):
        assert cli.main([name, "seed=1", *flag, *behind]) == cli.WRONG
        assert "there is no folder none" in capfd.readouterr().err
    assert cli.main([name, "seed=1", "--config-dir=", *behind]) == cli.WRONG
    assert "--config-dir must name a folder" in capfd.readouterr().err


def test_jobs_have_presets_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\nseed: 777\n")
    sites = "{hub: {scheduler: a, global_server: a}, b: {server: a, worker: a}}"
    job = f"hosts: {{a: {{address: 127.0.0.1}}}}\nparties: {sites}\ninsecure: true\n"
    (tmp_path / "job.yaml").write_text(job)
    words = ["manifest", str(tmp_path / "job.yaml"), "--image=x", "-cd", str(tmp_path)]
    assert cli.main([*words, "experiment=mine"]) == 0
    assert '"seed": 777' in capfd.readouterr().out
    assert cli.main([*words[:-1], "none"]) == cli.WRONG
    assert "there is no folder none" in capfd.readouterr().err
    assert cli.main(["collect", *words[1:2], str(tmp_path), "-cd", "none"]) == cli.WRONG
    assert "there is no folder none" in capfd.readouterr().err


@pytest.mark.slow
def test_swept_presets_of_live_runs_and_studies_run_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hydra's launcher is chosen before it reads their files."""
    words: list[str] = []
    monkeypatch.setattr(
        "geomx.config.compose.run_all", lambda flags, given, job: words.extend(given)
    )
    (tmp_path / "experiment").mkdir()
    texts = {"live": "mode: live", "many": "study: {each: [sync]}", "sim": "seed: 3", "bad": "x: 1"}
    for name, text in texts.items():
        file = tmp_path / f"experiment/{name}.yaml"
        file.write_text(f"# @package _global_\n{text}\n")
    for names, jobs in (("sim,live", "1"), ("many,sim", "1"), ("sim,bad", "${geomx_jobs:}")):
        words.clear()
        given = ["-m", "--config-dir", str(tmp_path), f"experiment={names}", "seed=1,2"]
        main(given, lambda made, directory: None)
        assert f"hydra.launcher.n_jobs={jobs}" in words


def test_files_of_other_programs_that_use_hydra_are_not_checked(tmp_path: Path) -> None:
    (tmp_path / "sync").mkdir()
    for name, text in (("main", "defaults: [{sync: [a, b]}]"), ("sync/a", "x: 1"), ("sync/b", "")):
        (tmp_path / f"{name}.yaml").write_text(text)
    with composing._set_aside(), initialize_config_dir(str(tmp_path), version_base="1.3"):
        assert compose("main").sync.x == 1


def test_a_choice_in_a_list_of_defaults_overrides(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment/mine.yaml").write_text("# @package _global_\ndefaults: [/sync: hfa]\n")
    with pytest.raises(ConfigError, match=r"^sync=: .*'- override /sync: NAME'"):
        composing.compose([f"hydra.searchpath=[file://{tmp_path}]", "experiment=mine"])
