"""Construction of HTML and SVG with automatic escaping.

`tag` escapes every child and attribute that is not `Markup` already, so a node called ``<b>`` or an
option with a quote in it cannot break the page.
"""

from __future__ import annotations

import html


class Markup(str):
    """Text that is markup already; `tag` does not escape it."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: object) -> Markup:
    """Return an element.

    Args:
        name: ``div``, ``rect``, ...
        children: Its content in order; plain strings are escaped.
        attributes: ``class_`` stands for ``class`` and ``data_tip`` for ``data-tip``; floats are
            rounded to hundredths, None leaves the attribute out.
    """
    opening = name
    for key, value in attributes.items():
        if value is None:
            continue
        text = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
        opening += f' {key.rstrip("_").replace("_", "-")}="{html.escape(text)}"'
    if name in {"br", "meta"}:
        return Markup(f"<{opening}>")
    return Markup(f"<{opening}>{join(*children)}</{name}>")


def join(*children: str) -> Markup:
    """Return children one after the other, without an enclosing element."""
    return Markup(
        "".join(
            child if isinstance(child, Markup) else html.escape(child, quote=False)
            for child in children
        )
    )


def svg(width: float, height: float, label: str, *children: str, **attributes: object) -> Markup:
    """Return a drawing that scales with the page.

    Args:
        width: Width of the view box.
        height: Its height.
        label: Description of the drawing.
        children: Its content in order.
        attributes: As for `tag`.
    """
    box = f"0 0 {width:g} {height:g}"
    return tag("svg", *children, viewBox=box, role="img", aria_label=label, **attributes)
