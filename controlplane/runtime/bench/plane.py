"""A private control plane to measure, with an echo server of the same kind beside it; all of it ends with the bench."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import redis

from controlplane.runtime.embedded.control_plane import CHECKOUT, DECISIONS, ControlPlane, start_control_plane
from controlplane.runtime.embedded.ground import free_port
from controlplane.runtime.embedded.interruption import Interruption
from controlplane.runtime.embedded.processes import start_service
from controlplane.runtime.embedded.supervisor import Supervisor

READY_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What is running, and the environment of commands that join it."""

    environment: Mapping[str, str]
    base: str
    echo: str
    plane: ControlPlane
    supervisor: Supervisor

    @property
    def processes(self) -> dict[str, int]:
        """Ids of the control plane's processes."""
        return {service.name: service.process.pid for service in self.supervisor.services if service.name != "echo"}

    @property
    def echo_process(self) -> int:
        """The id of the echo server's process."""
        return next(service.process.pid for service in self.supervisor.services if service.name == "echo")

    def add_decisions(self) -> None:
        """Scale out: one more Celery process that decides."""
        name = f"decisions-{sum(name.startswith('decisions') for name in self.processes) + 1}"
        command = [part.replace("decisions@", f"{name}@") for part in DECISIONS]
        log = self.plane.logs / f"{name}.log"
        service = start_service(name, command, log=log, environment=self.environment, folder=CHECKOUT)
        self.supervisor.add(service, beside_the_last=True)


@contextmanager
def running_bench() -> Iterator[Bench]:
    """Start everything in a folder of its own, with an append-only file; everything ends with the block."""
    with TemporaryDirectory(prefix="paceline-bench-") as folder, Interruption() as stop, Supervisor(stop) as supervisor:
        plane = ControlPlane(folder=Path(folder), port=free_port(), settings={"REDIS_URL": "", "DATABASE_URL": ""})
        environment, _ = start_control_plane(plane, supervisor)
        _append_to_a_file(environment["REDIS_URL"])
        port = free_port()
        command = [
            *(sys.executable, "-m", "uvicorn", "controlplane.runtime.bench.echo:application"),
            *("--host", "127.0.0.1", "--port", str(port), "--lifespan", "off", "--no-access-log"),
            *("--log-level", "warning"),
        ]
        log = plane.logs / "echo.log"
        supervisor.add(start_service("echo", command, log=log, environment=environment, folder=CHECKOUT))
        supervisor.wait_until(lambda: _listens(port), what="The echo server's start", seconds=READY_S)
        base = plane.url.replace("http://", "ws://")
        echo = f"ws://127.0.0.1:{port}"
        yield Bench(environment=environment, base=base, echo=echo, plane=plane, supervisor=supervisor)


def _append_to_a_file(url: str) -> None:
    """As in production: fsynced every second."""
    with closing(redis.Redis.from_url(url, protocol=2)) as client:
        client.config_set("appendfsync", "everysec")
        client.config_set("appendonly", "yes")


def _listens(port: int) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}/", timeout=1.0, trust_env=False)
    except httpx.TransportError as error:
        return not isinstance(error, httpx.ConnectError)
    return True
