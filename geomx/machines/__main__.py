"""``python -m geomx.machines``: `geomx node`, for machines where that command is not on the
path.
"""

import sys

from geomx.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["node", *sys.argv[1:]]))
