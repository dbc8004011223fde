"""The Python examples of docs/write_a_plugin.md, for tests that run them as plugins."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).resolve().parents[1] / "docs" / "write_a_plugin.md"


def documented(name: str) -> Any:
    """Return class `name`, from the one block of the page that defines it, anew at every call."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    (source,) = [block for block in blocks if f"\nclass {name}" in block]
    space: dict[str, Any] = {}
    exec(source, space)
    return space[name]
