"""The services of a whole control plane on this machine, started in order and waited for.

Redis (unless one is configured), then uvicorn, the two Celery workers and beat together, which wait for the tables.
docker-compose.yml has the same commands; a test compares the two. On Linux the services are forks of one process that
has imported their modules.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx

from controlplane.runtime.embedded.errors import CannotStart
from controlplane.runtime.embedded.forked import NAME as FORK_SERVER
from controlplane.runtime.embedded.forked import ForkServer, ForkServerGone
from controlplane.runtime.embedded.gate import closed_gate
from controlplane.runtime.embedded.ground import check_port, is_loopback, names_of
from controlplane.runtime.embedded.processes import Service, start_service
from controlplane.runtime.embedded.redis_server import START_S as REDIS_START_S
from controlplane.runtime.embedded.redis_server import answers, start_redis
from controlplane.runtime.embedded.supervisor import Supervisor

CHECKOUT = Path(__file__).resolve().parents[3]
"""The folder that contains the packages: a checkout, or the site-packages of the installation."""

MANAGE = [sys.executable, "-m", "controlplane.manage"]
"""The command line of ``manage.py``."""

CELERY = [sys.executable, "-m", "celery", "-A", "controlplane.config"]
QUIET = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING"]

MIGRATE = [*MANAGE, "migrate", "--no-input", "--verbosity", "0"]
DECISIONS = [*CELERY, "worker", "-Q", "decisions", "-c", "32", "-n", "decisions@%h", *QUIET]
HISTORY = [*CELERY, "worker", "-Q", "history", "-c", "4", "-n", "history@%h", *QUIET]
BEAT = [*CELERY, "beat", "--loglevel", "WARNING"]

MOST_FRAME_BYTES = 1024 * 1024
"""Larger frames are not read at all; messages from 256 KiB on are rejected with a reason."""

MIGRATE_S = 120.0
READY_S = 90.0

LOCAL_HOSTS = "localhost,127.0.0.1,[::1]"
INSECURE = "accept connections from other machines without TLS, on a private network"


def web_command(host: str, port: int) -> list[str]:
    """uvicorn; a page's open websocket may hold up its end no longer than 2 s."""
    return [
        *(sys.executable, "-m", "uvicorn", "controlplane.config.asgi:application"),
        *("--host", host, "--port", str(port)),
        *("--lifespan", "off", "--no-access-log", "--log-level", "warning", "--timeout-graceful-shutdown", "2"),
        "--no-proxy-headers",  # PACELINE_TRUSTED_PROXIES decides about these headers
        *("--ws-max-size", str(MOST_FRAME_BYTES)),
        *("--http", "controlplane.gateway.guarded:Http", "--ws", "controlplane.gateway.guarded:WebSocket"),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """The folder, address and settings of a control plane."""

    folder: Path
    """Data: database, models, logs, and the embedded Redis."""
    host: str = "127.0.0.1"
    port: int = 8000
    settings: Mapping[str, str] = field(default_factory=dict)
    """Environment variables on top of this process's own; REDIS_URL is added when Redis is embedded."""

    @property
    def url(self) -> str:
        """The address for browsers and agents on this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host and '[' not in host else host}:{self.port}"

    @property
    def logs(self) -> Path:
        """The folder with the services' logs."""
        return self.folder / "logs"


def start_control_plane(plane: ControlPlane, supervisor: Supervisor) -> tuple[dict[str, str], list[str]]:
    """Start everything and wait until it is ready.

    Returns:
        the environment of its services, for commands that join them, and notices for the operator.

    Raises:
        CannotStart: with the service that could not be started and the reason.
        Interrupted: if a signal to end arrives meanwhile.
    """
    check_port(plane.host, plane.port)
    _make_logs(plane.logs)
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PACELINE_URL": plane.url, **plane.settings}
    environment["PACELINE_DATA_DIR"] = str(plane.folder)
    if not is_loopback(plane.host):
        environment["ALLOWED_HOSTS"] = ",".join(
            [environment.get("ALLOWED_HOSTS") or LOCAL_HOSTS, *names_of(plane.host)]
        )
    notices = _provide_redis(plane, supervisor, environment)
    forks = _start_fork_server(plane, supervisor, environment)  # imports while Redis starts
    supervisor.wait_until(lambda: answers(environment["REDIS_URL"]), what="The start of Redis", seconds=REDIS_START_S)
    if forks is not None:
        supervisor.wait_until(forks.is_ready, what="Importing the services", seconds=READY_S)
        supervisor.keep_running({FORK_SERVER: forks.start})
    with closed_gate(plane.folder) as gate:
        supervisor.add(*(start_part(plane, name, {**environment, **gate}, forks) for name in parts(plane)))
        _migrate(plane, supervisor, environment, forks)
    supervisor.wait_until(lambda: is_ready(plane.url), what="The control plane's start", seconds=READY_S)
    # Only now: a service that cannot even start has a permanent problem. Not Redis, which would lose its data.
    supervisor.keep_running({name: partial(start_part, plane, name, environment, forks) for name in parts(plane)})
    return environment, notices


def _start_fork_server(
    plane: ControlPlane, supervisor: Supervisor, environment: Mapping[str, str]
) -> ForkServer | None:
    if sys.platform != "linux":
        return None  # forking after imports is not safe on macOS
    forks = ForkServer(environment=environment, log=plane.logs / "fork-server.log", folder=CHECKOUT)
    supervisor.leftovers.callback(forks.close)
    supervisor.add(forks.start())
    return forks


def _make_logs(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise CannotStart(
            f"Cannot create the log folder {folder} ({error.strerror}): move away the file of that name, "
            "or set PACELINE_DATA_DIR to another data folder."
        ) from None


def parts(plane: ControlPlane) -> dict[str, list[str]]:
    """The services of the control plane itself and their commands; they start and end together.

    All their state is in Redis and the database, so a service that dies can be restarted.
    """
    return {
        "web": web_command(plane.host, plane.port),
        "decisions": DECISIONS,
        "history": HISTORY,
        "beat": BEAT,
    }


def start_part(
    plane: ControlPlane, name: str, environment: Mapping[str, str], forks: ForkServer | None = None
) -> Service:
    """Start one of the ``parts``; as a program of its own if there is no fork server, or it is just starting."""
    return _start(plane, name, parts(plane)[name], environment, forks)


def _start(
    plane: ControlPlane, name: str, command: Sequence[str], environment: Mapping[str, str], forks: ForkServer | None
) -> Service:
    log = plane.logs / f"{name}.log"
    if forks is not None and forks.is_ready():
        with suppress(ForkServerGone):
            return forks.start_service(name, command, log=log, environment=environment)
    return start_service(name, command, log=log, environment=environment, folder=CHECKOUT)


def is_ready(url: str) -> bool:
    """Whether ``/readyz`` answers 200."""
    try:
        return httpx.get(f"{url}/readyz", timeout=2.0, trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _provide_redis(plane: ControlPlane, supervisor: Supervisor, environment: dict[str, str]) -> list[str]:
    if configured := environment.get("REDIS_URL"):
        if not answers(configured):
            raise CannotStart("The Redis at REDIS_URL does not answer: start it, or unset REDIS_URL.")
        return []
    redis = start_redis(plane.folder, log=plane.logs / "redis.log")
    supervisor.add(redis.service)
    supervisor.leftovers.callback(redis.clear)
    environment["REDIS_URL"] = redis.url
    return [redis.notice]


def _migrate(
    plane: ControlPlane, supervisor: Supervisor, environment: Mapping[str, str], forks: ForkServer | None
) -> None:
    """Migrate the tables in a child process, which can be interrupted and keeps this one small."""
    service = _start(plane, "migrate", MIGRATE, environment, forks)
    try:
        supervisor.wait_until(service.is_over, what="Migrating the database", seconds=MIGRATE_S)
    finally:
        service.await_stop(0)
    if service.process.returncode:
        service.check()
