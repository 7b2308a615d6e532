"""The spawner's main loop: receives orders, forks, forwards output, reaps, and kills processes that do not end on
request.

Single-threaded: one selector waits for all file descriptors.
"""

import contextlib
import errno
import os
import selectors
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from controlplane.protocol.messages import Line, ProcessName
from controlplane.protocol.orders import ProcessOrder
from workers.setup import Setup
from workers.spawner import child
from workers.spawner.lines import Lines
from workers.spawner.messages import Channel, Ended, Start, Started, Stop, ToSpawner, Wrote
from workers.table import name_of

GRACE_S = 5.0
"""Grace time for processes when the spawner itself is requested to end."""
CANNOT_FORK = 71
"""Exit status of a process that could not be forked (EX_OSERR)."""
log = structlog.get_logger("spawner")
process_log = structlog.get_logger("process")


@dataclass(slots=True)
class Child:
    """A forked process and its unread output."""

    process: ProcessName
    pid: int
    output: int
    lines: Lines
    kill_at_s: float | None = None


class SpawnerLoop:
    """Forks processes and reports their start and exit to the agent."""

    def __init__(self, channel: Channel[ToSpawner], setup: Setup, entry: child.Entry) -> None:
        self._channel, self._setup, self._entry = channel, setup, entry
        self._children: dict[ProcessName, Child] = {}
        self._ending = False
        self._wake_read, self._wake_write = os.pipe()
        for descriptor in (self._wake_read, self._wake_write):
            os.set_blocking(descriptor, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ, self._take_orders)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._take_signals)

    def run(self, pending: Sequence[ToSpawner] = ()) -> None:
        """Serve, ``pending`` first, until requested to end or the agent is gone. In the latter case running processes
        are killed.
        """
        self._listen_to_signals()
        try:
            self._obey(pending)
            while not (self._ending and not self._children):
                for key, _ in self._selector.select(self._patience_s()):
                    key.data()
                self._reap()
                self._kill_overdue()
        except (EOFError, BrokenPipeError):
            self._kill_all()

    def _take_orders(self) -> None:
        self._obey(self._channel.receive())

    def _obey(self, messages: Sequence[ToSpawner]) -> None:
        for message in messages:
            match message:
                case Start():
                    self._start(message.order)
                case Stop():
                    self._stop(message.process, message.grace_s)

    def _take_signals(self) -> None:
        """Bytes of the wake-up pipe are signal numbers. SIGCHLD needs no action: every iteration of the loop reaps."""
        numbers = os.read(self._wake_read, 4096)
        if signal.SIGTERM in numbers and not self._ending:
            self._ending = True
            for process in list(self._children):
                self._stop(process, GRACE_S)

    def _start(self, order: ProcessOrder) -> None:
        process = name_of(order)
        if process in self._children or self._ending:
            return
        read, write = os.pipe()
        cradle = child.Cradle(output=write, parent_pid=os.getpid(), let_go=lambda: self._abandon(read))
        # A signal between fork and the child's own handlers would be lost in the spawner's handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
        try:
            pid = os.fork()
            if pid == 0:
                child.become(order, self._setup, self._entry, cradle)
        except OSError as error:
            os.close(read)
            os.close(write)
            self._channel.send(Ended(process=process, status=CANNOT_FORK, tail=f"could not be forked: {error}"))
            return
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGCHLD})
        _lead_group(pid)
        os.close(write)
        os.set_blocking(read, False)
        secrets = [order.key, *([order.script.token] if order.script is not None else [])]
        self._children[process] = forked = Child(process, pid, read, Lines(secrets=secrets))
        self._selector.register(read, selectors.EVENT_READ, lambda: self._pass_on(forked))
        self._channel.send(Started(process=process, pid=pid))

    def _stop(self, process: ProcessName, grace_s: float) -> None:
        if running := self._children.get(process):
            if running.kill_at_s is None:
                _signal(running.pid, signal.SIGTERM)
            running.kill_at_s = min(running.kill_at_s or float("inf"), time.monotonic() + grace_s)

    def _pass_on(self, running: Child) -> bool:
        """Read some output, show it and forward it; return whether there may be more."""
        try:
            piece = os.read(running.output, 1 << 16)
        except BlockingIOError:
            return False
        if not piece:
            with contextlib.suppress(KeyError):
                self._selector.unregister(running.output)
            return False
        found = running.lines.take(piece)
        for line, fields in found:
            _show(line, fields)
        if lines := running.lines.allowed([line for line, _ in found], time.monotonic()):
            self._channel.send(Wrote(process=running.process, lines=lines))
        return True

    def _reap(self) -> None:
        """Waits only for its own children, each by pid, so that no other exit status is consumed."""
        for running in list(self._children.values()):
            pid, status = os.waitpid(running.pid, os.WNOHANG)
            if pid:
                _signal(pid, signal.SIGKILL)  # what it has started: a group's number is reserved while it has members
                self._report_lost(running, os.waitstatus_to_exitcode(status))

    def _report_lost(self, running: Child, status: int) -> None:
        while self._pass_on(running):
            pass
        with contextlib.suppress(KeyError):
            self._selector.unregister(running.output)
        os.close(running.output)
        del self._children[running.process]
        self._channel.send(Ended(process=running.process, status=status, tail=running.lines.end()))

    def _kill_overdue(self) -> None:
        now_s = time.monotonic()
        for running in self._children.values():
            if running.kill_at_s is not None and running.kill_at_s <= now_s:
                log.warning(f"{running.process.role} {running.process.index} did not end when asked: killed")
                _signal(running.pid, signal.SIGKILL)
                running.kill_at_s = float("inf")

    def _kill_all(self) -> None:
        for running in self._children.values():
            _signal(running.pid, signal.SIGKILL)
        for running in self._children.values():
            os.waitpid(running.pid, 0)

    def _patience_s(self) -> float | None:
        """Time until something has to be done, if no event occurs."""
        deadlines = [running.kill_at_s for running in self._children.values() if running.kill_at_s is not None]
        first_s = min(deadlines, default=float("inf"))
        return None if first_s == float("inf") else max(0.0, first_s - time.monotonic())

    def _listen_to_signals(self) -> None:
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _abandon(self, read: int) -> None:
        """In a fork: close all descriptors of the spawner."""
        self._selector.close()
        self._channel.abandon()
        for descriptor in (read, self._wake_read, self._wake_write, *(each.output for each in self._children.values())):
            os.close(descriptor)


def _show(line: Line, fields: dict[str, Any]) -> None:
    """Write output to the agent's standard error: log lines as structured ones, anything else unchanged."""
    if fields:
        shown = {key: value for key, value in fields.items() if key not in ("level", "timestamp", "event", "exception")}
        event = line.text if "exception" in fields else str(fields.get("event", ""))
        getattr(process_log, line.level if line.level != "output" else "info")(event, **shown)
        return
    with contextlib.suppress(OSError):
        os.write(2, line.text.encode(errors="replace") + b"\n")


def _lead_group(pid: int) -> None:
    """Make a fork the leader of its own process group: it ends together with what it starts."""
    with contextlib.suppress(OSError):  # it has ended, or done so itself
        os.setpgid(pid, pid)


def _signal(pid: int, number: int) -> None:
    """Signal a fork and all processes of its group. The number cannot have been reused: it is reserved until the fork
    is reaped and its group is empty.
    """
    try:
        os.killpg(pid, number)
    except OSError as error:
        if error.errno != errno.ESRCH:
            raise
