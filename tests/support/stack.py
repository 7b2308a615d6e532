"""A running control plane with machines, as a user would have it, for tests from the outside."""

import secrets
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from controlplane.runtime.embedded.control_plane import ControlPlane, start_control_plane, start_part
from controlplane.runtime.embedded.ground import free_port
from controlplane.runtime.embedded.interruption import Interruption
from controlplane.runtime.embedded.joining import let_in, start_agent
from controlplane.runtime.embedded.processes import Service
from controlplane.runtime.embedded.supervisor import Supervisor
from tests.support.waiting import eventually

SPEEDS = (1000.0, 1000.0, 500.0, 250.0)
SERVER_SLOTS = 4
USER = "tester"
PRIVATE = {"REDIS_URL": "", "DATABASE_URL": "", "SECRET_KEY": "", "PACELINE_STATIC_ROOT": "", "LOG_LEVEL": "INFO"}


@dataclass(slots=True, kw_only=True)
class Stack:
    """Where it is, and how to get in."""

    url: str
    user: str
    password: str
    token: str
    client: httpx.Client
    """Speaks to ``url`` with ``token``; paths begin with ``/api/v1/``."""
    folder: Path
    plane: ControlPlane
    environment: Mapping[str, str]
    supervisor: Supervisor
    replaced: dict[str, Service] = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)
    """Jobs that go on when the test that uses them is over."""

    def submit(self, **spec: Any) -> dict[str, Any]:
        """Submit a job: a short softmax regression but for what is given."""
        document = {
            "name": "test",
            "workload": {"name": "softmax-regression", "dataset": "digits"},
            "workers": 4,
            "servers": 2,
            "batch_size": 16,
            "evaluate": {"every": 10},
            "stop": {"iterations": 20},
            "seed": 7,
        } | spec
        return self.ask("POST", "/api/v1/jobs", json=document)

    def ask(self, method: str, path: str, **options: Any) -> Any:
        """The JSON of a request that must succeed."""
        reply = self.client.request(method, path, **options)
        assert reply.is_success, f"{method} {path}: {reply.status_code} {reply.text}"
        return reply.json()

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
            assert not job["is_over"], f"job {number} ended {job['state']} before iteration {iteration}"
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
            self.stop(number)

    def service(self, name: str) -> Service:
        """The running service of that name."""
        return self.replaced.get(name) or next(s for s in self.supervisor.services if s.name == name)

    def kill(self, name: str) -> None:
        """End a service as a crash would."""
        process = self.service(name).process
        process.send_signal(signal.SIGKILL)
        process.wait()

    def restart(self, name: str) -> None:
        """Start a service that was killed."""
        self.replaced[name] = start_part(self.plane, name, self.environment)
        self.supervisor.add(self.replaced[name])


@contextmanager
def running_stack(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Stack]:
    """Start everything in ``folder`` and wait until the machines are there."""
    plane = ControlPlane(folder=folder, port=free_port(), settings={**PRIVATE, **(settings or {})})
    password = secrets.token_urlsafe(16)
    with Supervisor(Interruption()) as supervisor:
        environment, _ = start_control_plane(plane, supervisor)
        access = let_in(USER, role="admin", environment=environment, password=password)
        headers = {"Authorization": f"Bearer {access.token}"}
        with httpx.Client(base_url=plane.url, headers=headers, timeout=20.0, trust_env=False) as client:
            stack = Stack(
                url=plane.url,
                user=USER,
                password=password,
                token=access.token,
                client=client,
                folder=folder,
                plane=plane,
                environment=environment,
                supervisor=supervisor,
            )
            _join(stack)
            yield stack


def _join(stack: Stack) -> None:
    agent = start_agent(
        stack.url,
        stack.ask("POST", "/api/v1/agents/enrolment-tokens", json={})["token"],
        name="machines",
        folder=stack.folder / "agent",
        speeds=SPEEDS,
        server_slots=SERVER_SLOTS,
        log=stack.plane.logs / "agent.log",
    )
    stack.supervisor.add(agent)
    stack.supervisor.wait_until(
        lambda: any(row["state"] == "online" for row in stack.ask("GET", "/api/v1/agents")["results"]),
        what="The machines' joining",
        seconds=60,
    )
