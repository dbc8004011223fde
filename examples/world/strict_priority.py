"""Strict priority: a backup that may use only what training leaves, and one that comes first.

Covers:
    the priority of transfers; `when` with a period; reading a transfer's progress.

Scenario:
    Site east copies 40 MB to the hub while it trains: first as a backup of priority -1, and as soon
    as that has arrived, again with priority 1, as an urgent transfer.

Look at:
    the rates: the first copy fills the pauses of training and delays nothing. The second one takes
    the whole uplink, and training stands still until it is through.

    python examples/world/strict_priority.py
"""

from common import WORDS, Line, Process, compare, draw, sample

from geomx.sim import World

COPY_BYTES = 40e6
lines: dict[str, Line] = {}
words = [*WORDS[:-1], "iterations=60"]


def copies(world: World) -> Process:
    """Copy twice."""
    for priority in (-1, 1):
        copy = world.wan.transfer("east", "hub", COPY_BYTES, priority=priority)
        half = yield world.when(lambda copy=copy: copy.left_bytes < COPY_BYTES / 2, every_s=0.1)
        assert half
        print(f"{world.now_s:.1f} s: half of the copy of priority {priority} has been sent")
        yield copy


def world(world: World) -> None:
    """Start the copies, and sample the rates on the uplink."""
    world.process(copies(world))

    def rate(kind: str) -> float:
        uplink = "east", "east/wan"
        flows = [flow for flow in world.wan.flows() if uplink in flow.edges]
        return sum(flow.rate_mbps for flow in flows if flow.kind == kind)

    sample(world, 0.05, lines, training=lambda: rate("training"), copies=lambda: rate("transfer"))


if __name__ == "__main__":
    compare(world, words)
    print(draw(__file__, "Rates on the uplink of east", "Mbit/s", lines))
