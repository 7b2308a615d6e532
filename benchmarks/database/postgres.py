"""A PostgreSQL cluster for tests and benches, in a temporary folder, with a password, on a loopback port."""

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controlplane.runtime.embedded.errors import CannotStart
from controlplane.runtime.embedded.ground import free_port
from controlplane.runtime.embedded.processes import start_service, stop_services

INSTALL = "PostgreSQL is not installed; on Debian and Ubuntu: apt-get install postgresql"
START_S = 30.0
ACCOUNTS = ("postgres", "nobody")
"""Accounts that may run it: PostgreSQL refuses to run as root."""


def postgres_folder() -> Path | None:
    """The folder of initdb and postgres, which Debian does not put on the PATH."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return versions[-1].parent if versions else None


@contextmanager
def running_postgres(binaries: Path) -> Iterator[str]:
    """Start a cluster; yields the URL of its database ``postgres``, and removes the cluster afterwards."""
    with tempfile.TemporaryDirectory(prefix="paceline-pg-") as name:
        folder, port, password = Path(name), free_port(), secrets.token_hex(16)
        initialise(binaries, folder / "data", user="paceline", password=password)
        command = [*become(), str(binaries / "postgres"), "-D", str(folder / "data"), "-p", str(port)]
        service = start_service("postgres", command, log=folder / "postgres.log", folder=folder)
        try:
            _await_start([str(binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)])
            yield f"postgres://paceline:{password}@127.0.0.1:{port}/postgres"
        finally:
            stop_services([service])


def _await_start(ready: list[str]) -> None:
    deadline = time.monotonic() + START_S
    while subprocess.run(ready, check=False).returncode != 0:
        if time.monotonic() > deadline:
            raise CannotStart(f"PostgreSQL did not start within {START_S:.0f} s.")
        time.sleep(0.05)


def initialise(binaries: Path, data: Path, *, user: str, password: str, database: str = "") -> None:
    """Create a cluster in ``data`` that listens on loopback only, with ``user`` and ``database``."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    secret = data.with_name("password")
    secret.touch(mode=0o600)
    secret.write_text(password)
    if become():
        for path in (data, secret, data.parent):
            shutil.chown(path, _account())
    command = [
        *(*become(), str(binaries / "initdb"), "-D", str(data), "-U", user, "-A", "scram-sha-256"),
        *("--pwfile", str(secret), "--no-sync", "-E", "UTF8", "--locale", "C"),
    ]
    subprocess.run(command, check=True, capture_output=True, cwd=data.parent)
    with (data / "postgresql.conf").open("a") as file:
        file.write("listen_addresses = '127.0.0.1'\nunix_socket_directories = ''\nfsync = off\n")
    if database:
        alone = [*become(), str(binaries / "postgres"), "--single", "-D", str(data), "postgres"]
        create = f"CREATE DATABASE {database} OWNER {user}\n".encode()
        subprocess.run(alone, input=create, check=True, capture_output=True, cwd=data.parent)


def become() -> list[str]:
    """The prefix that runs a command as an ordinary user; empty if this process is not root's."""
    if os.getuid() != 0:
        return []
    group = str(pwd.getpwnam(_account()).pw_gid)
    return ["setpriv", "--reuid", _account(), "--regid", group, "--clear-groups", "--pdeathsig", "keep"]


def _account() -> str:
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ACCOUNTS if name in known)
