"""Failure and rerouting: a fibre is cut, and the routers find another way after a while.

Covers:
    edges that go down and up; `reroute`; events of the run; a network in the long form, with
    routers of its own (`ring.json`).

Scenario:
    Four routers form a ring: site far can reach the hub over north (10 ms) or over south (40 ms).
    When three rounds are complete, the fibre between far and north is cut. Routing notices after
    0.8 s and takes the southern way. At 6 s the fibre is repaired, and routing returns.

Look at:
    the loads of both ways: nothing moves while routing has not converged, and the waiting messages
    then leave over the south. There, an iteration takes longer by its round trips.

    python examples/world/rerouting.py
"""

from common import HERE, WORDS, Line, Process, compare, draw, sample

from geomx.sim import World

CONVERGES_S, REPAIRED_S = 0.8, 6.0
FIBRE = "far", "north"
lines: dict[str, Line] = {}
words = [f"network={HERE / 'ring.json'}", *WORDS[1:]]


def cut(world: World) -> Process:
    """Cut the fibre, let routing converge, and repair it."""
    yield world.when(lambda: world.round() >= 3)
    world.wan.set(*FIBRE, up=False, both=True)
    yield world.env.timeout(world.seconds(CONVERGES_S))
    print(
        f"{world.now_s:.2f} s: {world.wan.reroute()} links over {world.wan.path('far', 'centre')}"
    )
    yield world.env.timeout(world.seconds(REPAIRED_S - world.now_s))
    world.wan.set(*FIBRE, up=True, both=True)
    print(
        f"{world.now_s:.2f} s: {world.wan.reroute()} links over {world.wan.path('far', 'centre')}"
    )


def world(world: World) -> None:
    """Start the failure, and sample both ways."""
    world.process(cut(world))
    wan = world.wan
    sample(
        world,
        0.02,
        lines,
        north=lambda: wan.load("far", "north"),
        south=lambda: wan.load("far", "south"),
    )


if __name__ == "__main__":
    compare(world, words)
    print(draw(__file__, "Both ways from far to the hub", "Mbit/s", lines))
