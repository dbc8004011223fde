"""Charts of the report as files of their own, for README and docs: SVG with embedded style."""

from __future__ import annotations

from geomx.pages.markup import Markup, tag
from geomx.pages.page import asset

_NAMESPACE = 'xmlns="http://www.w3.org/2000/svg"'
_FONT = "svg { font: 12px system-ui, sans-serif; font-variant-numeric: tabular-nums; }"
_MARGIN = 12.0


def standalone(drawing: Markup, caption: str = "") -> str:
    """Return an SVG file with a background that follows the reader's light or dark mode.

    Args:
        drawing: An ``<svg>`` element of `svg`; its viewBox begins at 0 0.
        caption: A line below it.
    """
    opening, _, rest = drawing.partition('viewBox="0 0 ')
    box, _, rest = rest.partition('"')
    width, height = (float(part) for part in box.split())
    below = 22.0 if caption else 0.0
    paper = {
        "x": -_MARGIN, "y": -_MARGIN,
        "width": width + 2 * _MARGIN, "height": height + below + 2 * _MARGIN,
    }  # fmt: skip
    attributes, _, content = rest.partition(">")
    words = tag("text", caption, x=0.0, y=height + 18, class_="tick") if caption else ""
    size = " ".join(f"{value:g}" for value in paper.values())
    return (
        f'{opening.replace("<svg", f"<svg {_NAMESPACE}", 1)}viewBox="{size}" '
        f'width="{paper["width"]:g}" height="{paper["height"]:g}"{attributes}>'
        f"<style>{asset('page.css')}{_FONT}</style>"
        f"{tag('rect', class_='paper', **paper)}{content.removesuffix('</svg>')}{words}</svg>\n"
    )
