"""Real machines and real jobs on a benched control plane, reached as a user would reach it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import httpx

from controlplane.runtime.bench import strikes
from controlplane.runtime.bench.plane import Bench
from controlplane.runtime.embedded.joining import start_agent
from controlplane.runtime.embedded.processes import Service

ROOM = "room"
"""The label that keeps machines and jobs apart."""

JOIN_S = 60.0
LOOK_S = 0.1


class Crew:
    """Lets machines in and jobs run; ``client`` speaks to the control plane as an administrator."""

    def __init__(self, bench: Bench, client: httpx.Client) -> None:
        self.bench, self._client = bench, client

    def join(
        self,
        name: str,
        *,
        room: str,
        workers: int,
        servers: int,
        speed: float,
        url: str | None = None,
        announced: str | None = None,
    ) -> Service:
        """Start a machine of so many samples per second and slot, and start its agent again whenever it ends."""
        reply = self._client.post("/api/v1/agents/enrolment-tokens", json={"name": name, "labels": {ROOM: room}})
        reply.raise_for_status()
        start = partial(
            start_agent,
            url or self.bench.plane.url,
            reply.json()["token"],
            name=name,
            folder=self.bench.plane.folder / "machines",
            speeds=[speed] * workers,
            server_slots=servers,
            log=self.bench.plane.logs / f"{name}.log",
            announced=announced,
        )
        agent = start()
        self.bench.supervisor.add(agent)
        self.bench.supervisor.wait_until(lambda: self._is_online(name), what=f"The joining of {name}", seconds=JOIN_S)
        self.bench.supervisor.keep_running({agent.name: start})
        return agent

    def submit(self, spec: dict[str, Any], *, room: str) -> int:
        """Submit a job for the machines of ``room``; its number."""
        reply = self._client.post("/api/v1/jobs", json=spec | {"labels": {ROOM: room}})
        reply.raise_for_status()
        return int(reply.json()["id"])

    def look(self, job: int) -> dict[str, Any]:
        """The job as it is now; nothing while the control plane is away."""
        self.bench.supervisor.check()
        try:
            reply = self._client.get(f"/api/v1/jobs/{job}")
            return dict(reply.json()) if reply.is_success else {}
        except (httpx.HTTPError, ValueError):
            return {}

    def wait(self, job: int, holds: Callable[[dict[str, Any]], bool], *, seconds: float) -> dict[str, Any]:
        """The job once that holds, or as it is when the time is up."""
        end, found = strikes.now() + seconds, self.look(job)
        while strikes.now() < end and not (found and holds(found)):
            self.bench.supervisor.interruption.pause(LOOK_S)
            found = self.look(job) or found
        return found

    def _is_online(self, name: str) -> bool:
        agents = self._client.get("/api/v1/agents").json()["results"]
        return any(agent["name"] == name and agent["state"] == "online" for agent in agents)
