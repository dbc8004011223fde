"""Files in JSON that other tools have written, possibly gzipped."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from geomx.errors import ConfigError


def read_json(key: str, path: Path) -> Any:
    """Read a file.

    Args:
        key: What the user gave the file as, for errors.
        path: The file.

    Raises:
        ConfigError: It cannot be read, or is not JSON.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(key, path, f"cannot be read: {error.strerror}") from error
    try:
        return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise ConfigError(key, path, f"is not JSON: {error}") from error
