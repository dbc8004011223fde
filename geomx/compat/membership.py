"""A worker's place in the job: taken when it is first needed, left when the program ends.

The settings of a job are final when it begins, and they are the master worker's to choose. Its
wishes are gathered while its script configures the store and introduces keys, and handed in with
the first call that needs an answer, when a second passes without another key, or at the script's
end. Other workers wait for that, at their first key.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx.compat.addresses import Diary, about, own_host
from geomx.compat.rendezvous import Spoke
from geomx.compat.roles import Role
from geomx.compat.serving import Ushers
from geomx.compat.variables import ALL_WORKERS, Wish
from geomx.errors import GeomxError
from geomx.kv.values import Key
from geomx.live.exit_status import DONE, FAILED
from geomx.live.member import Member

_QUIET_S = 1.0
_EXCUSE_S = 5.0


def excuse(role: Role, environ: Mapping[str, str]) -> None:
    """Say that this worker will not come, if its program has failed: the others wait for it."""
    if role.party is None or getattr(sys, "last_value", None) is None:
        return
    with contextlib.suppress(GeomxError):
        Spoke(role.party, "scheduler", about(role, environ), _EXCUSE_S).connection.close()


class Attendance:
    """This worker.

    Attributes:
        rank: Among the workers of its party.
        master: Whether it configures the job.
        outside: Whether it does so without training; known once the job is.
    """

    def __init__(self, role: Role, environ: Mapping[str, str], diary: Diary) -> None:
        assert role.party is not None
        self._role = role
        self._environ = environ
        self._diary = diary
        self._spoke = Spoke(role.party, "scheduler", about(role, environ))
        ranked = self._spoke.expect("rank")
        self.rank = int(ranked["rank"])
        self.flat = bool(ranked["flat"])
        self.master = role.master or (self.flat and self.rank == 0)
        self.outside = False
        self.members: list[Member] = []
        self._wish = Wish()
        self._told = False
        self._broken = False
        self._lock = threading.RLock()
        self._pending: list[tuple[Key, NDArray[Any], str]] = []
        self._rules: list[str] = []
        self._ushers = Ushers()
        self._last = time.monotonic()
        self._ticket: Mapping[str, Any] | None = None
        diary.call(
            f"master-{role.party[1]}" if role.master else f"worker-{role.party[1]}-{self.rank}"
        )
        atexit.register(self._end)
        threading.Thread(target=self._show_up, name="geomx-end").start()

    @property
    def workers(self) -> int:
        """Workers of this party, the master included."""
        return self._role.workers

    @property
    def all_workers(self) -> int:
        """Workers that train, in the whole job."""
        if self.members:
            return len(self.members[0].spec.cluster.workers)
        return self.workers if self.flat else int(self._environ.get(ALL_WORKERS, self.workers))

    # ---- the master ----

    def wish(self, **changes: Any) -> None:
        """Configure the job: `Wish`'s attributes.

        Raises:
            GeomxError: It has begun.
        """
        with self._lock:
            if self._told:
                what = ", ".join(changes)
                raise GeomxError(f"{what} must be set before the first value is pushed or pulled")
            self._wish = Wish(**{**vars(self._wish), **changes})

    def introduce(self, key: Key, value: NDArray[np.float32], dtype: str) -> None:
        """Give a key its initial value, of a tensor whose elements are of type `dtype`."""
        with self._lock:
            self._last = time.monotonic()
            first = not self._pending
            self._pending.append((key, value, dtype))
            if self._told:
                self._hand_in()
            elif first:
                threading.Thread(target=self._when_quiet, daemon=True).start()

    def instruct(self, text: str) -> None:
        """Tell the global servers: an instruction to the core."""
        with self._lock:
            self._rules.append(text)
            if self._told and self.outside:
                self._hand_in()

    def pending(self) -> list[tuple[Key, NDArray[Any], str]]:
        """Keys that were introduced before there was a job; they are the caller's now."""
        with self._lock:
            taken, self._pending = self._pending, []
            return taken

    def rules(self) -> list[str]:
        """Instructions likewise."""
        with self._lock:
            taken, self._rules = self._rules, []
            return taken

    def tell(self) -> None:
        """Hand in the master's wishes; the job can begin."""
        with self._lock:
            if self._told or not self.master:
                return
            self._told = True
            keys = [(int(value.size), dtype) for _, value, dtype in self._pending]
            wish = self._wish
            compression = dict(wish.compression)
            self._spoke.send("wish", kv=wish.type, compression=compression, keys=keys)
            self._ticket = self._spoke.expect("job").facts
            self.outside = bool(self._ticket["outside"])
            if self.outside:
                self._hand_in()

    def _when_quiet(self) -> None:
        while not self._told:
            time.sleep(_QUIET_S / 4)
            if time.monotonic() - self._last >= _QUIET_S:
                self.tell()

    def _hand_in(self) -> None:
        """What a master outside the job has to say, to the global servers."""
        for key, value, _ in self.pending():
            self._spoke.send("init", value.tobytes(), key=key, shape=value.shape)
        for text in self.rules():
            self._spoke.send("command", text=text)

    # ---- everybody ----

    def join(self) -> Member:
        """This worker's membership; waits until the job has begun.

        Raises:
            GeomxError: The job cannot begin; or this is a master who does not train.
        """
        if not self.members:
            self.tell()
            if self._ticket is None:
                self._ticket = self._spoke.expect("job").facts
            seats = [(str(name), int(number)) for name, number in self._ticket["own"]]
            if not seats:
                raise GeomxError(
                    "this master worker does not train, so it has nothing to push or pull; "
                    "it would with DMLC_ENABLE_CENTRAL_WORKER=1 for the global servers"
                )
            self._diary.call(seats[0][0])
            host = own_host(self._spoke.here(), self._environ)
            self.members = self._ushers.take(seats, self._ticket, host)
            self._diary.started(self.members[0].started_s)
        return self.members[0]

    def barrier(self) -> None:
        """Wait until all workers of this party have come here."""
        self.tell()
        self._spoke.send("barrier")
        self._spoke.expect("release")

    def _show_up(self) -> None:
        """When the program has ended, take the place that it had no use for: others wait for it.

        In a thread that was started before: joining takes others (`Ushers`), and the job's end
        is waited for before `atexit` calls.
        """
        threading.main_thread().join()
        if self.members or getattr(sys, "last_value", None) is not None:
            return
        try:
            self.tell()
            if self._ticket is None:
                self._ticket = self._spoke.expect("job").facts
            if self._ticket["own"]:
                member = self.join()
                member.loop.leave()
                member.wait_stopped()
        except (GeomxError, RuntimeError) as error:
            print(error, file=sys.stderr, flush=True)
            self._broken = True

    def _end(self) -> None:
        """The program is over: the job may end for this worker."""
        failed = self._broken or getattr(sys, "last_value", None) is not None
        if not failed:
            try:
                self.tell()
            except GeomxError as error:
                print(error, file=sys.stderr, flush=True)
                failed = True
        self._diary.measured(self.members)
        for member in self.members:
            failed = failed or member.loop.failure() is not None
            member.loop.close()
        self._diary.end(FAILED if failed else DONE)
        if not failed:
            self._spoke.leave()
