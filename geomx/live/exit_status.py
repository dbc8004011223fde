"""Exit statuses by which the processes of a live run tell their launcher how they ended."""

DONE = 0
FAILED = 1  # of itself; the last line of its log says why
LOST = 3  # because another node was lost
INTERRUPTED = 130
