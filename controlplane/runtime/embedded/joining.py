"""Creates a user and enrols a machine on a control plane that was just started, with the ordinary commands."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.runtime.embedded.control_plane import CHECKOUT, MANAGE
from controlplane.runtime.embedded.processes import Service, run_command, start_service


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A user's access to the control plane. ``login_link`` works once."""

    token: str
    login_link: str


def let_in(name: str, *, role: str, environment: Mapping[str, str], password: str = "") -> Access:
    """Create a user, with a password if one is given.

    Raises:
        CannotStart: if the command fails.
    """
    command = [
        *MANAGE,
        "access",
        name,
        "--role",
        role,
        "--token",
        "--json",
        *(["--password-stdin"] if password else []),
    ]
    answer = run_command("manage.py access", command, environment=environment, folder=CHECKOUT, stdin=password.encode())
    document = json.loads(answer)
    return Access(token=document["token"], login_link=document["login_link"])


def start_agent(
    url: str,
    token: str,
    *,
    name: str,
    folder: Path,
    speeds: Sequence[float | Path],
    server_slots: int,
    log: Path,
    announced: str | None = None,
    encrypts: bool = False,
    relays: bool = False,
) -> Service:
    """Start an agent that offers one emulated machine per speed, in samples per second or as a file with a trace."""
    command = [
        *(sys.executable, "-m", "workers", "join", url, "-", "--name", name, "--host", "127.0.0.1"),
        *("--slots", str(len(speeds)), "--emulate", ",".join(map(_machine, speeds))),
        *("--server-slots", str(server_slots), "--state-dir", str(folder)),
        *(("--announce", announced) if announced else ()),
        *(["--encrypt"] if encrypts else []),
        *(["--relay"] if relays else []),
    ]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "torch")}  # else it leaves one in /tmp
    return start_service(
        f"agent {name}", command, log=log, environment=environment, folder=CHECKOUT, stdin=token.encode() + b"\n"
    )


def _machine(speed: float | Path) -> str:
    return f"@{speed}" if isinstance(speed, Path) else f"{speed:g}"
