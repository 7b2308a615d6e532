"""As much of a container engine as docker-compose.yml and deploy/kubernetes need, made of local processes.

What differs inside containers is translated, and nothing else: host names become this machine, ports become private
ones, and the paths of images and volumes become folders. ``depends_on`` is obeyed, and a service is well when its own
health check says so.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.database.postgres import become, initialise, postgres_folder
from controlplane.runtime.embedded.ground import free_port
from controlplane.runtime.embedded.processes import Service, start_service
from controlplane.runtime.embedded.supervisor import Supervisor
from deploy import make_env
from tests.deploy.images import bare_environment, unpack
from tests.deploy.reading import entrypoint, environment_of, interpolated, mounts, parse_env, services, start_order

PORTS = (5432, 6379, 8000)
HOSTS = ("postgres", "redis", "web")
HEALTH_S = 90.0


@dataclass(slots=True)
class Engine:
    """Runs services, those of docker-compose.yml or others in its terms, below ``folder`` until the supervisor ends."""

    folder: Path
    supervisor: Supervisor
    services: dict[str, dict[str, Any]] = field(default_factory=services)
    ports: dict[int, int] = field(default_factory=lambda: {port: free_port() for port in PORTS})

    @property
    def url(self) -> str:
        """Where the published port is."""
        return f"http://127.0.0.1:{self.ports[8000]}"

    def up(self, own: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """Start everything, each after what it waits for, until all are well.

        ``own`` has, by name, env files that a user wrote instead of those that are made.
        """
        make_env.main(self.folder / "env")
        for name, variables in (own or {}).items():
            lines = "".join(f"{key}={value}\n" for key, value in variables.items())
            (self.folder / "env" / name).write_text(lines)
        (self.folder / "secrets").mkdir()
        for secret in (self.folder / "env" / "secrets").iterdir():
            (self.folder / "secrets" / secret.name).write_text(self._local(secret.read_text()))
        for stage in ("controlplane", "agent"):
            unpack(stage, self.folder / "images" / stage)
        self.execute("web", "python", "manage.py", "collectstatic", "--no-input", "--verbosity", "0")
        for name in start_order(self.services):
            for needed, how in self.services[name].get("depends_on", {}).items():
                if how["condition"] == "service_healthy":
                    self.await_health(needed)
            self.run(name)
        for name, service in self.services.items():
            if "healthcheck" in service:
                self.await_health(name)

    def execute(self, name: str, *command: str, typed: str = "") -> str:
        """What a command prints that runs in a service's surroundings, as ``docker compose exec`` does.

        ``typed`` is its standard input.
        """
        done = subprocess.run(
            self._words(name, command),
            env=self.environment(name),
            cwd=self._home(name),
            input=typed,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, f"{name}: {' '.join(command)} ended with {done.returncode}:\n{done.stderr}"
        return done.stdout

    def await_health(self, name: str) -> None:
        """Wait until the service's own check passes."""
        self.supervisor.wait_until(lambda: self.is_well(name), what=f"The health of {name}", seconds=HEALTH_S)

    def is_well(self, name: str) -> bool:
        """Run the service's health check once."""
        kind, *command = self.services[name]["healthcheck"]["test"]
        words = self._words(name, ["sh", "-c", *command] if kind == "CMD-SHELL" else command)
        done = subprocess.run(
            words, env=self.environment(name), cwd=self._home(name), capture_output=True, timeout=60, check=False
        )
        return done.returncode == 0

    def environment(self, name: str) -> dict[str, str]:
        """What image, env files and compose file set, in this order."""
        service = self.services[name]
        found = environment_of(service["build"]["target"]) if "build" in service else {}
        for file in service.get("env_file", []):
            if isinstance(file, str):
                found |= parse_env((self.folder / "env" / Path(file).name).read_text())
            elif (own := self.folder / "env" / Path(file["path"]).name).exists() or file["required"]:
                found |= parse_env(own.read_text())
        found |= {key: str(value) for key, value in service.get("environment", {}).items()}
        local = {key: self._translated(name, value) for key, value in found.items()}
        path = os.pathsep.join([str(postgres_folder()), os.environ["PATH"]])
        return {**bare_environment(), "PATH": path, **local}

    def run(self, name: str) -> None:
        """Start a service, or run it to its end if it has no health to wait for."""
        service = self.services[name]
        for volume, path, _ in mounts(service):
            folder = self.folder / "volumes" / volume
            folder.mkdir(parents=True, exist_ok=True)
            assert (folder / path).is_dir(), f"{name}: {volume} has no {path}, and no engine makes it"
        if "healthcheck" not in service:
            self.execute(name, *service["command"])
            return
        self.supervisor.add(self._start(name), beside_the_last="build" in service and name != "web")

    def restart(self, name: str) -> None:
        """Start a service again that has ended, as ``restart: unless-stopped`` says."""
        [ended] = [service for service in self.supervisor.services if service.name == name]
        self.supervisor.replace(ended, self._start(name))

    def _start(self, name: str) -> Service:
        service = self.services[name]
        command = self._words(name, [*self._entry(service), *service["command"]])
        if name == "postgres":
            command = self._prepare_postgres(command)
        log = self.folder / f"{name}.log"
        return start_service(name, command, log=log, environment=self.environment(name), folder=self._home(name))

    def _entry(self, service: dict[str, Any]) -> list[str]:
        return entrypoint(service["build"]["target"]) if "build" in service else []

    def _prepare_postgres(self, command: list[str]) -> list[str]:
        """What the image's own entry point does first, and where it says that the data are."""
        binaries, variables = postgres_folder(), self.environment("postgres")
        assert binaries is not None
        [(volume, _, _)] = mounts(self.services["postgres"])
        data = self.folder / "volumes" / volume / "cluster"
        password = variables.get("POSTGRES_PASSWORD") or Path(variables["POSTGRES_PASSWORD_FILE"]).read_text()
        initialise(
            binaries,
            data,
            user=variables["POSTGRES_USER"],
            password=password,
            database=variables["POSTGRES_DB"],
        )
        return [*become(), str(binaries / command[0]), *command[1:], "-D", str(data)]

    def _words(self, name: str, command: list[str] | tuple[str, ...]) -> list[str]:
        words = [self._translated(name, interpolated(word, {})) for word in command]
        return [sys.executable if words[0] == "python" else words[0], *words[1:]]

    def _translated(self, name: str, text: str) -> str:
        service = self.services[name]
        if text in {"0.0.0.0", service.get("hostname")}:
            return "127.0.0.1"
        text = self._local(text)
        for volume, path, target in mounts(service):
            text = re.sub(rf"(?<![\w./-]){target}(?![\w-])", str(self.folder / "volumes" / volume / path), text)
        for secret in service.get("secrets", []):
            text = text.replace(f"/run/secrets/{secret}", str(self.folder / "secrets" / secret))
        return re.sub(r"^/app(?=/|$)", str(self._home(name)), text)

    def _local(self, text: str) -> str:
        text = re.sub(rf"(?<=[@/])({'|'.join(HOSTS)})(?=:)", "127.0.0.1", text)
        return re.sub(r"\b(5432|6379|8000)\b", lambda found: str(self.ports[int(found[0])]), text)

    def _home(self, name: str) -> Path:
        """Where the service's image has its files."""
        service = self.services[name]
        return self.folder / "images" / service["build"]["target"] if "build" in service else self.folder
