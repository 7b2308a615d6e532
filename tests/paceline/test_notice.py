"""A launcher's signal before the end: heard by the rank, survived by what the rank has started."""

import subprocess
import sys

import pytest

from paceline.errors import CannotAttach
from paceline.notice import never, notice_by

SCRIPT = """
import os, signal, subprocess, sys, threading, time
waits = threading.Thread(target=time.sleep, args=(30,), daemon=True)
if sys.argv[1] == "before":  # as those of a library that was there first
    waits.start()
from paceline.notice import notice_by
if sys.argv[1] == "blocked":  # from the start, as by `paceline slurm rank`: then any thread may ask
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    waits.start()
    made = []
    asks = threading.Thread(target=lambda: made.append(notice_by("SIGUSR1")))
    asks.start()
    asks.join()
    (came,) = made
else:
    came = notice_by("USR1")
child = subprocess.Popen([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(30)"], stdout=-1)
child.stdout.readline()
os.kill(child.pid, signal.SIGUSR1)
os.kill(os.getpid(), signal.SIGUSR1)
deadline = time.monotonic() + 20
while not came() and time.monotonic() < deadline:
    time.sleep(0.01)
print(came(), child.poll())
child.kill()
"""


@pytest.mark.parametrize("threads", ["before", "none", "blocked"])
def test_the_signal_is_received_and_ends_neither_the_rank_nor_its_children(threads: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, threads], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "True None\n"), done.stderr


def test_without_a_name_nothing_is_listened_for() -> None:
    assert notice_by("") is never
    assert not never()


def test_what_is_no_signal_is_refused_with_an_example() -> None:
    with pytest.raises(CannotAttach, match="'KILLER'; give the name of a signal, such as USR1"):
        notice_by("KILLER")
