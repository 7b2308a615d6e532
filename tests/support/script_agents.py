"""Agents that start scripts of jobs, beside the machines of a running control plane."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from controlplane.runtime.embedded.interruption import Interruption
from controlplane.runtime.embedded.processes import Service, start_service
from controlplane.runtime.embedded.supervisor import Supervisor
from tests.architecture.sources import ROOT
from tests.support.stack import Stack
from tests.support.waiting import eventually

POOL: Mapping[str, str] = MappingProxyType({"pool": "scripts"})
"""The labels of these machines."""


@contextmanager
def script_agents(stack: Stack, folder: Path, *names: str, slots: int = 1) -> Iterator[dict[str, Service]]:
    """Machines of these names that run scripts in the checkout, online, in the order in which their slots are taken."""
    with Supervisor(Interruption()) as supervisor:
        agents = {}
        for name in names:
            asked = {"name": name, "labels": dict(POOL)}
            token = stack.ask("POST", "/api/v1/agents/enrolment-tokens", json=asked)["token"]
            command = [
                *(sys.executable, "-m", "workers", "join", stack.url, "-", "--name", name, "--slots", str(slots)),
                *("--state-dir", str(folder / name), "--allow-scripts", str(ROOT), "--device", "cpu"),
            ]
            environment = {**os.environ, "TMPDIR": str(folder)}
            agents[name] = start_service(
                name,
                command,
                log=folder / f"{name}.log",
                folder=ROOT,
                environment=environment,
                stdin=f"{token}\n".encode(),
            )
            supervisor.add(agents[name])
        eventually(lambda: set(names) <= {*online(stack)}, what=f"agents {', '.join(names)}", seconds=120, every=0.2)
        yield {name: agents[name] for name in online(stack) if name in agents}


def online(stack: Stack) -> list[str]:
    """The names of the machines that are online, in the order of their enrolment: the first to start has the first."""
    rows = stack.ask("GET", "/api/v1/agents?page_size=200")["results"]
    return [row["name"] for row in sorted(rows, key=lambda row: row["id"]) if row["state"] == "online"]
