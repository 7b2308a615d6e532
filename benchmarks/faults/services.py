"""The services of a control plane as a fault test handles them: killed, stopped, paused, and started again."""

import os
import shutil
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Final

import msgspec

from controlplane.runtime.embedded.control_plane import (
    CHECKOUT,
    MIGRATE,
    MIGRATE_S,
    ControlPlane,
    is_ready,
    parts,
    start_part,
)
from controlplane.runtime.embedded.errors import CannotStart
from controlplane.runtime.embedded.ground import free_port
from controlplane.runtime.embedded.processes import Service, run_command, start_service, stop_services
from controlplane.runtime.embedded.redis_server import answers, redis_binary

REDIS: Final = "redis"
READY_S: Final = 300.0
STOP_S: Final = 10.0

CONFIG: Final = """\
port {port}
bind 127.0.0.1
requirepass {password}
dir {folder}
daemonize no
save ""
appendonly {append}
appendfsync everysec
loglevel warning
"""


class Settings(msgspec.Struct, kw_only=True, frozen=True):
    """Settings of a control plane; passed in an environment variable, since they contain a password."""

    folder: str
    database: str
    append_only: bool
    port: int = msgspec.field(default_factory=free_port)
    redis_port: int = msgspec.field(default_factory=free_port)
    password: str = msgspec.field(default_factory=lambda: token_hex(16))

    @property
    def redis_url(self) -> str:
        """The URL of its own Redis."""
        return f"redis://:{self.password}@127.0.0.1:{self.redis_port}/0"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its services and of commands."""
        own = {"REDIS_URL": self.redis_url, "DATABASE_URL": self.database, "PACELINE_DATA_DIR": self.folder}
        url = f"http://127.0.0.1:{self.port}"
        return {**os.environ, "PYTHONPATH": str(CHECKOUT), "PACELINE_URL": url, **own}


class Services:
    """A control plane over a Redis of its own; faults can be injected into each service."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._folder = settings, Path(settings.folder)
        self.plane = ControlPlane(folder=self._folder, port=settings.port)
        self.environment = settings.environment
        self._services: dict[str, Service] = {}

    @property
    def names(self) -> list[str]:
        """All services, Redis first."""
        return [REDIS, *parts(self.plane)]

    def start_all(self) -> None:
        """Start everything and wait until it is ready.

        Raises:
            CannotStart: naming what could not be started.
        """
        self.plane.logs.mkdir(mode=0o700, exist_ok=True)
        self.start(REDIS)
        self.await_redis()
        run_command("migrate", MIGRATE, environment=self.environment, folder=CHECKOUT, seconds=MIGRATE_S)
        for name in parts(self.plane):
            self.start(name)
        deadline = time.monotonic() + READY_S
        while not is_ready(self.plane.url):
            if time.monotonic() > deadline:
                raise CannotStart(f"The control plane took longer than {READY_S:.0f} s to start.")
            time.sleep(0.1)

    def start(self, name: str, armed: str = "") -> None:
        """Start a service; ``armed`` names the point at which it is to kill itself."""
        environment: Mapping[str, str] = {**self.environment, "PACELINE_FAULT": armed}
        self._services[name] = self._start_redis() if name == REDIS else start_part(self.plane, name, environment)

    def is_over(self, name: str) -> bool:
        """Whether the service has ended."""
        return self._services[name].is_over()

    def ended(self) -> list[str]:
        """Services that ended although no fault was injected into them, and how."""
        return [f"{name} {service.ending()}" for name, service in self._services.items() if service.is_over()]

    def kill(self, *names: str) -> None:
        """Send SIGKILL, like a crash, or the kernel when memory is full."""
        for name in names:
            with suppress(ProcessLookupError):
                os.killpg(self._services[name].process.pid, signal.SIGKILL)
        for name in names:
            self._services[name].process.wait()

    def stop(self, *names: str) -> None:
        """Send SIGTERM and wait, as a deployment does."""
        stop_services([self._services[name] for name in names], seconds=STOP_S)

    def signal(self, names: Iterable[str], number: signal.Signals) -> None:
        """Send a signal to these services."""
        for name in names:
            with suppress(ProcessLookupError):
                os.killpg(self._services[name].process.pid, number)

    def stop_all(self) -> None:
        """End everything, Redis last."""
        self.signal(self._services, signal.SIGCONT)
        self.stop(*(name for name in self._services if name != REDIS))
        if REDIS in self._services:
            self.stop(REDIS)

    def await_redis(self) -> None:
        """Wait until Redis answers."""
        deadline = time.monotonic() + READY_S
        while not answers(self._settings.redis_url):
            if time.monotonic() > deadline:
                raise CannotStart(f"Redis did not answer within {READY_S:.0f} s.")
            time.sleep(0.02)

    def copy_file(self) -> Path:
        """The present content of Redis' append-only file."""
        copy = self._folder / "redis-before"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self._redis_folder, copy, ignore_dangling_symlinks=True)
        return copy

    def put_back_file(self, copy: Path) -> None:
        """Restore the append-only file of a stopped Redis: later data are lost."""
        self.forget_file()
        shutil.copytree(copy, self._redis_folder, dirs_exist_ok=True)

    def forget_file(self) -> None:
        """Delete the append-only file of a stopped Redis: all data are lost."""
        for each in self._redis_folder.iterdir():
            if each.is_dir():
                shutil.rmtree(each)
            elif each.suffix != ".conf":
                each.unlink()

    @property
    def _redis_folder(self) -> Path:
        return self._folder / "redis-data"

    def _start_redis(self) -> Service:
        binary = redis_binary()
        if binary is None:
            raise CannotStart("No Redis: install redis-server 6.2 or newer.")
        folder = self._redis_folder
        folder.mkdir(mode=0o700, exist_ok=True)
        config = folder / "redis.conf"
        config.touch(mode=0o600)
        settings = self._settings
        values = {"port": settings.redis_port, "password": settings.password, "folder": folder}
        config.write_text(CONFIG.format(**values, append="yes" if settings.append_only else "no"))
        return start_service(REDIS, [str(binary), str(config)], log=self.plane.logs / "redis.log", folder=folder)
