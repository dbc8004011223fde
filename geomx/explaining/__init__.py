"""``geomx explain``: finds what determines the time of a run, and simulates possible changes.

The run's timeline is read (`geomx.explaining.evidence`), its critical path is computed
(`geomx.explaining.path`) and described (`geomx.explaining.parts`), changes are simulated
(`geomx.explaining.what_if`), and `geomx.explaining.report` shows the result.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geomx.errors import ConfigError, GeomxError
from geomx.explaining.evidence import Evidence
from geomx.explaining.parts import Part, parts_of, sentence, to_json
from geomx.explaining.path import critical_path
from geomx.explaining.report import SCHEMA, Explanation
from geomx.explaining.stand_in import stand_in
from geomx.explaining.what_if import changes, outcomes
from geomx.pages import page
from geomx.plugin.registry import Registry
from geomx.results.files import write_json, write_text
from geomx.results.folders import runs_in
from geomx.version import __version__


def explain(run: Path | str) -> Explanation:
    """Explain a run, and write ``explain.json`` and a section of ``report.html`` beside its files.

    Args:
        run: Directory of the run; for ``mode=both`` the one that contains both runs.

    Returns:
        The explanation.

    Raises:
        ConfigError: There is no run, or none that can be explained.
    """
    directory = Path(run)
    found = []
    for place in runs_in(directory):
        evidence = Evidence(place)
        rows = evidence.stretch()
        if not rows:
            remedy = "has no iteration whose timeline is whole; raise sim.max_spans"
            raise ConfigError("run", place, remedy)
        parts = parts_of(evidence, critical_path(evidence, rows))
        found.append((evidence, parts, _told(evidence, parts, rows)))
    evidence, parts, _ = found[0]
    content = {
        "schema": SCHEMA,
        "geomx": __version__,
        "words": evidence.results.summary.get("words", []),
        "runs": [told for _, _, told in found],
        "what_if": _what_if(evidence, parts, directory),
    }
    made = Explanation(directory, content)
    write_json(directory / "explain.json", content)
    for one, _, told in found:
        html = page.render(one.results, one.timeline, one.graph, made.section(told["mode"]))
        write_text(one.results.directory / "report.html", html)
    return made


def _told(evidence: Evidence, parts: list[Part], rows: list[dict[str, Any]]) -> dict[str, Any]:
    whole = rows[-1]["end_s"] - rows[0]["start_s"]
    return {
        "mode": evidence.results.summary["mode"],
        "worker": rows[0]["worker"],
        "iterations": [rows[0]["iteration"], rows[-1]["iteration"]],
        "seconds_per_iteration": whole / len(rows),
        "dropped_spans": evidence.timeline.dropped,
        "said": sentence(evidence, parts),
        "parts": [to_json(evidence, part, whole, len(rows)) for part in parts],
    }


def _what_if(evidence: Evidence, parts: list[Part], directory: Path) -> dict[str, Any]:
    registry = Registry.discover()
    folder = directory.resolve() / "explain"
    tried = list(changes(evidence, parts, folder, registry))
    try:
        script = stand_in(evidence, folder)
        base, done = outcomes(evidence.results, tried, registry, script)
    except GeomxError as error:
        return {"reason": str(error), "seconds_per_iteration": None, "changes": []}
    now = base.seconds_per_iteration or 1.0
    return {
        "reason": "",
        "script": bool(script),
        "seconds_per_iteration": now,
        "changes": [
            {
                "name": one.change.name,
                "words": list(one.change.overrides),
                "seconds_per_iteration": one.seconds_per_iteration,
                "gain": None
                if one.seconds_per_iteration is None
                else 1.0 - one.seconds_per_iteration / now,
                "exact": one.change.exact,
                "reason": one.reason,
                "command": one.command,
            }
            for one in done
        ],
    }


__all__ = ["Explanation", "explain"]
