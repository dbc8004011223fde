"""The command: draws, measures what is missing, evaluates, and writes the tables."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from geomx.errors import GeomxError
from geomx.experiment.costs import this_machine
from geomx.results.results import Results
from geomx.terminal.progress import progress
from geomx.version import __version__
from sim_vs_live.draw import Combination, draw, write_network
from sim_vs_live.judge import judge, row_of, tables
from sim_vs_live.measure import measure, phases, traffic
from sim_vs_live.pace import keepable, slower
from sim_vs_live.page import in_full, overview, title, worst
from sim_vs_live.scenarios import events, write_scenario

RESULTS = Path(__file__).resolve().parents[1] / "results"
PUBLISHED = "fidelity"
SHOWN = ("place", "words", "sim_s", "live_s", "error")
"""Fields published for the worst combinations; for the others only the error."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study of the command line."""
    options = _parser().parse_args(arguments)
    console = Console(width=None if Console().is_terminal else 140)
    emulate = _value(options.overrides, "emulate") or "shaper"
    kind = f"{emulate}_scenarios" if options.scenarios else emulate
    place = options.directory / f"seed{options.seed}_{kind}"
    drawing = console.status("drawing combinations")
    with drawing:
        drawn = draw(options.seed, options.combinations, options.seconds, options.overrides)
    asked = drawn
    if _value(options.overrides, "numerics") != "false":
        with console.status("measuring what pace this machine can keep"):
            drawn = keepable(drawn, options.directory)
    rows, failures = [], []
    with progress(len(drawn), "combinations") as advance:
        for one in drawn:
            try:
                rows.append(_measured(one, place, options, emulate))
            except GeomxError as error:
                failures.append({"words": list(one.own), "place": one.place.number,
                                 "reason": str(error)})  # fmt: skip
                console.print(f"[red]combination {one.number}[/]: {error}", highlight=False)
            advance(1)
    if not rows:
        raise SystemExit("no combination could be measured")
    figures = judge(rows)
    study = {
        "seed": options.seed,
        "emulate": emulate,
        "scenarios": options.scenarios,
        "words": options.overrides,
        "repeats": options.repeats,
        "geomx": __version__,
        "machine": f"{platform.machine()}, {this_machine()[1]} cores, {platform.system()} "
        f"{platform.release()}",
        "slowed": {
            one.place.number: [wish.place.forward_ms, one.place.forward_ms]
            for wish, one in zip(asked, drawn, strict=True)
            if wish.place != one.place
        },
        "figures": figures,
        "failures": failures,
        "rows": rows,
    }
    (place / "fidelity.json").write_text(json.dumps(study, indent=1) + "\n", encoding="utf-8")
    heading = f"{title(study)} ({study['machine']})"
    text = in_full(rows, figures, heading)
    (place / "fidelity.md").write_text(text, encoding="utf-8")
    for table in tables(rows, figures, emulate):
        console.print(table)
    if failures:
        console.print(f"{len(failures)} combinations failed")
    if study["slowed"]:
        console.print(slower(study["slowed"]), highlight=False)
    if options.publish:
        _publish(study)
    console.print(f"{place}/fidelity.json", highlight=False)


def _measured(
    one: Combination, place: Path, options: argparse.Namespace, emulate: str
) -> dict[str, Any]:
    directory = place / f"{one.number:03d}"
    network = place / f"place{one.place.number:02d}.yaml"
    renew(network, partial(write_network, one.place))
    files = [network]
    words = [*one.overrides(network), *options.overrides]
    if options.scenarios:
        drawn = events(options.seed, one.place, options.seconds, emulate)
        scenario = place / f"scenario{one.place.number:02d}.yaml"
        renew(scenario, partial(write_scenario, drawn))
        files.append(scenario)
        words.append(f"scenario={scenario}")
    sim, live = measure(words, directory, options.repeats, files)
    return row_of(one.own, one.place.number, _taken(sim), [_taken(run) for run in live])


def renew(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file unless it has that content already: its age is the age of its content.

    What is drawn depends on more than the seed and the emulation, which name the folder.

    Args:
        path: The file.
        write: Writes it to a path.
    """
    new = path.with_name(f"new_{path.name}")
    write(new)
    if path.exists() and path.read_bytes() == new.read_bytes():
        new.unlink()
    else:
        new.replace(path)


def _taken(results: Results) -> dict[str, Any]:
    """Return the values of one run that are evaluated."""
    return {
        "seconds": results.summary["seconds_per_iteration"]["mean"],
        "loss": results.summary["loss"]["final"],
        "behind": results.summary["behind_pace_s"],
        "phases": phases(results),
        "traffic": traffic(results),
    }


def _publish(study: dict[str, Any]) -> None:
    """Add the study to the committed results, replacing an earlier one of the same kind."""
    path = RESULTS / f"{PUBLISHED}.json"
    studies = json.loads(path.read_text("utf-8")) if path.exists() else []
    studies = [old for old in studies if title(old) != title(study)]
    studies.append(published(study))
    studies.sort(key=lambda one: (one["emulate"], one.get("scenarios", False), one["seed"]))
    lines = ",\n".join(map(json.dumps, studies))
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    (RESULTS / f"{PUBLISHED}.md").write_text(overview(studies), encoding="utf-8")


def published(study: Mapping[str, Any]) -> dict[str, Any]:
    """Return the published part of a study: statistics, all errors, and the worst combinations."""
    rows = study["rows"]
    return {
        **study,
        "rows": [{"error": row["error"]} for row in rows],
        "worst": [{key: row[key] for key in SHOWN} for row in worst(rows)],
    }


def _value(words: Sequence[str], key: str) -> str:
    return next((word.partition("=")[2] for word in words if word.startswith(f"{key}=")), "")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Compare drawn simulations with live runs.")
    parser.add_argument("--combinations", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scenarios", action="store_true", help="draw events of every place too")
    parser.add_argument("--repeats", type=int, default=3, help="live runs of each combination")
    parser.add_argument("--seconds", type=float, default=4.0, help="about so long a run takes")
    parser.add_argument(
        "--directory", type=Path, default=Path("outputs/fidelity"), help="where runs are kept"
    )
    parser.add_argument(
        "--publish", action="store_true", help="keep the figures in benchmarks/results"
    )
    parser.add_argument("overrides", nargs="*", help="more words for every run, as for geomx")
    return parser
