"""``python -m geomx``: see `geomx.cli.main.module`."""

import sys

try:
    from geomx.cli.main import ended, module
except ImportError as error:
    if error.name != "geomx._core":
        raise
    sys.exit(str(error))
except KeyboardInterrupt:  # before the command line handles signals
    sys.stderr.write("interrupted\n")
    sys.exit(130)

if __name__ == "__main__":
    sys.exit(ended(module(sys.argv[1:])))
