"""One connection per machine, live: its processes speak through their agent, and outlive its faults."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from controlplane.runtime.embedded.control_plane import CHECKOUT, MANAGE
from controlplane.runtime.embedded.joining import start_agent
from controlplane.runtime.embedded.processes import Service, stop_services
from tests.integration.test_elastic import lives, process_of
from tests.integration.test_jobs import reports
from tests.support.stack import Stack
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

LABELS = {"relay": "yes"}
ON_IT: dict[str, Any] = {"workers": 2, "servers": 1, "labels": LABELS, "checkpoint": {"every": 10}}


class Machine:
    """A machine of a test's own; its agent can be killed and started again."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self._stack, self._folder = stack, folder
        asked = {"name": folder.name, "labels": LABELS}
        self._token = stack.ask("POST", "/api/v1/agents/enrolment-tokens", json=asked)["token"]
        self.start()

    def start(self) -> None:
        """Start its agent, which keeps its credential."""
        self.service: Service = start_agent(
            self._stack.url,
            self._token,
            name=self._folder.name,
            folder=self._folder,
            speeds=[400.0] * 2,
            server_slots=1,
            log=self._folder.with_suffix(".log"),
            relays=True,
        )

    def send(self, number: signal.Signals) -> None:
        """A signal to its agent alone."""
        os.kill(self.service.process.pid, number)

    def is_online(self) -> bool:
        rows = self._stack.ask("GET", "/api/v1/agents?page_size=200")["results"]
        return any(row["name"] == self._folder.name and row["state"] == "online" for row in rows)


@contextmanager
def machine(stack: Stack, folder: Path) -> Iterator[Machine]:
    running = Machine(stack, folder)
    try:
        eventually(running.is_online, what="the machine", seconds=60)
        yield running
    finally:
        running.send(signal.SIGCONT)
        stop_services([running.service])


def to_control_plane(process: psutil.Process, stack: Stack) -> int:
    """How many connections the process has to the control plane."""
    port = int(stack.url.rpartition(":")[2])
    return sum(bool(found.raddr) and found.raddr.port == port for found in process.net_connections("inet"))


def messages(stack: Stack, job: int) -> set[tuple[str, int, int | None]]:
    """The instance, number and iteration (of reports) of every message in the database.

    What it did not have yet was said again, so the log may have a message twice; whatever counts has it once.
    """
    rows = stack.rows(f"/api/v1/jobs/{job}/events?page_size=500")
    said = [(row["kind"], row["event"]) for row in rows if "message" in row["event"]]
    return {
        (event["instance"], event["message"]["number"], event["message"]["iteration"] if kind == "report" else None)
        for kind, event in said
    }


def numbers_of(said: set[tuple[str, int, int | None]]) -> dict[str, list[int]]:
    """The numbers of each instance's messages, in order."""
    instances = {instance for instance, _, _ in said}
    return {each: sorted(number for instance, number, _ in said if instance == each) for each in instances}


def replayed(stack: Stack, job: int) -> str:
    """What a replay of the job says."""
    done = subprocess.run(
        [*MANAGE, "replay", str(job)],
        env=dict(stack.environment),
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-1000:]
    return done.stdout


def test_no_process_of_a_machine_has_a_connection_of_its_own(stack: Stack, tmp_path: Path) -> None:
    with machine(stack, tmp_path / "joint") as joint:
        job = stack.submit(**ON_IT, stop={"iterations": 100_000})["id"]
        stack.await_iteration(job, 10, seconds=120)
        processes = [process_of(job, title) for title in ("w0", "w1", "s0")]
        assert [to_control_plane(process, stack) for process in processes] == [0, 0, 0]
        assert to_control_plane(psutil.Process(joint.service.process.pid), stack) == 2
        stack.stop(job)


@pytest.mark.timeout(400)
def test_an_agent_that_hangs_cuts_no_process_off(stack: Stack, tmp_path: Path) -> None:
    with machine(stack, tmp_path / "hanging") as hanging:
        job = stack.submit(**ON_IT, stop={"iterations": 200})["id"]
        reached = stack.await_iteration(job, 10, seconds=120)["iteration"]
        hanging.send(signal.SIGSTOP)
        stack.await_iteration(job, reached + 20, seconds=9)
        hanging.send(signal.SIGCONT)
        done = stack.await_job(job, "succeeded", seconds=150)
        assert (done["iteration"], done["samples"]) == (200, 200 * 32)
        assert [len(lives(stack, job, title)) for title in ("w0", "w1", "s0")] == [1, 1, 1]
        assert set(reports(stack, job)) == {(rank, k) for rank in range(2) for k in range(200)}
        assert "all decisions equal the recorded ones" in replayed(stack, job)


@pytest.mark.timeout(400)
def test_a_killed_agent_loses_and_doubles_nothing_of_what_its_machine_trains(stack: Stack, tmp_path: Path) -> None:
    with machine(stack, tmp_path / "mortal") as mortal:
        job = stack.submit(**ON_IT, stop={"iterations": 150})["id"]
        stack.await_iteration(job, 30, seconds=120)
        mortal.send(signal.SIGKILL)
        mortal.service.process.wait()
        mortal.start()
        assert stack.await_job(job, "succeeded", seconds=200)["iteration"] == 150
        assert [len(lives(stack, job, title)) for title in ("w0", "w1", "s0")] == [2, 2, 2]
        said = messages(stack, job)
        for instance, numbers in numbers_of(said).items():
            assert numbers == list(range(1, len(numbers) + 1)), instance
        reported = [(instance, iteration) for instance, _, iteration in said if iteration is not None]
        assert len(set(reported)) == len(reported)
        assert "all decisions equal the recorded ones" in replayed(stack, job)
