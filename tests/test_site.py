"""The documentation site builds without a warning, and its API reference has every public name."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from geomx.plugin.api import PUBLIC

ROOT = Path(__file__).resolve().parents[1]
MISSING = [
    name for name in ("sphinx", "myst_parser", "furo", "sphinx_copybutton") if not find_spec(name)
]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as documented; a warning is a failure."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    done = subprocess.run(
        [*command, "-d", str(folder / "doctrees"), "docs", str(folder / "html")],
        check=False, cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "html"


def test_the_home_page_is_the_readme_with_links_within_the_site(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    assert "<h1>geomx" in home
    assert 'href="networks.html"' in home
    assert 'href="changelog.html"' in home


def test_every_public_name_has_its_entry(site: Path) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (site / "api").rglob("*.html"))
    names = [f"{module}.{name}" for module, found in PUBLIC.items() for name in found]
    assert [name for name in names if f'id="{name}"' not in pages] == []
