"""Exit statuses of the processes of a live run, which their launcher evaluates."""

DONE = 0
FAILED = 1  # by an error of its own, which is the last line of its log
LOST = 3  # because another node was lost
BROKEN = 255  # of a node on another machine: the connection broke, so nothing else is known
INTERRUPTED = 130
