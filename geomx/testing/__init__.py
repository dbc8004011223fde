"""Checks of a plugin's contract: ``check_plugin("mine")`` in pytest, or ``geomx check mine``.

The laws are those that geomx's own plugins are held to. The laws that apply to a plugin follow from
its kind and its hooks; no plugin is named here.
"""

from __future__ import annotations

from geomx.testing.battery import CheckFailed, check_plugin

__all__ = ["CheckFailed", "check_plugin"]
