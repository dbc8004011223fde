"""A live cluster under attack, by strangers and by one of its own members: others train on, their
values are right, and memory stays bounded."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.attacked import ELEMENTS, PUPPET
from tests.puppet import PREFIX, Puppet, Wire, strings, transfer
from tests.test_loop import NAMES, TOKEN

pytestmark = pytest.mark.slow(30)

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 60.0
MOST_MIB = 64  # that an attack may make a process grow
ALL, WITHOUT = 3.0 + 4.0 + 5.0, (3.0 + 4.0 + 5.0) * 4 / 3


class Victim:
    """The attacked cluster."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.attacked"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = self.line()
        self.host, port = self.address.rsplit(":", 1)
        self.port = int(port)

    def line(self) -> str:
        """Return the next line that it writes."""
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        assert text, f"the cluster has ended: {self.process.wait(PATIENCE_S)}"
        return text.strip()

    def rounds(self, count: int) -> list[float]:
        """Return the values of the next rounds of some worker."""
        return [float(self.line().split()[2]) for _ in range(count)]

    def peak_mib(self) -> float:
        """Return the most memory that the process has had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024

    def join(self) -> Puppet:
        """Take part as the last worker, however often that is refused for now."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return Puppet(self.address, NAMES[PUPPET], PUPPET, "west", TOKEN)
            except (OSError, AssertionError):
                if time.monotonic() > until:
                    raise

    def end(self) -> None:
        """Have the others leave; they end in good order."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        while self.line() != "stopped":
            pass
        assert self.process.wait(PATIENCE_S) == 0


@pytest.fixture
def victim() -> Iterator[Victim]:
    victim = Victim()
    yield victim
    victim.process.kill()
    victim.process.wait()


def refused(wire: Wire) -> list[bytes]:
    """Return the reasons that a connection was told, once it has ended."""
    told = [each.payload for each in wire.drain() if each.kind == "dead"]
    with pytest.raises(OSError):
        for _ in range(100):
            wire.send("heartbeat")
            time.sleep(0.1)
    return told


# ---- a member --------------------------------------------------------------------------------


def announce_much(puppet: Puppet) -> None:
    """Announce four gigabytes in one frame of 128 bytes, five times."""
    for key in range(5):
        big = transfer(2**30, key=key, slices=2, reliable=2)
        puppet.server.send(**{**big, "rows": 4, "payload": bytes(16)})


def ask_for_keys(puppet: Puppet) -> None:
    """Ask for two million keys that nobody has."""
    frame = [puppet.server.raw("pull_request", key=k, shard_elements=4) for k in range(1, 2001)]
    for _ in range(1000):
        puppet.server.socket.sendall(b"".join(frame))


def reply(puppet: Puppet) -> None:
    """Reply to what nobody has asked, with a gigabyte."""
    frame = puppet.server.raw("reply", bytes(1 << 20))
    for _ in range(1000):
        puppet.server.socket.sendall(frame)


def come_to_barriers(puppet: Puppet) -> None:
    """Come to a million barriers."""
    for first in range(0, 1_000_000, 1000):
        frames = (puppet.scheduler.raw("barrier", round=n) for n in range(first, first + 1000))
        puppet.scheduler.socket.sendall(b"".join(frames))


def blame(name: str) -> Callable[[Puppet], None]:
    """Report the loss of another node."""

    def report(puppet: Puppet) -> None:
        puppet.scheduler.send("dead", strings(name, "broke the protocol: so I say"))

    return report


def instruct(puppet: Puppet) -> None:
    """Set an optimizer that does not exist."""
    puppet.server.send("command", strings("optimizer\nno_such_thing"))


def initialise(puppet: Puppet) -> None:
    """Give another initial value."""
    puppet.server.send(**transfer(ELEMENTS, kind="init", flags=2), payload=bytes(4 * ELEMENTS))


def push_for_all(puppet: Puppet) -> None:
    """Push in the name of the whole party."""
    mine = transfer(ELEMENTS, merge_count=2)
    puppet.server.send(**mine, payload=bytes(4 * ELEMENTS))


def stop(puppet: Puppet) -> None:
    """Tell a server that the run is over."""
    puppet.server.send("stop")


def blame_at_length(puppet: Puppet) -> None:
    """Report a loss with a reason that fills the message: `members` would not hold it."""
    name = "west"
    longest = (64 << 10) - len(strings(name, ""))
    puppet.scheduler.send("dead", strings(name, "a" * longest))


def join_often(puppet: Puppet) -> None:
    """Join a hundred thousand times."""
    frames = [puppet.scheduler.raw("join", strings(NAMES[PUPPET], "", "127.0.0.1:9"))] * 1000
    for _ in range(100):
        puppet.scheduler.socket.sendall(b"".join(frames))


def join_from(address: str) -> Callable[[Puppet], None]:
    """Join with an address that all others are to be told."""

    def join(puppet: Puppet) -> None:
        puppet.scheduler.send("join", strings(NAMES[PUPPET], "", address))

    return join


ATTACKS = [
    announce_much, ask_for_keys, reply, come_to_barriers, blame("east0"), blame("global"),
    blame("west"), instruct, initialise, push_for_all, stop, blame_at_length, join_often,
    join_from("9" * 60_000), join_from("unknown.invalid:9"),
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__qualname__)
def test_a_hostile_member_is_dropped_and_others_train_on(
    victim: Victim, attack: Callable[[Puppet], None]
) -> None:
    puppet = victim.join()
    puppet.server.send("pull_request", shard_elements=ELEMENTS)
    while victim.line() != "started":
        pass
    before = victim.peak_mib()
    with contextlib.suppress(OSError):  # it is thrown out in the midst of it
        attack(puppet)
    assert set(victim.rounds(60)) <= {WITHOUT}
    refused(puppet.scheduler if attack is come_to_barriers else puppet.server)
    assert victim.peak_mib() - before < MOST_MIB
    puppet.close()
    victim.end()


# ---- strangers -------------------------------------------------------------------------------


def hang_up(victim: Victim) -> None:
    """Call without the token, and without a word."""
    for _ in range(100):
        socket.create_connection((victim.host, victim.port)).close()
    for token in ("", "another token"):
        wire = Wire(victim.address, PUPPET, token)
        assert not wire.accepted
        assert b"not a member" in wire.answer.payload
        wire.close()


def call_often(victim: Victim) -> None:
    """Make 10,000 connections, of which as many as can be stay open."""
    held = []
    for number in range(10_000):
        held.append(socket.create_connection((victim.host, victim.port)))
        if number % 3 == 0:
            with contextlib.suppress(OSError):
                held[-1].send(b"GMXT" if number % 2 else bytes(50))
        if len(held) > 500:
            held.pop(0).close()
    for each in held:
        each.close()


def talk_nonsense(victim: Victim) -> None:
    """Send a gigabyte of garbage, in frames that look right at first and in others."""
    left = 1 << 30
    for start in (b"", PREFIX.pack(b"GMXT", 0, 0)):
        while left > (1 << 29 if not start else 0):
            connection = socket.create_connection((victim.host, victim.port))
            with contextlib.suppress(OSError), connection:
                connection.sendall(start + bytes(range(256)) * 4096)
            left -= 1 << 20


@pytest.mark.parametrize("flood", [hang_up, call_often, talk_nonsense], ids=lambda f: f.__name__)
def test_strangers_cost_little(victim: Victim, flood: Callable[[Victim], None]) -> None:
    puppet = victim.join()
    puppet.server.send("pull_request", shard_elements=ELEMENTS)
    while victim.line() != "started":
        pass
    puppet.close()  # its connections are made again, or not: it is no matter
    before = victim.peak_mib()
    flood(victim)
    assert victim.peak_mib() - before < MOST_MIB
    assert victim.process.poll() is None


def test_a_member_joins_under_a_flood(victim: Victim) -> None:
    over = threading.Event()

    def call() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                held = [socket.create_connection((victim.host, victim.port)) for _ in range(300)]
                for each in held:
                    each.close()

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    puppet = victim.join()
    puppet.server.send("pull_request", shard_elements=ELEMENTS)
    while victim.line() != "started":
        pass
    over.set()
    for caller in callers:
        caller.join()
    puppet.close()
