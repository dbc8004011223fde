"""A worker's membership in the job: it joins when first needed, and leaves when the program ends.

The settings of a job are fixed when it begins, and the master worker chooses them. They are
collected while its script configures the store and initialises keys, and submitted with the first
call that needs an answer, after a second without another key, or at the script's end. Other workers
wait for that at their first key.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx.compat.addresses import ProcessLog, about, own_host
from geomx.compat.rendezvous import Spoke
from geomx.compat.roles import Role
from geomx.compat.serving import JoinThreads
from geomx.compat.variables import ALL_WORKERS, Settings
from geomx.errors import GeomxError
from geomx.kv.ending import at_end, failing
from geomx.kv.values import Key
from geomx.live.exit_status import DONE, FAILED
from geomx.live.member import Member

_QUIET_S = 1.0
_EXCUSE_S = 5.0
_WOULD = "it would with DMLC_ENABLE_CENTRAL_WORKER=1 for the global servers"


def report_absence(role: Role, environ: Mapping[str, str]) -> None:
    """Disconnect from the scheduler, for which others wait, if this program failed before joining.

    Args:
        role: Role of the process.
        environ: Its environment variables.
    """
    if role.party is None or not failing():
        return
    with contextlib.suppress(GeomxError):
        Spoke(role.party, "scheduler", about(role, environ), _EXCUSE_S).connection.close()


class Membership:
    """The membership of this worker.

    Args:
        role: Role of the process.
        environ: Its environment variables.
        log: Its files.

    Attributes:
        rank: Rank among the workers of its party.
        master: Whether it configures the job.
        outside: Whether the master does so without training; known once the job exists.

    Raises:
        GeomxError: The scheduler cannot be reached.
    """

    def __init__(self, role: Role, environ: Mapping[str, str], log: ProcessLog) -> None:
        assert role.party is not None
        self._role = role
        self._environ = environ
        self._log = log
        self._spoke = Spoke(role.party, "scheduler", about(role, environ))
        ranked = self._spoke.expect("rank")
        self.rank = int(ranked["rank"])
        self.flat = bool(ranked["flat"])
        self.master = role.master or (self.flat and self.rank == 0)
        self.outside = False
        self.members: list[Member] = []
        self._wish = Settings()
        self._told = False
        self._broken = False
        self._lock = threading.RLock()
        self._pending: list[tuple[Key, NDArray[Any], str]] = []
        self._optimizers: list[str] = []
        self._join_threads = JoinThreads()
        self._last = time.monotonic()
        self._ticket: Mapping[str, Any] | None = None
        log.call(
            f"master-{role.party[1]}" if role.master else f"worker-{role.party[1]}-{self.rank}"
        )
        at_end(self._end)
        threading.Thread(target=self._show_up, name="geomx-end").start()

    @property
    def workers(self) -> int:
        """Number of workers of this party, the master included."""
        return self._role.workers

    @property
    def all_workers(self) -> int:
        """Number of training workers of the whole job."""
        if self.members:
            return len(self.members[0].spec.cluster.workers)
        return self.workers if self.flat else int(self._environ.get(ALL_WORKERS, self.workers))

    # ---- the master worker ----

    def wish(self, **changes: Any) -> None:
        """Configure the job.

        Args:
            changes: Attributes of `Settings`.

        Raises:
            GeomxError: The job has begun.
        """
        with self._lock:
            if self._told:
                what = ", ".join(changes)
                raise GeomxError(f"{what} must be set before the first value is pushed or pulled")
            self._wish = Settings(**{**vars(self._wish), **changes})

    def introduce(self, key: Key, value: NDArray[np.float32], dtype: str) -> None:
        """Set the initial value of a key.

        Args:
            key: The key.
            value: Its value, float32.
            dtype: Name of the tensor's element type.
        """
        with self._lock:
            self._last = time.monotonic()
            first = not self._pending
            self._pending.append((key, value, dtype))
            if self._told and self.outside:
                self._hand_in()
            elif first:
                threading.Thread(target=self._when_quiet, daemon=True).start()

    def run_optimizer(self, text: str) -> None:
        """Have the global servers run an optimizer, as of `geomx.kv.states.text_of`."""
        with self._lock:
            self._optimizers.append(text)
            if self._told and self.outside:
                self._hand_in()

    def pending(self) -> list[tuple[Key, NDArray[Any], str]]:
        """Remove and return the keys initialised before the job existed, with value and type."""
        with self._lock:
            taken, self._pending = self._pending, []
            return taken

    def optimizers(self) -> list[str]:
        """Remove and return the optimizers given before the job existed."""
        with self._lock:
            taken, self._optimizers = self._optimizers, []
            return taken

    def tell(self) -> None:
        """Submit the master's settings, so that the job can begin."""
        with self._lock:
            if self._told or not self.master:
                return
            self._told = True
            keys = [(int(value.size), dtype) for _, value, dtype in self._pending]
            wish = self._wish
            compression = dict(wish.compression)
            self._spoke.send("wish", kv=wish.type, compression=compression, keys=keys)
            self._job()
            if self.outside:
                self._hand_in()

    def _when_quiet(self) -> None:
        while not self._told:
            time.sleep(_QUIET_S / 4)
            if time.monotonic() - self._last >= _QUIET_S:
                self.tell()

    def _hand_in(self) -> None:
        """Send keys and optimizers of a master outside the job to the global servers."""
        for key, value, _ in self.pending():
            self._spoke.send("init", value.tobytes(), key=key, shape=value.shape)
        for text in self.optimizers():
            self._spoke.send("optimizer", text=text)

    # ---- all workers ----

    def join(self) -> Member:
        """Join the job, after waiting for it to begin; return this worker's member.

        Raises:
            GeomxError: The job cannot begin, or this is a master that does not train.
        """
        if not self.members:
            self.tell()
            ticket = self._job()
            seats = [(str(name), int(number)) for name, number in ticket["own"]]
            if not seats:
                none = "this master worker does not train, so it has nothing to push or pull"
                raise GeomxError(f"{none}; {_WOULD}")
            self._log.call(seats[0][0])
            host = own_host(self._spoke.here(), self._environ)
            self.members = self._join_threads.take(seats, ticket, host)
            self._log.started(self.members[0].started_s)
        return self.members[0]

    def check_states(self) -> None:
        """Check that optimizer states can be saved and loaded, after waiting for the job to begin.

        Raises:
            GeomxError: The master worker, which alone may do so, does not train.
        """
        self.tell()
        self._job()
        if self.outside:
            raise GeomxError(
                "optimizer states cannot be saved or loaded: only the master worker may do so, "
                f"and that of this job does not train; {_WOULD}"
            )

    def _job(self) -> Mapping[str, Any]:
        """Wait for the job to begin; return this worker's part of it."""
        if self._ticket is None:
            self._ticket = self._spoke.expect("job").facts
            self.outside = bool(self._ticket["outside"])
        return self._ticket

    def barrier(self) -> None:
        """Wait until all workers of this party have reached the barrier."""
        self.tell()
        self._spoke.send("barrier")
        self._spoke.expect("release")

    def note_failure(self) -> None:
        """Record that the program fails, if it does: before it leaves, and others fail of that."""
        if failing() and not self._log.ended:
            self._log.measured(self.members)
            self._log.end(FAILED)

    def _show_up(self) -> None:
        """Join at the end of a program that never used the store, since others wait for it.

        Runs in a thread started beforehand: joining needs further threads (`JoinThreads`), and the
        end of the job must be awaited before `atexit` calls.
        """
        threading.main_thread().join()
        if self.members or failing():
            return
        try:
            self.tell()
            if self._job()["own"]:
                member = self.join()
                member.loop.leave()
                member.wait_stopped()
        except (GeomxError, RuntimeError) as error:
            print(error, file=sys.stderr, flush=True)
            self._broken = True

    def _end(self) -> None:
        """Leave the job at the end of the program."""
        self.note_failure()
        failed = self._broken or failing()
        if not failed:
            try:
                self.tell()
            except GeomxError as error:
                print(error, file=sys.stderr, flush=True)
                failed = True
        if not self._log.ended:
            self._log.measured(self.members)
        for member in self.members:
            failed = failed or member.loop.failure() is not None
            member.close()
        self._log.end(FAILED if failed else DONE)
        if not failed:
            self._spoke.leave()
