"""What is refused in job files, in one sentence that names the file or the key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from geomx.cli.main import main
from geomx.errors import ConfigError, GeomxError
from geomx.live.access import FILES, check, read_files
from geomx.machines import agent, jobfile
from geomx.machines.frames import Opening


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\xff\xfe", "cannot be read: it is not a text file"),
        (b"- 1", "must be a table with hosts and parties"),
        (b"hosts: [", "is not YAML: did not find expected node content at line 2"),
        (b"hosts: {a: {address: x}, a: {address: y}}", "a comes twice at line 1 and after"),
        (b"hosts: &a {b: *a}", "contains itself by an alias at line 1"),
    ],
)
def test_an_unusable_file_is_named(content: bytes | None, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        jobfile.read(file)
    assert str(caught.value).startswith(f"job={file}: {sentence}")


JOB: dict[str, Any] = {
    "hosts": {"a": {"address": "127.0.0.1"}},
    "parties": {
        "hub": {"scheduler": "a", "global_server": "a"},
        "east": {"server": "a", "worker": "a"},
    },
}


RAY = {"hosts": "ray"}


def at(address: str) -> dict[str, dict[str, str]]:
    """Return the machines of a job, of which there is one."""
    return {"a": {"address": address}}


@pytest.mark.parametrize("address", ["10.0.0.1", "::1", "fe80::1%eth0", "node-1.example", "auto"])
def test_addresses(address: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(JOB | {"hosts": at(address)}))
    assert jobfile.read(file).hosts["a"].address == address


@pytest.mark.parametrize(
    ("opening", "sentence"),
    [
        ({"host": "auto"}, "the address is auto, but GEOMX_HOST is not set here; set it to this"),
        ({"host": "a", "directory": "/none"}, "/none: there is no such folder here; make it, or"),
    ],
)
def test_a_node_that_cannot_be_started_says_why(
    opening: dict[str, str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GEOMX_HOST", raising=False)
    about: dict[str, Any] = {"name": "east/worker0", "id": 1, "token": "", "command": ["true"]}
    read = Opening(**{**about, **opening})
    with pytest.raises(GeomxError, match=re.escape(sentence)):
        agent._Attached(read, tmp_path, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"port": 70000}, "job.port=70000: must be between 0 and 65535"),
        ({"port": -1}, "job.port=-1: must be between 0 and 65535"),
        ({"network": 3}, "job.network=3: must be a name or a file, or the content of a file"),
        ({"env": ["A=B"]}, "job.env=['A=B']: must be a table, {NAME: VALUE}"),
        ({"env": {"A": 1}}, "job.env.A=1: must be text; put it in quotes"),
        ({"env": {"A": None}}, "job.env.A=null: must be text"),
        ({"env": {"A=B": "c"}}, "env.A=B=c: is no environment variable: NAME: VALUE"),
        ({"reach": "ssh {address.x} {command}"}, "job.reach=ssh {address.x} {command}: is not a "),
        (
            {"reach": "ssh --a={command} {command}"},
            "job.reach=ssh --a={command} {command}: needs {",
        ),
        ({"hosts": at("")}, "hosts.a.address=: must be a name or an address, without a port or"),
        ({"hosts": at("10.0.0.1:80")}, "hosts.a.address=10.0.0.1:80: must be a name or an address"),
        ({"hosts": at("[::1]")}, "hosts.a.address=[::1]: must be a name or an address, without a"),
        ({"hosts": at("a b")}, "hosts.a.address=a b: must be a name or an address, without a port"),
        ({"hosts": ["a"]}, "job.hosts=['a']: must be a table, such as {bj1: {address: 10.0.1.1}}"),
        ({"hosts": {"a": "10.0.0.1"}}, "job.hosts.a=10.0.0.1: must be a table, as in {bj1: {addr"),
        ({"parties": {3: {}}}, "job.parties=3: must be a name; write '3', with quotes"),
        ({"parties": {"": {}}}, "job.parties=: needs a name"),
        ({"parties": {"east": None}}, "job.parties.east=None: must be a table, as in {beijing: "),
        (
            {"python": "it's"},
            "job.python=it's: cannot be divided into words (No closing quotation)",
        ),
        ({"hosts": {"a": {"address": "x", "python": "a\\"}}}, "hosts.a.python=a\\: cannot be divi"),
        (RAY | {"parties": ["east"]}, "job.parties=['east']: must be a table, such as {beijing: "),
        (RAY | {"parties": {"east": "a"}}, "job.parties.east=a: must be a table, as in {beijing: "),
        (RAY | {"parties": None}, "job.parties=None: must be a table, such as {beijing: {server: "),
        (RAY | {"parties": {"east": {"worker": [["a"]]}}}, "parties.east.worker=[['a']]: must be "),
        (RAY | {"parties": {"east": {"worker": [3]}}}, "parties.east.worker=[3]: must be a machi"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(JOB | changes))
    with pytest.raises(ConfigError) as caught:
        jobfile.read(file)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("command", [[], ["--", "true"]])
def test_a_job_runs_live(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(JOB | {"words": ["mode=sim"]}))
    assert main(["launch", str(file), *command]) == 2
    assert capsys.readouterr().err.startswith(
        "mode=sim: must be live, as geomx launch starts nodes"
    )


def test_an_interpreter_may_have_blanks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/my env/python")
    file = tmp_path / "job.yaml"
    for python, words in ((None, ["/my env/python"]), ("'/a b/python' -O", ["/a b/python", "-O"])):
        file.write_text(yaml.safe_dump(JOB | {"python": python}))
        job = jobfile.read(file)
        assert job.python_of(job.hosts["a"]) == words


@pytest.mark.parametrize("days", ["0", "-1", "40000"])
def test_certificates_are_valid_for_a_day_or_more(
    days: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(JOB | {"tls": "certs"}))
    assert main(["certs", str(file), "--days", days]) == 2
    assert capfd.readouterr().err == f"--days={days}: must be between 1 and 36500\n"
    assert not (tmp_path / "certs").exists()


@pytest.mark.parametrize("lost", list(FILES.values()))
def test_certificates_are_made_again_where_a_file_is_missing(lost: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(JOB | {"tls": "certs"}))
    assert main(["certs", str(file)]) == 0
    folders = sorted((tmp_path / "certs/nodes").iterdir())
    before = [read_files(folder) for folder in folders]
    (folders[0] / lost).unlink()
    assert main(["certs", str(file)]) == 0
    now = [read_files(folder) for folder in folders]
    assert now[1:] == before[1:]
    assert now[0]["certificate"] != before[0]["certificate"]


@pytest.mark.parametrize("address", ["localhost", "LocalHost", "::1", "[::1]", "127.1.2.3"])
def test_this_machine_needs_no_certificates(address: str) -> None:
    check("hosts.a.address", address, None, insecure=False)
