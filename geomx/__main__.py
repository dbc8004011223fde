"""``python -m geomx``: see `geomx.cli.run`."""

import sys

from geomx.cli import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
