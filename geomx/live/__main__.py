"""``python -m geomx.live``: one process of a live run; see `geomx.live.node`."""

import os
import sys

from geomx.imports import without_collections

with without_collections():
    from geomx.live.node import main

if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything has been written, and the teardown of MXNet and Python would take seconds.
    os._exit(status)
