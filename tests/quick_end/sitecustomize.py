"""Keeps Python from searching for garbage at its end, which takes as long as half of the imports.

Python imports this module at its start where this folder is on PYTHONPATH.
"""

import atexit
import gc

atexit.register(gc.freeze)
