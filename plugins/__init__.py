"""The plugins that come with geomx, one folder each, found like a stranger's.

Nothing here or elsewhere names them: delete a folder and the rest builds and runs.
"""

from __future__ import annotations

from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register


@hookimpl
def geomx_register(register: Register) -> None:
    """Announce every sub-package, each loaded in isolation."""
    register.package(__name__)
