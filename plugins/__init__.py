"""The built-in plugins, one folder each, found like third-party ones.

No other file names them: if a folder is deleted, the rest builds and runs.
"""

from __future__ import annotations

from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register


@hookimpl
def geomx_register(register: Register) -> None:
    """Register the plugins of every sub-package, each loaded in isolation."""
    register.package(__name__)
