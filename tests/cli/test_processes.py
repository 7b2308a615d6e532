"""A command under ``run`` gets its signals, and its exit code is handed on."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paceline.cli.errors import Refusal
from paceline.cli.processes import ending, run
from tests.architecture.sources import ROOT
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

CHILD = """
import signal, sys, time
def hear(number, frame):
    print(signal.Signals(number).name, flush=True)
    if number != signal.SIGUSR1:
        sys.exit(7)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, hear)
print("ready", flush=True)
time.sleep(60)
"""
PARENT = f"""
import os, sys
from paceline.cli.processes import run
sys.exit(run([sys.executable, "-c", {CHILD!r}], os.environ))
"""


@contextmanager
def started(folder: Path) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    output = folder / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", PARENT], stdin=subprocess.DEVNULL, stdout=file, cwd=ROOT, start_new_session=True
        )
    try:
        eventually(lambda: "ready\n" in output.read_text(), what="the command's start")
        yield process, output
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_reaches_the_command_whose_code_is_handed_on(number: signal.Signals, tmp_path: Path) -> None:
    with started(tmp_path) as (process, output):
        process.send_signal(signal.SIGUSR1)
        eventually(lambda: "SIGUSR1\n" in output.read_text(), what="the first signal")
        process.send_signal(number)
        assert process.wait(timeout=30) == 7
    assert output.read_text().split() == ["ready", "SIGUSR1", number.name]


def test_the_end_by_a_signal_is_a_code_as_in_shells() -> None:
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert run([sys.executable, "-c", killed], os.environ) == 137
    assert run([sys.executable, "-c", "raise SystemExit(3)"], os.environ) == 3
    assert [ending(code) for code in (0, 3, 137, 255)] == ["", "", "ended by SIGKILL", ""]


def test_a_command_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"^/nowhere: there is no such command$") as caught:
        run(["/nowhere"], os.environ)
    assert caught.value.code == 127
    plain = tmp_path / "plain"
    plain.write_text("")
    with pytest.raises(Refusal, match=r"plain: cannot be run \(Permission denied\)$") as caught:
        run([str(plain)], os.environ)
    assert caught.value.code == 126


def test_handlers_are_as_they_were_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    run([sys.executable, "-c", ""], os.environ)
    assert signal.getsignal(signal.SIGTERM) is before
