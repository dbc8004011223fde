"""Words of a command line: those behind ``--`` are not geomx's, and none is ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from geomx.cli import launch, plan, simulate
from geomx.cli import main as cli
from geomx.live import access
from geomx.live.spec import Spec
from geomx.plugin.registry import Registry
from geomx.testing.worlds import build


@pytest.mark.parametrize("command", [launch, plan, simulate])
@pytest.mark.parametrize("own", [[], ["network=two_parties"]])
def test_a_script_gets_its_own_help(
    command: object, own: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words: list[str] = []
    monkeypatch.setattr(command, "main", words.extend)
    name = command.__name__.rpartition(".")[2]  # type: ignore[attr-defined]
    assert cli.main([name, *own, "--", "python", "train.py", "--help"]) == cli.DONE
    assert words == [*own, "--", "python", "train.py", "--help"]


@pytest.mark.parametrize(
    "words",
    [
        ["--role", "scheduler", "--experiment", "experiment.json", "iterations=5"],
        ["--role", "worker", "--scheduler", "localhost:1", "iterations=5"],
        ["--join", "localhost:1", "--party", "east", "iterations=5"],
    ],
)
def test_overrides_of_a_node_that_would_have_no_effect_are_refused(
    words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["node", *words]) == cli.WRONG
    err = capfd.readouterr().err
    assert err.startswith("overrides=iterations=5: only a scheduler with --job takes overrides")
    assert err.count("\n") == 1


def test_a_command_beside_an_experiment_of_a_workload_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(access.TOKEN, "a secret")
    file = tmp_path / "experiment.json"
    file.write_text(Spec.of(build(Registry.discover())).to_json())
    words = ["--role", "scheduler", "--party", "hub", "--experiment", str(file)]
    words += ["--directory", str(tmp_path / "run"), "--", "python", "train.py"]
    assert cli.main(["node", *words]) == cli.WRONG
    assert capfd.readouterr().err.startswith(f"--experiment={file}: trains a workload")
