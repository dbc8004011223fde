"""The page of a run is there while it happens, and is then the one that the run leaves."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from geomx.cli.main import main
from geomx.errors import ConfigError
from geomx.pages import page
from geomx.pages.running import Server, page_of
from geomx.results.recorder import Recorder
from tests.report_fixture import graph, header


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    """Return the recorder of a run that has begun, with two steps of one worker."""
    recorder = Recorder(tmp_path / "run", header(), render=page.render)
    recorder.network(graph())
    step(recorder, 0)
    step(recorder, 1)
    return recorder


def step(recorder: Recorder, number: int) -> None:
    loss = 1 / (1 + number)
    recorder.iteration("beijing/worker0", "beijing", number, number, 0.6, 0.4, number + 1, loss, 8)


@pytest.fixture
def served(recorder: Recorder) -> Iterator[str]:
    """Return the address at which the page of that run is served."""
    with Server(recorder.directory, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.address
        server.shutdown()
        thread.join()


def get(address: str) -> str:
    with urllib.request.urlopen(address) as answer:
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        return str(answer.read().decode())


def test_the_page_follows_a_run_and_ends_as_the_one_that_it_leaves(
    recorder: Recorder, served: str
) -> None:
    first = get(served)
    assert "Under way: 2 of" in first and 'http-equiv="refresh"' in first
    assert "Loss over time" in first and "over the WAN" not in first  # not known yet
    assert "did not finish" not in first
    step(recorder, 2)
    assert "Under way: 3 of" in get(served + "report.html")
    recorder.finish(3.0, 3, 0.1)
    last = get(served)
    assert last == (recorder.directory / "report.html").read_text()
    assert "Under way" not in last and "refresh" not in last and "over the WAN" in last
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(served + "summary.json")


def test_a_killed_run_leaves_a_page_when_asked(
    recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = recorder.directory
    assert main(["report", str(directory)]) == 0
    assert capsys.readouterr().out.split() == [str(directory / "report.html")]
    assert "Under way: 2 of" in (directory / "report.html").read_text()
    recorder.abort("the disk is full")
    (directory / "report.html").unlink()
    assert "This run did not finish: </b>the disk is full" in page_of(directory)


def test_what_is_no_run_and_a_port_that_is_taken_are_refused(
    recorder: Recorder, served: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert "is no directory of a run: it has no summary.json" in capsys.readouterr().err
    port = int(served.rstrip("/").rpartition(":")[2])
    with pytest.raises(ConfigError, match=f"--serve={port}: cannot be opened .* another port"):
        Server(recorder.directory, port)
    (recorder.directory / "links.csv").unlink()
    with pytest.raises(urllib.error.HTTPError, match="503"):
        get(served)


def test_a_scripts_page_tells_no_end(tmp_path: Path) -> None:
    """How many steps it makes is known at its end."""
    recorder = Recorder(tmp_path, header(iterations=0, script={"command": "python train.py"}))
    step(recorder, 0)
    step(recorder, 1)
    assert "Under way: 2 iterations have been reached, " in page_of(tmp_path)
