"""What a plugin must do, as one line of pytest: ``check_plugin("mine")``; ``geomx check mine``.

The laws are those that geomx's own plugins are held to. Which of them a plugin has to keep follows
from what it is and which hooks it answers; nothing here knows any plugin by name.
"""

from __future__ import annotations

from geomx.testing.battery import CheckFailed, check_plugin

__all__ = ["CheckFailed", "check_plugin"]
