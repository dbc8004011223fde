"""The target of ``import mxnet`` in the processes of a script that ``geomx compat`` runs."""

from __future__ import annotations

import atexit
import os
import sys
from typing import Any

from geomx.imports import without_collections

with without_collections():
    from geomx.compat.addresses import ProcessLog
    from geomx.compat.idx_files import accept_any
    from geomx.compat.membership import Membership, report_absence
    from geomx.compat.roles import role_of
    from geomx.compat.serving import serve
    from geomx.errors import ConfigError
    from geomx.kv.ending import watch_exit


def enter() -> Any:
    """Serve and exit, or return MXNet with our store, depending on the environment.

    Raises:
        SystemExit: The process was not a worker and has served; or a variable is invalid.
    """
    environ = dict(os.environ)
    try:
        role = role_of(environ)
    except ConfigError as error:
        raise SystemExit(f"geomx: {error}") from error
    if role is not None and role.kind != "worker":
        status = serve(role, environ, ProcessLog(role.kind, environ))
        sys.stdout.flush()
        raise SystemExit(status)
    from geomx.compat.store import install
    from geomx.mxnet.arrays import mx

    accept_any(mx)
    if role is not None:
        log = ProcessLog(role.kind, environ)

        def join() -> Membership:
            atexit.unregister(report_absence)
            return Membership(role, environ, log)

        watch_exit()
        atexit.register(report_absence, role, environ)
        install(join)
    return mx
