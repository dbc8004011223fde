"""Compilers that tests use if they are installed."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

OLDEST = 16  # that compiles our C++20
VERSIONED = [f"clang++-{version}" for version in range(22, OLDEST - 1, -1)]


def newest_clang() -> str | None:
    """Return the newest Clang of this machine that has its version in its name."""
    return next(filter(None, map(shutil.which, VERSIONED)), None)


@cache
def sanitizing_clang(folder: Path) -> str | None:
    """Return a Clang that compiles C++20 and links the sanitizers, which are packages of their own.

    `folder` is for what is compiled to find out.
    """
    program = f"#include <span>\nint main() {{ static_assert(__clang_major__ >= {OLDEST}); }}\n"
    source = folder / "program.cc"
    source.write_text(program)
    switches = ["-std=c++20", "-fsanitize=address,undefined", "-o", str(folder / "program")]
    for name in filter(shutil.which, [*VERSIONED, "clang++"]):
        done = subprocess.run([name, *switches, str(source)], check=False, capture_output=True)
        if done.returncode == 0:
            return name
    return None
