"""Code that runs in a fork: detaches from the spawner, runs the process's entry point, and exits without returning."""

import contextlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from controlplane.protocol.orders import ProcessOrder
from workers import logs
from workers.setup import Setup
from workers.spawner.lineage import call_me, die_with

Entry = Callable[[ProcessOrder, Setup], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cradle:
    """What a fork inherits: its output (a file descriptor), its parent process, and a function that closes the rest."""

    output: int
    parent_pid: int
    let_go: Callable[[], None]


def become(order: ProcessOrder, setup: Setup, entry: Entry, cradle: Cradle) -> NoReturn:
    """Run ``entry`` and exit with its status, or with 1 and a traceback. Never raises: there
    is no caller to return to.
    """
    status = 1
    try:
        os.setpgid(0, 0)
        _reset_signals()
        die_with(cradle.parent_pid)
        cradle.let_go()
        call_me(f"pl {order.role[0]}{order.index} job {order.job}")
        _redirect(cradle.output)
        logs.configure_child()
        status = entry(order, setup)
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        _leave(status)


def _reset_signals() -> None:
    """Reset the spawner's signal handlers and mask. Ctrl-C is handled by the agent, which then requests this process to
    end.
    """
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def _redirect(output: int) -> None:
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)


def _leave(status: int) -> NoReturn:
    """Exit without the exit handlers of the spawner."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(status)
