"""Schedulers: they gather the processes of a job, create it, and run the job's own scheduler.

There is one in every party and one for the parties' servers; the latter runs the job's. In a job
without parties, the only one does both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from geomx.compat.addresses import ProcessLog, listen_at, outward, own_host, resolved
from geomx.compat.job import Job, flat_job, geo_job, meeting_place, rank_order
from geomx.compat.rendezvous import FAILED, GONE, Hub, Note
from geomx.compat.roles import Role
from geomx.compat.variables import Settings
from geomx.errors import GeomxError, NodeLost
from geomx.live.member import JOIN_TIMEOUT_S, Member
from geomx.live.relay import Patience
from geomx.options.schema import RuntimeOptions

_POLL_S = 0.05
_FAREWELL_S = 0.5  # for which the job's scheduler stays, so that others learn that the job is over


class Scheduler:
    """A scheduler: of a party, of the parties' servers, or of a flat job, which is both.

    Args:
        role: Role of the process.
        environ: Its environment variables.
        log: Its files.
    """

    def __init__(self, role: Role, environ: Mapping[str, str], log: ProcessLog) -> None:
        self._role = role
        self._environ = environ
        self._log = log
        self._wide = role.kind == "global_scheduler"
        self._address = role.world if self._wide else role.party
        assert self._address is not None
        self._hub = Hub(listen_at(self._address, environ))
        self._about: dict[int, dict[str, Any]] = {}
        self._servers: list[int] = []  # by rank, once all have registered
        self._workers: list[int] = []
        self._wish: Settings | None = None
        self._begun = False  # all processes know the job
        self._member: Member | None = None  # the job's scheduler, if it is in this process
        self._at_barrier: set[int] = set()

    def run(self) -> None:
        """Serve until all processes have disconnected.

        Raises:
            GeomxError: A process is missing, or ended too early.
            NodeLost: The job lost a node.
        """
        self._log.call(f"{self._role.kind}-{self._address[1]}" if self._address else "scheduler")
        try:
            self._serve()
        except Exception as error:
            for spoke in self._about:
                self._hub.send(spoke, Note(FAILED, {"reason": str(error)}))
            raise
        finally:
            self._hub.close()

    def _serve(self) -> None:
        deadline = time.monotonic() + JOIN_TIMEOUT_S
        patience = Patience(RuntimeOptions().failure_timeout_s)
        while self._about or not self._begun:
            heard = self._hub.receive(_POLL_S)
            if heard is not None:
                self._hear(*heard)
            if not self._begun:
                patience.waits("the scheduler", lambda: f"the job's processes: {self._who()}")
            if not self._begun and time.monotonic() > deadline:
                raise GeomxError(f"the job did not begin in {JOIN_TIMEOUT_S:.0f} s: {self._who()}")
            if self._member is not None:
                self._watch(self._member)

    def _watch(self, member: Member) -> None:
        """Check the job's scheduler, in this process, for failure and for the end of the job."""
        failure = member.loop.failure()
        if failure is not None:
            raise NodeLost(*failure)
        if member.loop.wait_stopped(0):
            self._log.started(member.started_s)
            time.sleep(_FAREWELL_S)
            member.close()
            self._member = None

    def _who(self) -> str:
        """Describe which processes have registered so far."""
        servers, workers = self._expected()
        came = [each["kind"] for each in self._about.values()]
        here = f"{len(came) - came.count('worker')} of {servers} servers"
        if workers:
            here += f" and {came.count('worker')} of {workers} workers"
        waiting = "" if len(came) < servers + workers else "; the master worker sent no settings"
        return f"{here} registered at {self._address[0]}:{self._address[1]}{waiting}"  # type: ignore[index]

    def _expected(self) -> tuple[int, int]:
        role = self._role
        if self._wide:
            return role.global_servers + role.parties, 0
        return role.servers, role.workers

    # ---- notes ----

    def _hear(self, spoke: int, note: Note) -> None:
        if note.type == "register":
            self._about[spoke] = note.facts
            if len(self._about) == sum(self._expected()):
                self._all_here()
        elif note.type == GONE:
            self._gone(spoke, note)
        elif note.type == "wish":
            self._hear_wish(note)
        elif note.type == "job":
            self._pass_on(note.facts)
        elif note.type == "barrier":
            self._at_barrier.add(spoke)
            if len(self._at_barrier) == self._role.workers:
                self._tell(self._workers, Note("release"))
                self._at_barrier.clear()
        elif note.type in ("init", "optimizer"):
            self._tell(self._servers, note)

    def _tell(self, spokes: Sequence[int], note: Note) -> None:
        for spoke in spokes:
            self._hub.send(spoke, note)

    def _gone(self, spoke: int, note: Note) -> None:
        about = self._about.pop(spoke)
        if note["left"]:
            return
        process = f"{about['kind']} (process {about['pid']} on {about['host']})"
        if not self._begun:
            raise GeomxError(f"a {process} ended before the job began")

    def _all_here(self) -> None:
        """Assign ranks, and send servers the list of their workers."""
        self._servers = self._in_order(lambda each: each["kind"] != "worker")
        self._workers = self._in_order(lambda each: each["kind"] == "worker")
        for spokes in (self._servers, self._workers):
            for rank, spoke in enumerate(spokes):
                facts: dict[str, Any] = {"rank": rank, "flat": self._flat()}
                if spoke == self._servers[0]:
                    facts["workers"] = [self._about[worker] for worker in self._workers]
                self._hub.send(spoke, Note("rank", facts))
        self._begin_if_settled()

    def _in_order(self, wanted: Callable[[dict[str, Any]], bool]) -> list[int]:
        chosen = [spoke for spoke, each in self._about.items() if wanted(each)]
        return sorted(chosen, key=lambda spoke: rank_order(self._about[spoke]))

    def _flat(self) -> bool:
        return not self._wide and not any(self._about[each]["world"] for each in self._servers)

    def _hear_wish(self, note: Note) -> None:
        if not self._wide and not self._flat():  # for the scheduler of the parties' servers
            self._hub.send(self._servers[0], note)
            return
        keys = [(int(elements), str(dtype)) for elements, dtype in note["keys"]]
        self._wish = Settings(str(note["kv"]), dict(note["compression"]), keys)
        self._begin_if_settled()

    # ---- the job ----

    def _begin_if_settled(self) -> None:
        if self._wish is None or not self._servers or self._begun:
            return
        abouts = {spoke: self._about[spoke] for spoke in (*self._servers, *self._workers)}
        if self._wide:
            job = geo_job([abouts[spoke] for spoke in self._servers], self._wish)
        else:
            servers = [abouts[spoke] for spoke in self._servers]
            job = flat_job(servers, [abouts[spoke] for spoke in self._workers], self._wish)
        assert self._address is not None
        wide = listen_at(self._address, self._environ)[0] == "0.0.0.0"
        here = own_host(outward(), self._environ) if wide else resolved(self._address[0])
        member = job.open(here)
        self._log.remark(self._remarks(job))
        self._member = member
        ticket = job.ticket(member)
        if self._wide:
            self._invite_parties(job, ticket, abouts)
        else:
            for seats, server in zip(job.central, self._servers, strict=True):
                self._hub.send(server, Note("job", {**ticket, "own": seats.own, "workers": []}))
            for seat, worker in zip(job.parties[0].workers, self._workers, strict=True):
                self._hub.send(worker, Note("job", {**ticket, "own": seat}))
        self._begun = True

    def _invite_parties(
        self, job: Job, ticket: Mapping[str, Any], abouts: Mapping[int, Mapping[str, Any]]
    ) -> None:
        hub = [spoke for spoke in self._servers if abouts[spoke]["global"]]
        hub.sort(key=lambda spoke: rank_order(abouts[spoke]))
        parties = [spoke for spoke in self._servers if not abouts[spoke]["global"]]
        parties.sort(key=lambda spoke: meeting_place(abouts[spoke]))
        for spoke, seats in zip([*hub, *parties], [*job.central, *job.parties], strict=True):
            self._hub.send(spoke, Note("job", {**ticket, **seats.facts()}))

    def _remarks(self, job: Job) -> list[str]:
        name = self._environ.get("DMLC_INTERFACE")
        assert self._address is not None
        if name and resolved(self._address[0]).startswith("127."):
            instead = f"ignored, since the schedulers are on {self._address[0]}"
            return [*job.notes, f"DMLC_INTERFACE={name}: {instead}"]
        return job.notes

    def _pass_on(self, facts: Mapping[str, Any]) -> None:
        """Forward the job, received from a server, to the party's workers."""
        ticket = {name: facts[name] for name in ("scheduler", "token", "outside")}
        for seats, worker in zip(facts["workers"], self._workers, strict=True):
            self._hub.send(worker, Note("job", {**ticket, "own": seats}))
        self._begun = True
