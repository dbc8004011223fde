"""The measured tables of docs/plugins: each page's own command, with and without the plugin.

Every page has one command line. It is simulated here as printed and without the page's plugin, and
the table between the page's two markers is rewritten:

    python benchmarks/composition/figures.py            # every page
    python benchmarks/composition/figures.py hfa dgt    # these pages
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

from measuring import Figures, digits, measure
from rich.console import Console

PAGES = Path(__file__).resolve().parents[2] / "docs" / "plugins"
COMMAND = re.compile(r"^python -m geomx (.+)$", re.MULTILINE)
MEASURED = re.compile(r"(<!-- measured -->\n).*?(<!-- end -->)", re.DOTALL)
HEAD = (
    "| | ms per iteration | of the fastest worker | samples/s | MB over the WAN "
    "| at the busiest global server | accuracy |"
)


def main(names: list[str]) -> None:
    for page in [PAGES / f"{name}.md" for name in names] or sorted(PAGES.glob("*.md")):
        page.write_text(renewed(page.stem, page.read_text(encoding="utf-8")), encoding="utf-8")
        Console().print(page.name)


def renewed(name: str, text: str) -> str:
    """Return the page `text` of plugin `name` with new measurements."""
    words = shlex.split(COMMAND.findall(text)[0])
    rows = [line(f"with {name}", measure(words))]
    without = [word for word in words if not of_plugin(word, name)]
    if name != "fsa":  # the default cannot be left out
        rows.append(line("without", measure(without)))
    table = "\n".join([HEAD, "|---" * 7 + "|", *rows, ""])
    return MEASURED.sub(lambda match: match[1] + table + match[2], text)


def of_plugin(word: str, name: str) -> bool:
    """Return whether an override selects the plugin or sets one of its options."""
    key = word.split("=", 1)[0].lstrip("+")
    return key in ("sync", "accel") or key.startswith(("sync.", f"accel.{name}."))


def line(label: str, run: Figures) -> str:
    times = [run.iteration_ms, run.fastest_ms, run.samples_per_s]
    cells = [*times, run.wan_mb, run.busiest_mb]
    return f"| {label} | {' | '.join(map(digits, cells))} | {run.accuracy:.2f} |"


if __name__ == "__main__":
    main(sys.argv[1:])
