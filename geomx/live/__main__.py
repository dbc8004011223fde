"""``python -m geomx.live``: one process of a live run; see `geomx.live.node`."""

import gc
import os
import sys

gc.disable()  # imports create little garbage, and collections take a tenth of their time
try:
    from geomx.live.node import main
finally:
    gc.enable()

if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything has been written, and the teardown of MXNet and Python would take seconds.
    os._exit(status)
