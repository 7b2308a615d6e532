"""Ends processes with their agent: the kernel's parent-death signal on Linux, a watching thread elsewhere."""

import ctypes
import os
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_WATCH_S = 0.5


def die_with(parent_pid: int) -> None:
    """From now on this process is killed when its parent ends; immediately if that has already happened.

    On Linux the signal is sent when the *thread* that forked this process ends, so that must be the parent's main
    thread.
    """
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    else:
        threading.Thread(target=_watch, args=(parent_pid,), name="lineage", daemon=True).start()
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


def call_me(name: str) -> None:
    """Show ``name`` (15 bytes of it) in process lists, if the system supports it."""
    if sys.platform == "linux":
        _prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]))


def thread_count() -> int:
    """Threads of this process, including those unknown to Python; 1 if they cannot be counted."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


def _prctl(option: int, argument: int | ctypes.c_char_p) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, argument, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def _watch(parent_pid: int) -> None:
    never = threading.Event()
    while os.getppid() == parent_pid:
        never.wait(_WATCH_S)
    os.kill(os.getpid(), signal.SIGKILL)
