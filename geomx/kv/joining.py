"""Creation of a process's key-value store: a member of the job that started it, or a local one."""

from __future__ import annotations

import os
import signal
import sys
import threading
from functools import partial
from pathlib import Path

from geomx.errors import ConfigError, GeomxError, NodeLost
from geomx.kv.ending import at_end, error, failing, uncaught, watch_exit
from geomx.kv.local import LocalCluster, unshaped
from geomx.kv.store import TYPES, KVStore
from geomx.live import access
from geomx.live.diagnosis import at_fault
from geomx.live.disturbances import StepEvents
from geomx.live.exit_status import LOST
from geomx.live.files import has_left
from geomx.live.journal import Notes
from geomx.live.lifetime import LEAVE
from geomx.live.long_waits import LongWaits
from geomx.live.member import JOIN_TIMEOUT_S, Member
from geomx.live.metering import meter
from geomx.live.script_record import ScriptRecord
from geomx.virtual import wire
from geomx.virtual.member import VirtualMember

# Environment variables that the job's launcher sets for every worker.
SCHEDULER, NAME, ID, TOKEN = "GEOMX_SCHEDULER", "GEOMX_NAME", "GEOMX_ID", "GEOMX_TOKEN"
HOST = "GEOMX_HOST"
NOTES, PATIENCE = "GEOMX_NOTES", "GEOMX_PATIENCE"

_stores: list[KVStore] = []  # all stores of this process; all but the last are closed
_followed: list[bool] = []


def create(type: str = TYPES[0]) -> KVStore:
    """Return the key-value store of this worker.

    A process is one worker, so another call returns the same store. A process that was not started
    by ``geomx launch`` gets a cluster of one worker inside itself.

    Args:
        type: MXNet's name: ``dist_sync``, ``dist_device_sync`` or ``dist_async``.

    Returns:
        The store.

    Raises:
        ConfigError: There is no such type, or the job does not synchronise that way.
        GeomxError: The job's scheduler cannot be reached.

    Example:
        >>> import numpy as np
        >>> store = create("dist_sync")
        >>> weights = np.zeros(3, np.float32)
        >>> store.init("weights", weights)
        >>> store.push("weights", np.ones(3, np.float32))
        >>> store.pull("weights", out=weights)
        array([1., 1., 1.], dtype=float32)
        >>> store.close()
    """
    if type not in TYPES:
        raise ConfigError("kvstore", type, f"must be one of {', '.join(TYPES)}")
    if not _stores or _stores[-1].closed:
        _stores.append(_join(type))
        _stores[-1].closes_at_end = SCHEDULER in os.environ or wire.SOCKET in os.environ
        watch_exit()
        at_end(partial(_end, _stores[-1]))
    store = _stores[-1]
    if type == "dist_async" and store.member.policy.together and store.num_all_workers > 1:
        sync, _ = store.member.spec.sync
        raise ConfigError("kvstore", type, f"this job is synchronous: it runs sync={sync}")
    return store


def current() -> KVStore | None:
    """Return the store of this process; None if it has none, or has left its job."""
    return _stores[-1] if _stores and not _stores[-1].closed else None


def follow() -> None:
    """Record that this process is of a group that is one worker, and another one has its store."""
    _followed.append(True)


def following() -> bool:
    """Return whether `follow` was called."""
    return bool(_followed)


def _end(store: KVStore) -> None:
    """Leave the job when the program ends; tell its launcher if it ends because of another node."""
    store.close()
    if _lost_another(store.member) and failing() and SCHEDULER in os.environ:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(LOST)


def _lost_another(member: Member) -> bool:
    """Return whether the worker cannot go on because of another node."""
    failure = member.loop.failure()
    return failure is not None and not at_fault(member.node.name, NodeLost(*failure))


def _join(type: str) -> KVStore:
    """Join the job that this process was started for, or a cluster of one worker."""
    if wire.SOCKET in os.environ:
        simulated = VirtualMember.of_environment()
        return KVStore(simulated, type, lambda: simulated.close(uncaught()))
    if SCHEDULER not in os.environ:
        cluster = LocalCluster(unshaped({"local": 1}))
        return KVStore(cluster.workers[0], type, cluster.close)
    try:
        scheduler, name = os.environ[SCHEDULER], os.environ[NAME]
        id = int(os.environ[ID]) if ID in os.environ else None
    except (KeyError, ValueError) as error:
        raise GeomxError(f"{SCHEDULER} is set, but {NAME} or {ID} is not right: {error}") from error
    if NOTES in os.environ and has_left(Path(os.environ[NOTES])):
        raise GeomxError(
            f"{name} has left its job, which a command cannot join again: launch another script, "
            "or another training of this one, as a job of its own"
        )
    token, host = os.environ.get(TOKEN, ""), os.environ.get(HOST, "127.0.0.1")
    tls, insecure = access.folder_from_environment(), access.insecure_from_environment()
    patience_s = float(os.environ.get(PATIENCE, JOIN_TIMEOUT_S))
    member = Member.join(scheduler, name, id, token, host, tls, patience_s, insecure)
    try:
        if member.spec.workload is not None:
            remedy = "is trained by this run, not a script: give it to the scheduler, too, after --"
            raise ConfigError("workload", member.spec.workload[0], remedy)
        member.wire()
        notes = Notes(Path(os.environ[NOTES]), resumed=True) if NOTES in os.environ else None
        waits = LongWaits(member, notes) if notes is not None else None
        if notes is not None:
            member.act_notes, member.on_evaluated = notes, notes.evaluation
            member.on_wait = notes.waits
            if member.late:
                notes.again()
        metrics = meter(member, tls)
        member.wait_started(patience_s)
        if notes is not None:
            notes.metrics = metrics
            notes.started(member.started_s)
            first = member.node == member.spec.cluster.workers[0]
            events = StepEvents(member.spec.event_schedule, member)
            member.record = ScriptRecord(notes, member.loop, first, events.begin)
        if waits is not None:
            waits.begin()
    except BaseException:
        member.close()
        raise
    store = KVStore(member, type, lambda: _close(member, waits))
    if threading.current_thread() is threading.main_thread():
        signal.signal(LEAVE, lambda *_: _leave(member))
    return store


def _close(member: Member, waits: LongWaits | None) -> None:
    """Close the loop of a member, and end its record."""
    if waits is not None:
        waits.end()
    lost = member.loop.failure() is not None
    member.close("" if lost else error())
    if member.record is not None:
        failed = failing() or member.loop.failure() is not None
        status = "lost" if _lost_another(member) else "failed" if failed else "done"
        member.record.close(status, uncaught() if status == "failed" else "")


def _leave(member: Member) -> None:
    """Leave the job while others continue; without that, end as on SIGTERM."""
    if member.may_leave:
        member.on_leave()
    else:
        os.kill(os.getpid(), signal.SIGTERM)
