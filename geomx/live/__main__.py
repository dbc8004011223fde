"""``python -m geomx.live``: one process of a live run; see `geomx.live.node`."""

import gc
import os
import sys

gc.disable()  # imports leave hardly any garbage: looking for it takes a tenth of their time
try:
    from geomx.live.node import main
finally:
    gc.enable()

if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # MXNet and Python need seconds to tear down; everything is written.
    os._exit(status)
