"""Generate docs/composition.md: which plugins work together, measured, and which do in GeoMX.

Every sync plugin with every accelerator, every two accelerators under full synchrony, and all
accelerators at once are simulated on the default network and the digits CNN:

    python benchmarks/composition/matrix.py            # ten minutes, rewrites docs/composition.md
    python benchmarks/composition/matrix.py --resume   # goes on after an interruption

Rows are kept in ``results/composition.json`` as they come.
GeoMX's table is read from its source code, not measured; ``GEOMX`` below contains it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path

from joblib import Parallel, delayed
from measuring import digits, measure
from rich.progress import track

from geomx.errors import ConfigError
from geomx.plugin.registration import DEFAULT_SYNC
from geomx.plugin.registry import Registry
from geomx.testing.worlds import together

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "composition.md"
ROWS = ROOT / "benchmarks" / "results" / "composition.json"
ITERATIONS = 60

# Compatibility in GeoMX according to its source code, with geomx's names. "no": hangs, crashes or
# computes a wrong result. Absent: GeoMX does not have both plugins, or they are the same there.
GEOMX = {
    ("fsa", "bisparse"): "yes, below a million elements",
    ("fsa", "fp16"): "yes",
    ("fsa", "dgt"): "with stale blocks",
    ("fsa", "p3"): "small tensors are not cut",
    ("fsa", "multigps"): "with a race over ranks",
    ("fsa", "tsengine"): "one key at a time",
    ("mixedsync", "bisparse"): "no: a stub",
    ("mixedsync", "fp16"): "partly",
    ("mixedsync", "dgt"): "yes",
    ("mixedsync", "p3"): "partly",
    ("mixedsync", "multigps"): "partly",
    ("mixedsync", "tsengine"): "inside parties only",
    ("hfa", "bisparse"): "below a million elements",
    ("hfa", "fp16"): "yes",
    ("hfa", "dgt"): "partly",
    ("hfa", "p3"): "no",
    ("hfa", "tsengine"): "partly; inside parties with K2 = 1 only",
    ("bisparse", "fp16"): "as MPQ",
    ("bisparse", "dgt"): "tiny tensors only",
    ("bisparse", "p3"): "partly",
    ("bisparse", "multigps"): "no, from a million elements",
    ("bisparse", "tsengine"): "no: large keys",
    ("fp16", "dgt"): "no: ranking and merging",
    ("fp16", "p3"): "yes",
    ("fp16", "multigps"): "yes",
    ("fp16", "tsengine"): "yes",
    ("dgt", "p3"): "yes",
    ("dgt", "multigps"): "no: whole tensors only",
    ("dgt", "tsengine"): "inside parties only",
    ("p3", "tsengine"): "no: slices go around it",
    ("multigps", "tsengine"): "inside parties only",
}

OPENING = f"""# Combining plugins

Any list of accelerators runs under any sync algorithm, in both modes, or is refused with a reason
before the run starts. `tests/test_compose.py` runs combinations in which every pair
below occurs. `benchmarks/composition/matrix.py` generates this page.

`experiment=accelerators` compares plugins on one network in more detail. Workers in the central
party, which GeoMX supports with some plugins, work with all of them (`tests/test_central.py`).

Each cell is one simulated run: final accuracy, and milliseconds per iteration. The runs train the
digits CNN for {ITERATIONS} iterations on the network `two_parties` (two data centres of two
workers behind 100 Mbit/s, 30 ms from every other site) with default options.

"""

READING = """
These are short runs. With sparse and 2-bit codecs, accuracy rises more slowly at first and catches
up later; milliseconds under hfa are means over local steps and steps that use the WAN. Two sync
algorithms cannot be combined, because `sync=` takes one name. Two accelerators that both place
shards on servers are refused with an error that names them; of those in the table, only multigps
places shards. Of accelerators that exclude each other, "all" contains the last.

"""

THEIRS = """
## Combinations in GeoMX

The same pairs in GeoMX, according to its source code (github.com/INET-RC/GeoMX), not measured. A
cell is empty if GeoMX does not have both plugins (ESync was announced but never added). GeoMX
cannot combine MixedSync with HFA either, because HFA's servers have no optimizer to apply a
party's update. Its documentation recommends accelerators only under full synchrony.

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--resume", action="store_true", help="keep the rows that are there")
    arguments = parser.parse_args()
    registry = Registry.discover()
    syncs = [plugin.name for plugin in registry.plugins("sync")]
    syncs.sort(key=lambda name: (name != DEFAULT_SYNC, name))
    accelerators = [plugin.name for plugin in registry.plugins("accel")]
    # Of accelerators that exclude each other, the last.
    combined = tuple(sorted(together(registry, accelerators[::-1])))
    runs = [
        *((sync, ()) for sync in syncs),
        *((sync, (accel,)) for sync in syncs for accel in accelerators),
        *((DEFAULT_SYNC, pair) for pair in combinations(accelerators, 2)),
        *((sync, combined) for sync in syncs),
    ]
    keep = arguments.resume and ROWS.exists()
    rows = json.loads(ROWS.read_text(encoding="utf-8")) if keep else {}
    missing = [run for run in runs if label(*run) not in rows]
    # One process per core; results come in the order of the runs.
    work = Parallel(n_jobs=-1, return_as="generator")(delayed(outcome)(*run) for run in missing)
    for run, found in zip(missing, track(work, "simulating", total=len(missing)), strict=True):
        rows[label(*run)] = found
        ROWS.write_text(json.dumps(rows, indent=0), encoding="utf-8")
    refusals: dict[str, int] = {}
    cells = {}
    for run in runs:
        done, reason = rows[label(*run)]
        cells[run] = done or f"refused ({refusals.setdefault(reason, len(refusals) + 1)})"

    ours = {(sync, "alone"): cells[sync, ()] for sync in syncs}
    ours |= {(sync, "all"): cells[sync, combined] for sync in syncs}
    for (sync, accel), text in cells.items():
        if len(accel) == 1:
            ours[sync, accel[0]] = text
        elif len(accel) == 2:
            ours[accel] = text
    names = [*syncs, *accelerators[:-1]]
    parts = [
        OPENING,
        table(ours, names, ["alone", *accelerators, "all"]),
        READING,
        "## Refused combinations\n\n" + refused(refusals),
        THEIRS,
        table({**GEOMX, **{(b, a): t for (a, b), t in GEOMX.items()}}, names, accelerators, True),
    ]
    PAGE.write_text("".join(parts), encoding="utf-8")


def label(sync: str, accel: Sequence[str]) -> str:
    return "+".join((sync, *accel))


def outcome(sync: str, accel: Sequence[str]) -> tuple[str, str]:
    """Return accuracy and time of one run; or, second, the reason why it is refused."""
    words = [f"sync={sync}", f"accel=[{','.join(accel)}]", f"iterations={ITERATIONS}"]
    try:
        run = measure([*words, f"evaluate_every={ITERATIONS}"])
    except ConfigError as error:
        return "", str(error)
    return f"{run.accuracy:.2f} · {digits(run.iteration_ms)}", ""


def refused(refusals: Iterable[str]) -> str:
    reasons = [f"{number}. {text}\n" for number, text in enumerate(refusals, 1)]
    return "".join(reasons) or "None in this table.\n"


def table(
    cells: dict[tuple[str, str], str],
    rows: Sequence[str],
    columns: Sequence[str],
    mirrored: bool = False,
) -> str:
    """A table in Markdown; pairs of accelerators stand once, above the diagonal."""
    lines = ["| | " + " | ".join(f"**{name}**" for name in columns) + " |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    for row in rows:
        shown = [
            "" if mirrored and row in columns and columns.index(name) <= columns.index(row)
            else cells.get((row, name), "")
            for name in columns
        ]  # fmt: skip
        lines.append(f"| **{row}** | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
