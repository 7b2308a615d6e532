"""A running control plane with machines, as a user would have it, for tests from the outside."""

import secrets
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import httpx
import psutil

from controlplane.runtime.embedded.control_plane import ControlPlane, is_ready, parts, start_control_plane, start_part
from controlplane.runtime.embedded.errors import CannotStart
from controlplane.runtime.embedded.ground import free_port
from controlplane.runtime.embedded.interruption import Interruption
from controlplane.runtime.embedded.joining import let_in, start_agent
from controlplane.runtime.embedded.processes import Service
from controlplane.runtime.embedded.supervisor import Supervisor
from tests.support.databases import copy_database
from tests.support.waiting import eventually

SPEEDS = (1000.0, 1000.0, 500.0, 250.0)
SERVER_SLOTS = 4
USER = "tester"
MACHINES = "machines"
ENDLESS = 1_000
"""Iterations of a job that a test does not wait for to the end."""
CALM = {"samples_per_second": 160}
"""Ten iterations per second with batches of 16."""
PRIVATE = {"REDIS_URL": "", "DATABASE_URL": "", "SECRET_KEY": "", "PACELINE_STATIC_ROOT": "", "LOG_LEVEL": "INFO"}


class Broken(AssertionError):
    """The control plane was not as a test found it, and what was done about that."""


class Stack:
    """Where it is, and how to get in. One object for all tests, whatever becomes of the control plane behind it."""

    url: str
    user = USER
    password: str
    token: str
    client: httpx.Client
    """Speaks to ``url`` with ``token``; paths begin with ``/api/v1/``."""
    folder: Path
    plane: ControlPlane
    environment: Mapping[str, str]
    supervisor: Supervisor

    def __init__(self, root: Path, settings: Mapping[str, str], migrated: Path | None = None) -> None:
        """``migrated``: a database to copy, so that only a test of the start itself migrates an empty one."""
        self._root, self._settings, self._migrated = root, settings, migrated
        self._running = ExitStack()
        self._planes = 0
        self.kept: set[int] = set()
        """Jobs that continue when the test that uses them is over."""

    def begin(self) -> None:
        """Start a control plane in a folder of its own, with a user and machines."""
        self._planes += 1
        self.kept.clear()
        self.folder = self._root / f"plane-{self._planes}"
        self.folder.mkdir()
        if self._migrated is not None and self._migrated.exists():
            copy_database(self._migrated, self.folder / "paceline.sqlite3")
        self.plane = ControlPlane(folder=self.folder, port=free_port(), settings={**PRIVATE, **self._settings})
        self.url, self.password = self.plane.url, secrets.token_urlsafe(16)
        with ExitStack() as starting:
            self.supervisor = starting.enter_context(Supervisor(Interruption()))
            self.environment, _ = start_control_plane(self.plane, self.supervisor)
            access = let_in(USER, role="admin", environment=self.environment, password=self.password)
            self.token = access.token
            headers = {"Authorization": f"Bearer {access.token}"}
            self.client = starting.enter_context(
                httpx.Client(base_url=self.url, headers=headers, timeout=60.0, trust_env=False)
            )
            self.supervisor.add(self._agent())
            self._await_machines()
            self._running = starting.pop_all()

    def end(self) -> None:
        """End all of it."""
        self._running.close()

    def make_whole(self) -> list[str]:
        """Restart services that have ended, resume suspended ones, and wait until the plane answers.

        Returns:
            what was amiss: nothing, where all of it ran.

        Raises:
            Broken: if that was not enough; there is a new control plane then, in which nothing has happened yet.
        """
        amiss = []
        try:
            for service in self.supervisor.services:
                if service.is_over():
                    amiss.append(f"{service.name} {service.ending()}")
                    self.supervisor.replace(service, self._successor(service))
                elif _resumed(service):
                    amiss.append(f"{service.name} stood still")
            if amiss:
                self.supervisor.wait_until(lambda: is_ready(self.url), what="The control plane's return", seconds=60)
                self._await_machines()
        except (CannotStart, httpx.HTTPError, AssertionError) as error:
            self.renew([*amiss, f"{error}"])
        return amiss

    def renew(self, reasons: Sequence[str]) -> NoReturn:
        """Put a new control plane in the place of this one.

        Raises:
            Broken: always, with the ``reasons``.
        """
        self.end()
        self.begin()
        raise Broken(f"the control plane was replaced by a new one: {'; '.join(reasons)}")

    def leave(self) -> None:
        """What is due after each test: the plane whole, its machines free.

        Raises:
            Broken: if the test left it otherwise; it is whole again for the next.
        """
        amiss = self.make_whole()
        try:
            self.stop_what_is_left()
        except (httpx.HTTPError, AssertionError) as error:
            self.renew([*amiss, f"{error}"])
        if amiss:
            raise Broken(f"the test left the control plane broken, which was repaired: {'; '.join(amiss)}")

    def submit(self, **spec: Any) -> dict[str, Any]:
        """Submit a job: a short softmax regression but for what is given.

        One that a test ends itself has ``CALM`` workers, since others train beside it.
        """
        document: dict[str, Any] = {
            "name": "test",
            "workload": {"name": "softmax-regression", "dataset": "digits"},
            "workers": 4,
            "servers": 2,
            "batch_size": 16,
            "evaluate": {"every": 10},
            "stop": {"iterations": 20},
            "seed": 7,
        } | spec
        if document["stop"].get("iterations", 0) >= ENDLESS and "emulate" not in document:
            document["emulate"] = [CALM] * document["workers"]
        return self.ask("POST", "/api/v1/jobs", json=document)

    def ask(self, method: str, path: str, **options: Any) -> Any:
        """The JSON of a request that must succeed."""
        reply = self.client.request(method, path, **options)
        assert reply.is_success, f"{method} {path}: {reply.status_code} {reply.text}"
        return reply.json()

    def rows(self, path: str) -> list[dict[str, Any]]:
        """Every row of a list, over all its pages."""
        rows: list[dict[str, Any]] = []
        following: str | None = path
        while following:
            page = self.ask("GET", following)
            rows += page["results"]
            following = page["next"]
        return rows

    def job(self, number: int) -> dict[str, Any]:
        """The job as it is now."""
        found: dict[str, Any] = self.ask("GET", f"/api/v1/jobs/{number}")
        return found

    def await_job(self, number: int, *states: str, seconds: float = 60.0) -> dict[str, Any]:
        """The job, once it is in one of ``states``; by default, once it is over."""

        def look() -> dict[str, Any] | None:
            job = self.job(number)
            reached = job["state"] in states if states else job["is_over"]
            assert reached or not job["is_over"], f"job {number} ended {job['state']}: {job['reason']}"
            return job if reached else None

        found = eventually(look, what=f"job {number} {' or '.join(states) or 'over'}", seconds=seconds, every=0.1)
        assert found is not None
        return found

    def await_iteration(self, number: int, iteration: int, *, seconds: float = 60.0) -> dict[str, Any]:
        """The job, once it has come so far."""

        def look() -> dict[str, Any] | None:
            job = self.job(number)
            assert not job["is_over"], (
                f"job {number} ended {job['state']} before iteration {iteration}: {job['reason']}"
            )
            return job if job["iteration"] >= iteration else None

        found = eventually(look, what=f"iteration {iteration} of job {number}", seconds=seconds, every=0.1)
        assert found is not None
        return found

    def stop(self, number: int) -> None:
        """Stop the job, and see it stop."""
        self.ask("POST", f"/api/v1/jobs/{number}/actions/stop")
        self.await_job(number, "cancelled")

    def stop_what_is_left(self) -> None:
        """Stop every job that is not ``kept``, so that its machines are free."""
        left = [row["id"] for row in self.ask("GET", "/api/v1/jobs")["results"] if not row["is_over"]]
        for number in set(left) - self.kept:
            self.client.post(f"/api/v1/jobs/{number}/actions/stop")  # refused where it has ended meanwhile
            eventually(lambda number=number: self.job(number)["is_over"], what=f"the end of job {number}", every=0.1)

    def service(self, name: str) -> Service:
        """The running service of that name."""
        return next(service for service in self.supervisor.services if service.name == name)

    def kill(self, name: str) -> None:
        """End a service as a crash would."""
        process = self.service(name).process
        process.send_signal(signal.SIGKILL)
        process.wait()

    def restart(self, name: str) -> None:
        """Start a service that was killed."""
        killed = self.service(name)
        self.supervisor.replace(killed, self._successor(killed))

    def _successor(self, service: Service) -> Service:
        """The same service once more.

        Raises:
            CannotStart: if it is none that can be started alone.
        """
        if service.name in parts(self.plane):
            return start_part(self.plane, service.name, self.environment)
        if service.name == f"agent {MACHINES}":
            return self._agent()
        raise CannotStart(f"{service.name} cannot be started again by itself")

    def _agent(self) -> Service:
        return start_agent(
            self.url,
            self.ask("POST", "/api/v1/agents/enrolment-tokens", json={"name": MACHINES})["token"],
            name=MACHINES,
            folder=self.folder / "agent",
            speeds=SPEEDS,
            server_slots=SERVER_SLOTS,
            log=self.plane.logs / "agent.log",
        )

    def _await_machines(self) -> None:
        self.supervisor.wait_until(self._machines_are_there, what="The enrolment of the machines", seconds=60)

    def _machines_are_there(self) -> bool:
        return any(row["state"] == "online" for row in self.ask("GET", "/api/v1/agents")["results"])


def _resumed(service: Service) -> bool:
    """Whether the service, or a process of it, stood still; now none does."""
    stood = False
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(service.process.pid)
        for process in (parent, *parent.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                if process.status() == psutil.STATUS_STOPPED:
                    process.resume()
                    stood = True
    return stood


@contextmanager
def running_stack(
    folder: Path, settings: Mapping[str, str] | None = None, *, migrated: Path | None = None
) -> Iterator[Stack]:
    """Start everything in ``folder`` and wait until the machines are there."""
    stack = Stack(folder, settings or {}, migrated)
    stack.begin()
    try:
        yield stack
    finally:
        stack.end()
