"""``paceline run`` that is killed with its ranks: its job does not wait for them for long, and says why it ended."""

import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support.commands import running
from tests.support.stack import Stack
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

LEASE_S = 10
RANK = """
import time, torch, paceline
pacer = paceline.attach()
for _ in range(10_000):
    for _ in pacer.loader(list(range(64)), 8):
        time.sleep(0.05)
        pacer.step(1.0)
"""


@pytest.mark.parametrize(
    ("script", "state", "who"),
    [("import time; time.sleep(300)", "starting", "no rank said hello"), (RANK, "running", "its ranks are gone")],
)
def test_a_job_ends_once_its_launcher_and_all_ranks_were_killed(
    stack: Stack, tmp_path: Path, script: str, state: str, who: str
) -> None:
    arguments = ["run", "--lease", str(LEASE_S), "--", sys.executable, "-c", script]
    environment = {"PACELINE_URL": stack.url, "PACELINE_API_TOKEN": stack.token}
    with running(tmp_path, *arguments, program=[sys.executable, "-m", "paceline"], environment=environment) as command:
        command.await_word("paceline: job ")
        number = int(command.said().split("paceline: job ")[1].split()[0])
        stack.await_job(number, state)
        kept_s = time.monotonic() + 1.2 * LEASE_S

        def is_kept() -> bool:
            """Longer than the lease: nothing but its renewal keeps a job that no rank has come to."""
            assert stack.job(number)["state"] == state
            return time.monotonic() > kept_s

        eventually(is_kept, what="a lease that was renewed", every=0.5)
        family = [command.process.pid, *(each.pid for each in psutil.Process(command.process.pid).children(True))]
        killed_s = time.monotonic()
        for pid in family:
            os.kill(pid, signal.SIGKILL)
    ended = stack.await_job(number, "failed", seconds=90)
    assert time.monotonic() - killed_s < 60
    assert "its launcher has not renewed its lease for" in ended["reason"]
    assert f"(lease_s is {LEASE_S}), and {who}: it was killed" in ended["reason"]
    eventually(lambda: not any(psutil.pid_exists(pid) for pid in family), what="no process of the script")
