"""What the examples share: a run with and without the program, samples, and a picture."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import geomx
from geomx.pages.charts import Series, line_chart
from geomx.pages.markup import Markup
from geomx.pages.picture import standalone
from geomx.sim import World

HERE = Path(__file__).resolve().parent
PICTURES = HERE.parents[1] / "docs" / "world"
WORDS = (
    f"network={HERE / 'sites.yaml'}",
    "workload=synthetic",
    "workload.elements=[500000,500000]",
    "iterations=30",
)
Process = Generator[Any, Any, None]
Line = list[tuple[float, float]]
COLOURS = ("blue", "red", "green")  # of the lines, in their order


def sample(
    world: World, every_s: float, lines: dict[str, Line], **figures: Callable[[], float]
) -> None:
    """Append (seconds, figure) to a line of each name, every so many seconds of the run."""

    def look() -> Process:
        while True:
            yield world.env.timeout(world.seconds(every_s))
            for name, figure in figures.items():
                lines.setdefault(name, []).append((world.now_s, figure()))

    world.process(look())


def compare(program: Callable[[World], None], words: Sequence[str] = WORDS) -> None:
    """Run an experiment without and with a program, and print how long an iteration takes."""
    for name, world in (("calm", None), ("with the program", program)):
        summary = geomx.run(list(words), world=world).summary
        mean_ms = 1e3 * summary["seconds_per_iteration"]["mean"]
        print(f"{name}: {mean_ms:.1f} ms per iteration, {summary['seconds']:.2f} s altogether")


def draw(file: str, title: str, unit: str, lines: dict[str, Line]) -> Path:
    """Draw lines over the seconds of a run; return the path of the picture."""
    series = [
        Series(name.replace("_", " "), f"series-{index}", points)
        for index, (name, points) in enumerate(lines.items())
    ]
    most = max(value for points in lines.values() for _, value in points)
    chart = line_chart(
        title,
        series,
        x_label="seconds of the run",
        x_text=lambda seconds: f"{seconds:.2f} s",
        y_text=lambda value: f"{value:.3g} {unit}",
        y_range=(0.0, most),
    )
    drawing = chart[chart.index("<svg") : chart.index("</svg>") + len("</svg>")]
    drawing = re.sub(r' data-hover="[^"]*"', "", drawing)  # for a page with its script
    colours = ", ".join(f"{line.name}: {COLOURS[index]}" for index, line in enumerate(series))
    text = standalone(Markup(drawing), f"{title} ({unit}). {colours}")
    picture = PICTURES / f"{Path(file).stem}.svg"
    picture.write_text(text, encoding="utf-8")
    return picture
