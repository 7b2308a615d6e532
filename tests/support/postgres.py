"""A PostgreSQL cluster of the tests' own, in a temporary folder, behind a password, on a loopback port."""

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controlplane.runtime.embedded.ground import free_port
from controlplane.runtime.embedded.processes import start_service, stop_services
from tests.support.waiting import eventually

INSTALL = "PostgreSQL is not installed; on Debian and Ubuntu: apt-get install postgresql"
ACCOUNTS = ("postgres", "nobody")
"""Who may run it: PostgreSQL refuses to run as root."""


def postgres_folder() -> Path | None:
    """Where initdb and postgres are: Debian keeps them off the PATH."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return versions[-1].parent if versions else None


@contextmanager
def running_postgres(binaries: Path) -> Iterator[str]:
    """Start a cluster; gives the URL of its database ``postgres`` and removes it all afterwards."""
    with tempfile.TemporaryDirectory(prefix="paceline-pg-") as name:
        folder, port, password = Path(name), free_port(), secrets.token_hex(16)
        (folder / "password").write_text(password)
        become = _become(folder)
        subprocess.run(
            [
                *(
                    *become,
                    str(binaries / "initdb"),
                    "-D",
                    str(folder / "data"),
                    "-U",
                    "paceline",
                    "-A",
                    "scram-sha-256",
                ),
                *("--pwfile", str(folder / "password"), "--no-sync", "-E", "UTF8", "--locale", "C"),
            ],
            check=True,
            capture_output=True,
            cwd=folder,
        )
        options = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "", "fsync": "off"}
        service = start_service(
            "postgres",
            [
                *(*become, str(binaries / "postgres"), "-D", str(folder / "data")),
                *(word for key, value in options.items() for word in ("-c", f"{key}={value}")),
            ],
            log=folder / "postgres.log",
            folder=folder,
        )
        try:
            ready = [str(binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
            eventually(
                lambda: subprocess.run(ready, check=False).returncode == 0, what="PostgreSQL's start", seconds=30
            )
            yield f"postgres://paceline:{password}@127.0.0.1:{port}/postgres"
        finally:
            stop_services([service])


def _become(folder: Path) -> list[str]:
    """The prefix that runs a command as an ordinary user who owns ``folder``; empty if we are one."""
    if os.getuid() != 0:
        return []
    account = next(name for name in ACCOUNTS if any(entry.pw_name == name for entry in pwd.getpwall()))
    for path in (folder, folder / "password"):
        shutil.chown(path, account)
    return [
        "setpriv",
        "--reuid",
        account,
        "--regid",
        str(pwd.getpwnam(account).pw_gid),
        "--clear-groups",
        "--pdeathsig",
        "keep",
    ]
