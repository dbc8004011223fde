"""Every plugin has a page, which agrees with the code: names of options and defaults."""

from __future__ import annotations

import dataclasses
import re
import typing
from pathlib import Path

import pytest
import yaml

from geomx.options.bounds import unit_of
from geomx.plugin.registration import Plugin
from geomx.plugin.registry import Registry

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = DOCS / "plugins"
PLUGINS = [
    plugin
    for plugin in Registry.discover().plugins()
    if plugin.kind in ("sync", "accel") and plugin.config.__module__.startswith("geomx.plugins.")
]
OPTION = re.compile(r"^\| `(\w+)` \| (.*?) \| *(.*?) *\|", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)\)")


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_a_page_has_the_options_their_defaults_and_units(plugin: Plugin) -> None:
    text = (PAGES / f"{plugin.name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {plugin.name}\n")
    written = [
        (name, yaml.safe_load(default), unit) for name, default, unit in OPTION.findall(text)
    ]
    hints = typing.get_type_hints(plugin.config, include_extras=True)
    fields = dataclasses.fields(plugin.config)
    assert written == [(field.name, field.default, unit_of(hints[field.name])) for field in fields]


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_a_page_has_all_its_parts(plugin: Plugin) -> None:
    text = (PAGES / f"{plugin.name}.md").read_text(encoding="utf-8")
    sentences = re.findall(r"\.(?=\s|$)", text.split("\n\n")[1])
    assert len(sentences) == 3
    assert "| option | default | unit | what |" in text
    assert re.search(r"^(Papers?: |No paper of its own)", text, re.MULTILINE)
    assert "\n```\n" in text
    (command,) = re.findall(r"^python -m geomx .*$", text, re.MULTILINE)
    assert re.search(rf"\+(sync={plugin.name}\b|accel=\[{plugin.name}\])", command)
    measured = text.partition("<!-- measured -->\n")[2].partition("<!-- end -->")[0]
    assert f"| with {plugin.name} |" in measured


def test_the_index_links_to_every_page() -> None:
    text = (DOCS / "README.md").read_text(encoding="utf-8")
    absent = [plugin.name for plugin in PLUGINS if f"(plugins/{plugin.name}.md)" not in text]
    assert absent == []


def test_README_and_the_site_name_every_plugin() -> None:  # noqa: N802
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    tree = (DOCS / "index.md").read_text(encoding="utf-8")
    for plugin in PLUGINS:
        choice = f"sync={plugin.name}" if plugin.kind == "sync" else f"accel=[{plugin.name}]"
        assert f"| `{choice}` |" in readme
        assert f"\nplugins/{plugin.name}\n" in tree


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_links_have_targets(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []
