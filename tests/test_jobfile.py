"""What is refused in job files, in one sentence that names the file or the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from geomx.errors import ConfigError
from geomx.machines import jobfile


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
