"""Exit statuses of the processes of a live run, which their launcher evaluates."""

import signal

DONE = 0
FAILED = 1  # by an error of its own, which is the last line of its log
LOST = 3  # because another node was lost; scripts may have it, too: see `diagnosis.lost_another`
BROKEN = 256  # of none: the connection to its machine broke, so nothing is known of the process
INTERRUPTED = 130


def signal_name(status: int) -> str:
    """Return the name of the signal that has ended a process.

    Most real-time signals have numbers only.

    Args:
        status: Exit status as in `subprocess.Popen`: negative.
    """
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
