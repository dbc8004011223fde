"""Background traffic: other tenants of a site send files over the same uplink.

Covers:
    transfers as SimPy events; max-min sharing; random arrivals from the experiment's seed.

Scenario:
    From the first second on, files of 2 MB leave site east for the hub at exponentially distributed
    times, half a second apart in the mean. Each is a TCP connection, and shares the uplink of
    100 Mbit/s with the gradients of the training.

Look at:
    the load of east's uplink: it is full while training and a file share it. Iterations that meet a
    file take up to twice as long to send, and all parties wait for them. Give `transfer`
    ``priority=-1``, and the files only take what training leaves.

    python examples/world/background_traffic.py
    cd examples/world; python -m geomx network=sites.yaml scenario=background_traffic.py
"""

from common import Line, Process, compare, draw, sample

from geomx.sim import World

MEAN_S = 0.5
FILE_BYTES = 2e6
lines: dict[str, Line] = {}


def files(world: World) -> Process:
    """Send a file at random times."""
    yield world.env.timeout(world.seconds(1))
    while True:
        yield world.env.timeout(world.seconds(world.random.expovariate(1 / MEAN_S)))
        yield world.wan.transfer("east", "hub", FILE_BYTES)


def world(world: World) -> None:
    """Start the files, and sample the uplink."""
    world.process(files(world))
    wan = world.wan
    sample(
        world,
        0.02,
        lines,
        load=lambda: wan.load("east", "east/wan"),
        files=lambda: sum(flow.rate_mbps for flow in wan.flows() if flow.kind == "transfer"),
    )


if __name__ == "__main__":
    compare(world)
    print(draw(__file__, "Uplink of east", "Mbit/s", lines))
