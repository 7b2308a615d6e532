"""``paceline run`` that is killed with its ranks: its job does not wait for them for long, and says why it ended."""

import os
import signal
import sys
import time
from contextlib import ExitStack
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


CASES = {
    "import time; time.sleep(300)": ("starting", "no rank said hello"),
    RANK: ("running", "its ranks are gone"),
}
"""Each script: the state of its job while its launcher runs, and whom the job misses afterwards."""


def test_jobs_end_once_their_launchers_and_all_ranks_were_killed(stack: Stack, tmp_path: Path) -> None:
    environment = {"PACELINE_URL": stack.url, "PACELINE_API_TOKEN": stack.token}
    launched: dict[int, tuple[str, str]] = {}
    family: list[int] = []
    with ExitStack() as running_commands:
        commands = []
        for place, script in enumerate(CASES):
            folder = tmp_path / f"launcher-{place}"
            folder.mkdir()
            arguments = ["run", "--lease", str(LEASE_S), "--", sys.executable, "-c", script]
            program = [sys.executable, "-m", "paceline"]
            commands.append(
                running_commands.enter_context(running(folder, *arguments, program=program, environment=environment))
            )
        for command, case in zip(commands, CASES.values(), strict=True):
            command.await_word("paceline: job ")
            number = int(command.said().split("paceline: job ")[1].split()[0])
            launched[number] = case
            stack.await_job(number, case[0])
        kept_s = time.monotonic() + 1.2 * LEASE_S

        def are_kept() -> bool:
            """Longer than the lease: nothing but its renewal keeps a job that no rank has come to."""
            assert {number: stack.job(number)["state"] for number in launched} == {
                number: state for number, (state, _) in launched.items()
            }
            return time.monotonic() > kept_s

        eventually(are_kept, what="leases that were renewed", every=0.5)
        for command in commands:
            parent = command.process.pid
            family += [parent, *(each.pid for each in psutil.Process(parent).children(True))]
        killed_s = time.monotonic()
        for pid in family:
            os.kill(pid, signal.SIGKILL)
    for number, (_, who) in launched.items():
        ended = stack.await_job(number, "failed", seconds=90)
        assert time.monotonic() - killed_s < 60
        assert "its launcher has not renewed its lease for" in ended["reason"]
        assert f"(lease_s is {LEASE_S}), and {who}: it was killed" in ended["reason"]
    eventually(lambda: not any(psutil.pid_exists(pid) for pid in family), what="no process of the scripts")
