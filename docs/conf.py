"""Configuration of the documentation site: ``sphinx-build -W -b html docs build/site``.

The pages are plain Markdown that also reads well in a file browser. Links that leave docs/ lead to
the page of the site that includes that file, and to a copy of the file where there is none.
"""

from __future__ import annotations

import re
from importlib.metadata import version as installed
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sphinx.domains.python import PyObject

project = "geomx"
author = "geomx contributors"
copyright = f"2026, {author}"
version = release = installed("geomx")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
templates_path = ["_templates"]
exclude_patterns = ["_build"]

# ---- pages ----

myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # README opens with a picture between its first two headings

# ---- API reference ----

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 140
autodoc_mock_imports = [] if find_spec("torch") else ["torch"]  # the one framework that is an extra
autosummary_generate = True
default_role = "py:obj"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
for field in PyObject.doc_field_types:
    if field.name == "variable":
        field.label = "Attributes"  # "Variables", unless told otherwise

# ---- look ----

html_theme = "furo"
html_title = f"geomx {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# ---- links out of docs/ ----

DOCS = Path(__file__).parent
INCLUDED = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
"""Files of the repository that are pages of the site."""
LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:|#)([^)#]+)(#[^)]*)?\)")


def on_the_site(text: str, folder: Path) -> str:
    """`text` of a file in `folder`, its links as they are on the site.

    A link whose words are the file's name shows the title of the page instead.
    """

    def moved(link: re.Match[str]) -> str:
        words, path, anchor = link.groups(default="")
        target = (folder / path).resolve()
        if not target.exists():  # brackets in code
            return link.group()
        inside = INCLUDED.get(str(target.relative_to(DOCS.parent)))
        if inside is None and target.is_relative_to(DOCS):
            inside = str(target.relative_to(DOCS))
        if inside is not None:
            title = "" if words.endswith(target.name) else words
            return f"[{title}](/{inside}{anchor})"
        if target.is_dir():
            return words
        return f"[{words}](<path:/../{target.relative_to(DOCS.parent)}>)"

    return LINK.sub(moved, text)


def setup(app: Any) -> None:
    """Pass every page and every included file through `on_the_site`, and list fields once."""

    def page(app: Any, name: str, source: list[str]) -> None:
        if Path(app.env.doc2path(name)).suffix == ".md":
            source[0] = on_the_site(source[0], (DOCS / name).parent)

    def included(app: Any, path: Path, name: str, source: list[str]) -> None:
        source[0] = on_the_site(source[0], (DOCS / path).resolve().parent)

    def listed_twice(app: Any, kind: str, name: str, member: Any, skip: bool, options: Any) -> Any:
        alias = (getattr(member, "__doc__", None) or "").startswith("Alias for field number")
        return True if alias else None  # a named tuple's fields are among its Attributes

    app.connect("autodoc-skip-member", listed_twice)
    app.connect("source-read", page)
    app.connect("include-read", included)
