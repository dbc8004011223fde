"""docs/hooks.md agrees with the code: it has every hook with its signature and a working example,
and every public name."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pydoc
import re
import sys
import types
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import geomx
from geomx.cli.main import main
from geomx.plugin import hookspecs
from geomx.plugin.api import PLUGINS, PUBLIC, SCRIPTS, api_version
from geomx.plugin.calling import hooks
from geomx.plugin.registry import Registry
from geomx.runner import execute
from geomx.testing.worlds import NETWORK, build
from tests.laws import Plain

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "hooks.md").read_text(encoding="utf-8")
HEADING = re.compile(r"^### `([^\n]*)`\n(.*?)(?=^###? )", re.MULTILINE | re.DOTALL)
SECTIONS = {found[0].split("(")[0]: found for found in HEADING.findall(PAGE)}
OPTIONAL = {"geomx.torch": "torch", "geomx.mxnet": "mxnet"}
NOUNS = (
    geomx.Codec, geomx.Slicer, geomx.Partitioner, geomx.Placement, geomx.SyncPolicy,
    geomx.WorkerSync, geomx.PartySync, geomx.PartyModel, geomx.RoundPolicy, geomx.Coordinator,
    geomx.Optimizer, geomx.Tracker, geomx.WanModel,
)  # fmt: skip


def signature(function: Any) -> str:
    """Return a function's signature as in its source, without self and quotes."""
    whole = inspect.signature(function)
    arguments = ", ".join(str(p) for name, p in whole.parameters.items() if name != "self")
    return f"{function.__name__}({arguments}) -> {whole.return_annotation}".replace("'", "")


def test_every_hook_has_its_section_in_order() -> None:
    assert list(SECTIONS) == list(hooks())
    for name in hooks():
        assert SECTIONS[name][0] == signature(getattr(hookspecs, name))


@pytest.mark.parametrize("hook", SECTIONS)
def test_the_example_runs(hook: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example is a plugin in a small experiment that calls its hook."""
    (code,) = re.findall(r"```python\n(.*?)```", SECTIONS[hook][1], re.DOTALL)
    name = f"page_example_{hook}"
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    vars(module).update(
        geomx=geomx, np=np, dataclasses=dataclasses, dataclass=dataclasses.dataclass
    )
    exec(compile(f"from __future__ import annotations\n{code}", hook, "exec"), vars(module))
    asked = []
    if hook != "geomx_register":
        answered = getattr(module.Example, hook)

        def watched(self: Any, **arguments: Any) -> Any:
            asked.append(hook)
            return answered(self, **arguments)

        names = ", ".join(hooks()[hook])
        given = ", ".join(f"{argument}={argument}" for argument in hooks()[hook])
        space: dict[str, Any] = {"watched": watched}
        exec(
            f"def {hook}(self{', ' + names if names else ''}): return watched(self, {given})", space
        )
        setattr(module.Example, hook, geomx.hookimpl(space[hook]))

        @geomx.hookimpl
        def geomx_register(register: Any) -> None:
            register("accel", "example", Plain, lambda config: module.Example())

        module.geomx_register = geomx_register  # type: ignore[attr-defined]
    registry = Registry.discover()
    registry.ask(module)
    experiment = build(registry, accel=[("example", {})], network=NETWORK)
    results = execute(experiment, tmp_path / "run")
    assert all(np.isfinite(value).all() for value in results.parameters().values())
    assert asked or hook == "geomx_register"


def test_every_method_of_every_object_is_documented() -> None:
    for noun in NOUNS:
        for name, function in vars(noun).items():
            if inspect.isfunction(function) and not name.startswith("_"):
                assert f"`{signature(function)}`".replace("|", "\\|") in PAGE, (noun, name)


def test_every_public_name_exists_and_is_documented() -> None:
    assert f"version {api_version}" in PAGE
    assert sorted(geomx.__all__) == sorted(PLUGINS["geomx"])
    for module, names in PUBLIC.items():
        for name in names:
            assert re.search(rf"`[\w.]*\b{name}\b", PAGE), name
            if find_spec(OPTIONAL.get(module, "geomx")):
                assert getattr(importlib.import_module(module), name) is not None


@pytest.mark.slow
def test_geomx_api_explains_every_public_name_briefly(capsys: pytest.CaptureFixture[str]) -> None:
    names = [*hooks(), *(n for module in PLUGINS.values() for n in module if not n.startswith("_"))]
    names.remove("api_version")  # the version, with which the list begins
    names.remove("hookimpl")
    assert main(["api"]) == 0
    listed = capsys.readouterr().out
    assert len(listed.splitlines()) == 1 + len(names) + len(SCRIPTS)  # a line each
    lines = 0
    for name in names:
        assert re.search(rf"^{name} +\S+ \S+", listed, re.MULTILINE), name
        assert main(["api", name]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith(name)
        assert " __" not in shown
        assert len(shown.splitlines()) > 1
        lines += len(shown.splitlines())
        noun = getattr(geomx, name, None)
        if noun in NOUNS:
            for method, function in vars(noun).items():
                if inspect.isfunction(function) and not method.startswith("_"):
                    assert f"    {method}(self" in shown
                    assert f"        {(function.__doc__ or '?').split()[0]}" in shown
    assert lines < len(pydoc.render_doc(geomx.plugin).splitlines())
    for module in SCRIPTS:
        assert re.search(rf"^{module} +for scripts: {', '.join(PUBLIC[module])}$", listed, re.M)
    assert main(["api", "geomx.kv.create"]) == 0
    assert capsys.readouterr().out.startswith("geomx.kv.create(")
    assert main(["api", "geomx.kv.KVStore"]) == 0
    told = capsys.readouterr().out
    assert "    global_rank\n        " in told and "    push(self, " in told
    assert main(["api", "geomx.kv"]) == 0
    assert re.search(r"^geomx\.kv\.create +Return the", capsys.readouterr().out, re.MULTILINE)
    assert main(["api", "KVStore"]) == 2
    assert "geomx api geomx.kv.KVStore or geomx.mxnet.KVStore" in capsys.readouterr().err
    assert main(["api", "geomx.kv.creat"]) == 2
    assert "did you mean create?" in capsys.readouterr().err
    assert main(["api", "Codecs"]) == 2
    assert "did you mean Codec?" in capsys.readouterr().err


@pytest.mark.parametrize("hook", SECTIONS)
def test_every_hook_has_a_user_and_a_test(hook: str) -> None:
    """A hook without a plugin in this repository would be untested in use."""
    users = [*(ROOT / "plugins").rglob("*.py"), *(ROOT / "examples" / "plugins").rglob("*.py")]
    implements = re.compile(rf"@(geomx\.)?hookimpl\n *def {hook}\(")
    assert any(implements.search(path.read_text(encoding="utf-8")) for path in users)
    tests = [p for p in (ROOT / "tests").glob("*.py") if p.name != Path(__file__).name]
    users += tests
    assert any(hook in path.read_text(encoding="utf-8") for path in users)
