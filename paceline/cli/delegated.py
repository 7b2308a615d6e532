"""Delegates commands of the control plane and of agents, unchanged, to the packages that implement them.

These packages are extras of the distribution. If they are missing, the error says what to install.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from paceline.cli.errors import Refusal
from paceline.cli.places import environment, with_data_folder


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra of the distribution, and modules whose presence shows that it is installed."""

    name: str
    modules: tuple[str, ...]

    @property
    def is_installed(self) -> bool:
        """Whether all of the modules can be found; none is imported."""
        return all(find_spec(module) is not None for module in self.modules)


SERVER = Extra("server", ("django", "celery", "channels", "uvicorn"))
RAY = Extra("ray", ("ray",))
AGENT = Extra("agent", ("torch", "typer", "structlog", "sklearn"))


@dataclass(frozen=True, slots=True)
class Delegate:
    """A command that another program implements."""

    help: str
    extras: tuple[Extra, ...]
    program: tuple[str, ...]
    """Arguments of the Python interpreter, which precede those of the command."""


def managed(name: str, help: str, *extras: Extra) -> Delegate:
    """A command of ``manage.py``."""
    return Delegate(help, (SERVER, *extras), ("-m", "controlplane.manage", name))


DELEGATES = {
    "up": managed("up", "run a control plane on this machine, until Ctrl-C"),
    "demo": managed("demo", "train on emulated machines of uneven speed with and without Paceline, and compare", AGENT),
    "access": managed("access", "create a user; print a token and a login link"),
    "enroll": managed("enroll", "print an enrolment token and the command that joins a machine"),
    "join": Delegate("offer this machine's slots to a control plane", (AGENT,), ("-m", "workers", "join")),
    "simulate": managed("simulate", "simulate a job under several policies"),
    "whatif": managed("whatif", "predict a recorded job under other policies or machines"),
    "report": managed("report", "write a job as one HTML file"),
    "manage": Delegate("run any management command; without one, list them", (SERVER,), ("-m", "controlplane.manage")),
}


def delegate(name: str, arguments: Sequence[str]) -> None:
    """Replace this process by the program that implements the command; does not return.

    Raises:
        Refusal: if the required packages are not installed.
    """
    requested = DELEGATES[name]
    missing = [extra.name for extra in requested.extras if not extra.is_installed]
    if missing:
        wanted = ",".join(extra.name for extra in requested.extras)
        raise Refusal(
            f"paceline {name}: found no paceline[{','.join(missing)}] in this environment ({sys.prefix}), "
            f"which this command needs; install it: pip install 'paceline[{wanted}]'"
        )
    sys.stdout.flush()
    os.execve(
        sys.executable,
        [sys.executable, *requested.program, *arguments],
        with_data_folder(environment(os.environ)),
    )
