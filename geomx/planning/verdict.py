"""The recommendation of a plan as text: what to run, how certain it is, whether to use the WAN.

Everything is read from the content of ``plan.json`` (`geomx.planning.report`).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from geomx.options.schema import TO_ACCURACY
from geomx.pages.commands import setting
from geomx.planning.alone import ALONE
from geomx.planning.candidates import BASELINE
from geomx.planning.judge import EAGER
from geomx.terminal import units

SURE = 0.9
"""Below this probability of being the fastest, the plan says how to settle it live."""

Row = Mapping[str, Any]


def verdict(content: Row, aim: str, directory: Path) -> list[str]:
    """Return the sentences, and commands between them.

    Args:
        content: Content of ``plan.json``.
        aim: The ranked quantity, for people.
        directory: Directory of the plan.
    """
    ranked = [row for row in content["candidates"] if row["status"] == "ranked"]
    alone = content["alone"]
    if not ranked:
        none = f"no candidate can be ranked by {aim}; see the reasons in report.html"
        if content["by"] == TO_ACCURACY:
            none += "; none held that accuracy, so give a lower plan.target or more iterations"
        return [none, *(_beside_alone(alone, None) if alone else [])]
    first = ranked[0]
    return [
        *(_beside_alone(alone, first) if alone else []),
        *_choice(content, ranked),
        f"seeds: {_seeds(first)}",
        *_ends(first),
        *_untrained(content, ranked),
        *_live(content, ranked, directory),
    ]


def _beside_alone(alone: Row, first: Row | None) -> Iterator[str]:
    """Compare with training at a single site."""
    said = f"{alone['name']}, as if all data had been copied there beforehand"
    if alone["seconds"] is None:
        yield f"{said}: {alone['reason']}"
        return
    took = alone["seconds"]["mean"]
    said += f", takes {units.duration(took)} for the same"
    if first is None:
        yield said
        yield alone["command"]
        return
    ratio = first["seconds"]["mean"] / took
    if ratio <= 1:
        yield f"{said}, {units.number(1 / ratio)} times as long: the WAN is worth it"
        return
    place = alone["name"].removesuffix(ALONE)
    yield (
        f"{said}: {units.number(ratio)} times as fast as the first choice. Train over this WAN "
        f"only if the data cannot be brought to {place}; otherwise run"
    )
    yield alone["command"]


def _choice(content: Row, ranked: Sequence[Row]) -> Iterator[str]:
    first, certainty, error = ranked[0], content["certainty"], content["simulator_error"]
    said = f"first choice: {first['name']}, {units.duration(first['seconds']['mean'])}"
    if certainty["margin"] is not None:
        second = ranked[1]["name"]
        said += f"; the second, {second}, takes {units.share(certainty['margin'])} more"
    yield said
    yield (
        f"certainty: {units.share(certainty['first'], 0)} that it is the fastest of the "
        f"{len(ranked)} ranked, {units.share(certainty['two'], 0)} that it is among the two "
        f"fastest, for a simulator error of {units.share(error['median'])} in the median and "
        f"{units.share(error['p95'])} at the 95th percentile ({error['source']})"
    )


def _seeds(row: Row) -> str:
    low, high, count = row["seconds"]["min"], row["seconds"]["max"], row["seconds"]["seeds"]
    if count == 1:
        return "one"
    if low == high:
        return f"{count}, all with the same time"
    return f"{count}, from {units.duration(low)} to {units.duration(high)}"


def _ends(row: Row) -> Iterator[str]:
    """Report the accuracy with which the row's command ends."""
    ends = row["ends"]
    if ends is None:
        return
    low, high = units.share(ends["min"]), units.share(ends["max"])
    over = f"{ends['seeds']} seeds" if ends["seeds"] > 1 else "one seed"
    said = low if low == high else f"{low} to {high}"
    yield (
        f"its command was simulated as printed: after {row['command_iterations']} iterations "
        f"it ends at {said} with {over}"
    )


def _untrained(content: Row, ranked: Sequence[Row]) -> Iterator[str]:
    if content["by"] == TO_ACCURACY and content["trained"] < content["simulated"]:
        yield (
            "candidates that could not be among the best even at "
            f"{units.share(EAGER, 0)} of {BASELINE.name}'s iterations were not trained"
        )
    if content["numerics"]:
        return
    yield "accuracy is unknown without real gradients; * may lose some"
    safe = next((row for row in ranked if row["lossless"]), ranked[0])
    if safe is not ranked[0]:
        took = units.duration(safe["seconds"]["mean"])
        yield f"first without loss of accuracy: {safe['name']}, {took}"
        yield safe["command"]


def _live(content: Row, ranked: Sequence[Row], directory: Path) -> Iterator[str]:
    for row in ranked:
        if row["live_reason"]:
            yield f"live, {row['name']} could not be run: {row['live_reason']}"
        elif row["live"] and row["live"]["seconds"] is None:
            yield (
                f"live, {row['name']} ended at {units.share(row['live']['accuracy'])} and did not "
                f"hold {units.share(content['target_accuracy'])}"
            )
    if content["live_first"] is not None:
        yield f"live, {content['live_first']} was the fastest of those that were run"
    elif content["certainty"]["first"] < SURE and len(ranked) > 1:
        own = ("hydra.run.dir=", "plan.live=")
        overrides = [
            override for override in content["words"] if not override.lstrip("+").startswith(own)
        ]
        again = ["geomx", "plan", *overrides, setting("hydra.run.dir", directory), "plan.live=3"]
        yield f"to settle it live: {shlex.join(again)}"
