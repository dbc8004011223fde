"""The program of a node of a live run: ``python -m geomx.live``.

It joins the scheduler, or is the scheduler, gets the experiment from it, runs its node, and writes
notes and a log. It ends when the run ends, when the run loses a node that it needs, on SIGINT or
SIGTERM, and when its launcher dies. On SIGUSR1 it leaves the run while others continue: a worker
after its next step, a local server at once.

Environment variables: GEOMX_TOKEN is the secret of the run (as an argument, it would be visible in
lists of processes); GEOMX_TLS is the folder of the certificates; without certificates,
GEOMX_INSECURE=1 allows connections from other machines.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from geomx import _core
from geomx.errors import GeomxError, NodeLost, refused_file
from geomx.experiment.rounds import may_lack_some
from geomx.limits.rules import Calls, memory_limited, overdue
from geomx.limits.watchdog import own_process
from geomx.live import access, files
from geomx.live.descriptors import claimed_output, readable
from geomx.live.diagnosis import at_fault
from geomx.live.exit_status import DONE, FAILED, INTERRUPTED, LOST
from geomx.live.journal import Notes
from geomx.live.lifetime import LEAVE, tie_to_parent
from geomx.live.long_waits import LongWaits
from geomx.live.member import Member, naming_the_lost
from geomx.live.metering import meter
from geomx.live.node_arguments import parsed
from geomx.live.resumption import Resumption
from geomx.live.spec import Spec
from geomx.live.worker import LiveWorker
from geomx.results.files import write_arrays
from geomx.terminal.log import Level, tell

REFUSALS_NAMED = 100  # refused callers that the log of a node names; the C++ loop keeps no more

_GRACE_S = 1.0  # for the main thread to end after a loss or a signal; then the process exits
_WATCH_S = 0.05
MOST_TOLD = 10_000  # notices about members that a standby keeps
POLL_S = 0.02  # interval at which a standby checks whether it has taken over
_WORDS = 0  # descriptor of the pipe from the launcher: standard input
_ENDING = {signal.SIGINT, signal.SIGTERM}
_FAREWELL_S = 0.5  # for which the scheduler remains, so that all nodes receive its stop


class Node:
    """The process of a node."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._stem = Path(options.notes)
        continues = bool(options.journal) and Path(options.journal).exists()
        self._notes = Notes(self._stem, resumed=continues or options.again)
        if options.journal:
            resumption = Resumption.beside(Path(options.journal))
            _core.set_clock_ahead(resumption.ahead_s)
        if options.resumes:
            self._notes.resumes()
        if options.again and not continues:
            self._notes.again()
        self._member: Member | None = None
        self._before: tuple[Member, Notes] | None = None  # this process was a standby
        self._tells: Member | None = None  # notes changes; the main thread asks plugins whether
        self._long_waits: LongWaits | None = None  # while the run lasts
        self._interrupted = False
        self._over = False  # from then on, the process ends, and signals do not interrupt that
        self._leaves = False  # whether a signal has requested to leave before the run ends
        self._trains = self._signalled = False
        self._calls: Calls | None = None  # of plugins, in the main thread
        self._telling = threading.Lock()

    def run(self) -> int:
        """Run the node until it ends; return the exit status."""
        self._watch()
        try:
            try:
                with own_process(), memory_limited():
                    self._play()
            finally:
                self._over = True
            self._end("done")
            return DONE
        except NodeLost as lost:
            return self._failed(lost.reason) if self._is_mine(lost) else self._lost(lost)
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # a plugin may raise any
            # MXNet may turn a loss or an interruption into any exception.
            if self._interrupted or self._signalled:
                self._end("interrupted")
                return INTERRUPTED
            failure = self._member.loop.failure() if self._member else None
            if failure is not None and not self._is_mine(NodeLost(*failure)):
                return self._lost(NodeLost(*failure))
            sentence = refused_file(error) if isinstance(error, OSError) else None
            if sentence is not None:
                return self._failed(sentence)
            if not isinstance(error, GeomxError):
                traceback.print_exc()
                error = (self._member and self._member.selection.blamed(error)) or error
            return self._failed(str(error) if failure is None else failure[1])

    def _play(self) -> None:
        options, token = self._options, os.environ.get(access.TOKEN, "")
        tls, insecure = access.folder_from_environment(), access.insecure_from_environment()
        journal = self._journal()
        if journal is not None and journal.begun:
            member = self._member = Member.resume(
                journal, options.name, token, options.host, tls, insecure
            )
        elif options.experiment:
            speak = claimed_output()
            spec = Spec.from_json(Path(options.experiment).read_text(encoding="utf-8"))
            member = self._member = Member.open_scheduler(spec, token, options.host, tls, insecure)
        else:
            member = self._member = Member.join(
                options.scheduler,
                options.name,
                options.id,
                token,
                options.host,
                tls,
                options.patience,
                insecure,
                options.stands_by,
            )
        member.act_notes = self._notes
        if member.spec.faults.log_sync:
            self._notes.sync()
        if member.node.role == "worker":
            self._work(member, journal)
            return
        member.journal = journal
        member.wire()
        if member.resumed:
            self._notes.recovered(_core.clock_s())
        elif options.experiment:
            speak(member.loop.address)
        self._start(member)
        if member.copy is not None:
            self._stand_by(member, member.copy)
            return
        member.wait_stopped(self._is_leaving)
        if self._leaves:
            member.loop.leave()
        if options.experiment:
            time.sleep(_FAREWELL_S)

    def _stand_by(self, standby: Member, server: Member) -> None:
        """Wait for the end of the run, and take the place of the global server if it is lost."""
        latest: deque[Any] = deque(maxlen=MOST_TOLD)  # that the server may not have noted
        with naming_the_lost(standby.loop):
            while not server.loop.in_charge:
                latest.extend(server.loop.members())
                if standby.loop.wait_stopped(POLL_S):
                    server.loop.close()
                    return
                if (failure := server.loop.failure()) is not None:  # the server would wait on
                    raise GeomxError(failure[1])
        self._before = standby, self._notes
        self._member, self._tells = server, None
        name = files.stem(Path(), server.node.name).name
        self._notes = Notes(self._stem.with_name(name), resumed=True)
        self._notes.recovered(_core.clock_s())
        self._start(server)
        self._note_members(server, latest)
        server.wait_stopped()

    def _journal(self) -> _core.Journal | None:
        """Open the journal of this node; None: it has none."""
        if not self._options.journal:
            return None
        try:
            return _core.Journal(self._options.journal)
        except RuntimeError as error:
            raise GeomxError(str(error)) from error

    def _work(self, member: Member, journal: _core.Journal | None) -> None:
        worker = LiveWorker(member, self._notes)
        if worker.recordable:
            member.journal = journal
        member.wire()
        if member.resumed:
            self._notes.recovered(_core.clock_s())
        self._start(member)
        if self._notes.metrics is not None:
            self._notes.metrics.steps.batch_size = worker.batch_size
        self._trains = True
        worker.run()
        member.loop.leave()
        member.wait_stopped(self._is_leaving)
        parameters = worker.evaluate()
        if parameters:
            write_arrays(files.path(self._stem, ".npz"), parameters)

    def _start(self, member: Member) -> None:
        self._notes.metrics = meter(member, access.folder_from_environment())
        tells = may_lack_some(member.spec.cluster, member.selection, member.spec.faults)
        # Others load what they need meanwhile, and may be started as late as this one may join.
        member.wait_started(self._options.patience)
        self._notes.started(member.started_s)
        self._tells = member if tells else None
        self._long_waits = LongWaits(member, self._notes)

    # ---- the end ----

    def _lost(self, lost: NodeLost) -> int:
        self._log(str(lost))
        self._end("lost", lost=[lost.name, lost.reason])
        return LOST

    def _failed(self, reason: str) -> int:
        """End because of an error of this node; its log ends with the reason."""
        self._log(reason)
        self._end("failed", reason=reason)
        return FAILED

    def _log(self, text: str, level: Level = "error") -> None:
        name = self._member.node.name if self._member is not None else self._options.name
        tell(text, level, name)

    def _is_mine(self, lost: NodeLost) -> bool:
        return self._member is not None and at_fault(self._member.node.name, lost)

    def _end(self, status: str, **facts: Any) -> None:
        """Close the connections, and write the last notes: status and counts."""
        report: dict[str, Any] = {}
        if self._member is not None:
            loop = self._member.loop
            self._member.close(facts.get("reason", ""))
            self._tell_members()
            self._tell_refusals()
            self._tell_total(loop.stats()["refused_callers"])
            report = {**loop.stats(), "spans": loop.spans(), "python": _core.python_costs()}
            report["residuals"] = loop.residual_norms()
            if self._trains:  # the worker has noted its waits itself
                report["spans"] = [span for span in report["spans"] if span[1] != "wait"]
        with contextlib.suppress(OSError):  # the disk may be full; the exit status remains
            self._notes.end(status=status, **facts, **report)
            if self._before is not None:  # as a standby
                member, notes = self._before
                member.close()
                stats = {**member.loop.stats(), "spans": [], "python": _core.python_costs()}
                notes.end(status=status, **facts, **stats)

    def _watch(self) -> None:
        """Start a thread that ends this process after a signal or a loss, if it hangs."""
        inward, outward = socket.socketpair()
        inward.setblocking(False)
        signal.set_wakeup_fd(inward.fileno())
        for number in _ENDING:
            signal.signal(number, self._interrupt)
        signal.signal(LEAVE, self._leave)
        threading.Thread(target=self._watchman, args=(outward,), daemon=True).start()
        self._keep = inward

    def _interrupt(self, number: int, frame: Any) -> None:
        self._signalled = True
        if not self._over:
            self._over = True
            raise KeyboardInterrupt

    def _leave(self, number: int, frame: Any) -> None:
        """Leave the run while others continue; if that is not possible, end as on SIGTERM."""
        member = self._member
        if member is None or not member.started_s or not member.may_leave:
            os.kill(os.getpid(), signal.SIGTERM)
            return
        self._leaves = True
        member.on_leave()

    def _is_leaving(self) -> bool:
        return self._leaves

    def _watchman(self, signals: socket.socket) -> None:
        deadline: float | None = None
        sources = [signals.fileno(), *([_WORDS] if self._options.told else [])]
        while deadline is None or time.monotonic() < deadline:
            heard = readable(sources, _WATCH_S)
            loop = self._member.loop if self._member else None
            self._tell_refusals()
            self._tell_members()
            if self._long_waits is not None:
                self._long_waits.look()
            if _WORDS in heard and not self._hear_launcher():
                sources.remove(_WORDS)
            if signals.fileno() in heard and _ENDING.intersection(signals.recv(16)):
                self._interrupted = True
                deadline = deadline or time.monotonic() + _GRACE_S
                if loop is not None:
                    loop.close()
            elif deadline is None and loop is not None and loop.failure() is not None:
                deadline = time.monotonic() + _GRACE_S
            elif deadline is None and (stuck := self._stuck()):
                self._log(stuck)
                os._exit(FAILED)  # without waiting for threads, one of which hangs
        failure = loop.failure() if loop is not None else None
        if failure is not None and not self._interrupted:
            lost = NodeLost(*failure)
            os._exit(self._failed(lost.reason) if self._is_mine(lost) else self._lost(lost))
        self._end("interrupted")
        os._exit(INTERRUPTED)

    def _hear_launcher(self) -> bool:
        """Read which processes have ended; return False if the launcher has closed the pipe."""
        text = os.read(_WORDS, 65536)
        for line in text.splitlines():  # lines shorter than PIPE_BUF are written atomically
            word = json.loads(line)
            if self._member is not None:
                self._member.loop.report_ended(word["ended"], word["reason"])
        return bool(text)

    def _tell_members(self) -> None:
        """Note the changes of members since the last call."""
        if (member := self._tells) is not None:
            with self._telling:
                self._note_members(member, member.loop.members())

    def _note_members(self, member: Member, told: Iterable[Any]) -> None:
        for at_s, kind, names, *about in told:
            self._notes.member(at_s - member.started_s, kind, names, about)

    def _tell_refusals(self) -> None:
        """Log the callers refused since the last call."""
        for refusal in self._member.loop.refusals() if self._member else ():
            self._log(f"refused {refusal}", "warning")

    def _tell_total(self, refused: int) -> None:
        """Log the number of refused callers, if the log has not named all of them."""
        if refused > REFUSALS_NAMED:
            more = f"the first {REFUSALS_NAMED} are named above"
            self._log(f"refused {refused} connections in total; {more}", "warning")

    def _stuck(self) -> str | None:
        """Return an error if a plugin's call lasts almost as long as the failure timeout."""
        if self._member is None:
            return None
        limit_s = self._member.spec.runtime.failure_timeout_s
        if self._calls is None:
            self._calls = Calls(0.8 * limit_s, self._member.selection)
            self._calls.told_s = limit_s
        main = threading.main_thread().ident or 0
        found = self._calls.overdue(main, sys._current_frames().get(main))
        return " ".join(found) if found else overdue(0.8 * limit_s, limit_s)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a node; return the exit status."""
    options = parsed(arguments)
    if options.parent is not None:
        tie_to_parent(options.parent)
    return Node(options).run()
