"""A private control plane with one machine of emulated speeds, and jobs on it: for experiments with real processes."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from controlplane.runtime.embedded.control_plane import ControlPlane, start_control_plane
from controlplane.runtime.embedded.ground import free_port
from controlplane.runtime.embedded.interruption import Interruption
from controlplane.runtime.embedded.joining import let_in, start_agent
from controlplane.runtime.embedded.supervisor import Supervisor

POLL_S = 0.3
JOIN_S = 60.0
ANSWER_S = 120.0
"""How long an answer of the control plane may take: on a busy machine others wait for it, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A job that has succeeded. Seconds are of the workers' own clocks, one figure per iteration: the slowest one's."""

    job: dict[str, Any]
    iteration_s: list[float]
    decisions: list[dict[str, Any]]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """The decisions of that kind, the first one first."""
        return [row for row in self.decisions if row["kind"] == kind]

    @property
    def start_s(self) -> float:
        """From its submission until it ran: what starting its processes anew costs."""
        began, ran = (_seconds(self.job[name]) for name in ("created_at", "started_at"))
        return ran - began


class Live:
    """Runs jobs one after another."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def run(self, document: Mapping[str, Any], *, limit_s: float = 300.0) -> Outcome:
        """Submit a job and wait for its end.

        Raises:
            RuntimeError: if it does not succeed in time, with the job's reason.
        """
        number = self.ask("POST", "jobs", json=dict(document))["id"]
        deadline = time.monotonic() + limit_s
        while not (job := self.ask("GET", f"jobs/{number}"))["is_over"]:
            if time.monotonic() > deadline:
                self.ask("POST", f"jobs/{number}/actions/stop")
                raise RuntimeError(f"job {number} ({document['name']}) was not over after {limit_s:g} s")
            time.sleep(POLL_S)
        if job["state"] != "succeeded":
            raise RuntimeError(f"job {number} ({document['name']}) {job['state']}: {job['reason']}")
        time.sleep(2 * POLL_S)  # the last rows are on their way to the database
        series = self.ask("GET", f"jobs/{number}/metrics", params={"metric": "iteration_s", "points": 5000})["series"]
        columns = zip(*(row["values"] for row in series), strict=False)
        return Outcome(
            job=job,
            iteration_s=[max(column) for column in columns],
            decisions=self.pages(f"jobs/{number}/decisions?page_size=500")[::-1],
        )

    def pages(self, path: str) -> list[dict[str, Any]]:
        """Every row of a list."""
        rows: list[dict[str, Any]] = []
        following: str | None = path
        while following:
            page = self.ask("GET", following)
            rows += page["results"]
            following = page["next"]
        return rows

    def ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """A request to the API."""
        reply = self._client.request(method, path, **options)
        if reply.is_error:
            raise RuntimeError(f"{method} {path}: {reply.status_code} {reply.text}")
        return dict(reply.json())


@contextmanager
def live(speeds: Sequence[float | Path], *, server_slots: int) -> Iterator[Live]:
    """Start everything in a folder of its own, machines as ``start_agent`` has them; everything ends with the block."""
    with TemporaryDirectory(prefix="paceline-bench-") as folder, Interruption() as stop, Supervisor(stop) as supervisor:
        plane = ControlPlane(folder=Path(folder), port=free_port(), settings={"REDIS_URL": "", "DATABASE_URL": ""})
        environment, _ = start_control_plane(plane, supervisor)
        access = let_in("bench", role="admin", environment=environment)
        headers = {"Authorization": f"Bearer {access.token}"}
        address = f"{plane.url}/api/v1/"
        with httpx.Client(base_url=address, headers=headers, timeout=ANSWER_S, trust_env=False) as client:
            token = client.post("agents/enrolment-tokens", json={}).json()["token"]
            agent = start_agent(
                plane.url,
                token,
                name="bench",
                folder=plane.folder / "agent",
                speeds=speeds,
                server_slots=server_slots,
                log=plane.logs / "agent.log",
            )
            supervisor.add(agent)
            supervisor.wait_until(lambda: _is_here(client), what="The machine's joining", seconds=JOIN_S)
            yield Live(client)


def _is_here(client: httpx.Client) -> bool:
    return any(row["state"] == "online" for row in client.get("agents").json()["results"])


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
