"""Processes that are not workers: importing MXNet makes them serve until the job is over.

A scheduler gathers the other processes (`geomx.compat.scheduler`). A server joins the job, forwards
its description to its workers and, if the master worker does not train, its keys and optimizers
to the global servers.
"""

from __future__ import annotations

import queue
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from multiprocessing.connection import wait
from typing import Any

import numpy as np

from geomx.compat.addresses import ProcessLog, about, own_host
from geomx.compat.job import Seat
from geomx.compat.rendezvous import Note, Spoke
from geomx.compat.roles import Role
from geomx.compat.scheduler import Scheduler
from geomx.errors import GeomxError, NodeLost
from geomx.kv.keys import Keys
from geomx.kv.rules import global_rule
from geomx.live.exit_status import DONE, FAILED, LOST
from geomx.live.member import Member

_POLL_S = 0.05


def serve(role: Role, environ: Mapping[str, str], log: ProcessLog) -> int:
    """Run a process that is not a worker until the job is over.

    Args:
        role: Role of the process.
        environ: Its environment variables.
        log: Its files.

    Returns:
        The exit status.
    """
    try:
        if role.kind in ("global_scheduler", "scheduler"):
            Scheduler(role, environ, log).run()
        else:
            Server(role, environ, log).run()
    except NodeLost as lost:
        print(lost, file=sys.stderr, flush=True)
        log.end(LOST)
        return LOST
    except Exception as error:
        if not isinstance(error, GeomxError):
            traceback.print_exc()
        print(str(error) or type(error).__name__, file=sys.stderr, flush=True)
        log.end(FAILED)
        return FAILED
    log.end(DONE)
    return DONE


class JoinThreads:
    """Threads that join the job for all nodes of one process at once: each waits for the others.

    The threads are started in advance, since a worker may join while its program ends, when the
    interpreter (from Python 3.12 on) starts no threads any more.

    Args:
        seats: The largest number of nodes of this process.
    """

    def __init__(self, seats: int = 2) -> None:
        self._joins: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        for _ in range(seats - 1):
            threading.Thread(target=self._work, daemon=True, name="geomx-join").start()

    def take(self, seats: Sequence[Seat], ticket: Mapping[str, Any], host: str) -> list[Member]:
        """Join as all of `seats`, and wait until the job has begun.

        Args:
            seats: Nodes of this process.
            ticket: From `Job.ticket`.
            host: Address for connections to this process.

        Returns:
            The members, in the order of `seats`.

        Raises:
            GeomxError: A node could not join.
        """
        places: list[Future[Member]] = [Future() for _ in seats]
        first, *others = [
            partial(_join, seat, ticket, host, joined)
            for seat, joined in zip(seats, places, strict=True)
        ]
        for join in others:
            self._joins.put(join)
        first()
        return [place.result() for place in places]

    def _work(self) -> None:
        while True:
            self._joins.get()()


def _join(seat: Seat, ticket: Mapping[str, Any], host: str, joined: Future[Member]) -> None:
    try:
        name, number = seat
        member = Member.join(
            ticket["scheduler"], name, number, ticket["token"], host, insecure=True
        )
        member.wire()
        member.wait_started()
        joined.set_result(member)
    except BaseException as error:
        joined.set_exception(error)


class Server:
    """A party's server, or a global server.

    Args:
        role: Role of the process.
        environ: Its environment variables.
        log: Its files.
    """

    def __init__(self, role: Role, environ: Mapping[str, str], log: ProcessLog) -> None:
        self._role = role
        self._environ = environ
        self._log = log
        self._members: list[Member] = []
        self._join_threads = JoinThreads()
        self._early: list[Note] = []  # notes of the master that arrived before the job began

    def run(self) -> None:
        """Serve until the job is over.

        Raises:
            GeomxError: The job could not begin.
            NodeLost: The job lost a node.
        """
        role = self._role
        assert role.party is not None
        me = about(role, self._environ)
        me["world"] = role.world
        party = Spoke(role.party, "scheduler", me)
        ranked = party.expect("rank")
        spokes = [party]
        if role.world is not None:
            me |= {
                "global": role.kind == "global_server",
                "central": role.central,
                "workers": ranked.facts.get("workers", []),
            }
            spokes.append(Spoke(role.world, "global scheduler", me))
        try:
            self._serve(party, spokes, first=ranked["rank"] == 0)
        finally:
            for member in self._members:
                member.close()
            self._log.measured(self._members)
            for spoke in spokes:
                spoke.leave()

    def _serve(self, party: Spoke, spokes: list[Spoke], first: bool) -> None:
        world = spokes[-1]
        while not self._over():
            ready = wait([spoke.connection for spoke in spokes], timeout=_POLL_S)
            for spoke in [each for each in spokes if each.connection in ready]:
                try:
                    note = spoke.receive()
                except GeomxError:
                    if not self._members:
                        raise
                    spokes.remove(spoke)  # closed
                    continue
                if note.type == "wish" and spoke is party:
                    world.send("wish", **note.facts)
                elif note.type == "job":
                    if world is not party and first:
                        party.send("job", **note.facts)
                    self._begin(note, world)
                elif note.type in ("init", "optimizer"):
                    self._say(note)

    def _over(self) -> bool:
        for member in self._members:
            failure = member.loop.failure()
            if failure is not None:
                raise NodeLost(*failure)
        return bool(self._members) and self._members[0].loop.wait_stopped(0)

    def _begin(self, note: Note, world: Spoke) -> None:
        seats = [(str(name), int(number)) for name, number in note["own"]]
        self._log.call(seats[0][0])
        host = own_host(world.here(), self._environ)
        self._members = self._join_threads.take(seats, note.facts, host)
        first = self._members[0]
        self._log.started(first.started_s)
        if first.node.role == "global_server" and note["outside"]:
            self._keys = Keys(first.spec.cluster, first.selection, first.streams)
            rule = global_rule(first)
            if rule is not None:
                first.loop.run_optimizer(rule)
        for early in self._early:
            self._say(early)
        self._early.clear()

    def _say(self, note: Note) -> None:
        """Pass a note of a master outside the job to the global server in this process."""
        if not self._members:
            self._early.append(note)
            return
        member = self._members[0]
        if note.type == "optimizer":
            if member.policy.exchange == "gradients":
                member.loop.run_optimizer(str(note["text"]))
            return
        shape = tuple(int(size) for size in note["shape"])
        (entry,) = self._keys.admit([(note["key"], shape)])
        values = np.frombuffer(note.body, np.float32)
        mine = member.spec.cluster.global_servers.index(member.node)
        for index, shard in enumerate(entry.shards):
            offset, elements, server, _ = shard
            if server == mine:
                piece = values[offset : offset + elements]
                member.loop.initialise(entry.key, index, shard, piece)
