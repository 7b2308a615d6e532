"""Commands of the control plane and of agents: passed on, unchanged, to the packages that implement them.

These packages are extras of the distribution; where they are missing, the command says what to install.
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
    """A command that another program carries out."""

    help: str
    extras: tuple[Extra, ...]
    program: tuple[str, ...]
    """What Python runs, before the command's own arguments."""


def managed(name: str, help: str, *extras: Extra) -> Delegate:
    """A command of ``manage.py``."""
    return Delegate(help, (SERVER, *extras), ("-m", "controlplane.manage", name))


DELEGATES = {
    "up": managed("up", "run a control plane on this machine, until Ctrl-C"),
    "demo": managed("demo", "train on emulated machines of uneven speed, plain and paced, and compare", AGENT),
    "access": managed("access", "make a user and print a token and a link to sign in with"),
    "enroll": managed("enroll", "print the command and the token with which one machine joins"),
    "join": Delegate("offer this machine's slots to a control plane", (AGENT,), ("-m", "workers", "join")),
    "simulate": managed("simulate", "play a job under several policies in virtual time"),
    "whatif": managed("whatif", "what a recorded job would have done otherwise"),
    "report": managed("report", "write a job as one HTML file"),
    "manage": Delegate(
        "any other command of a control plane; without one, lists them", (SERVER,), ("-m", "controlplane.manage")
    ),
}


def delegate(name: str, arguments: Sequence[str]) -> None:
    """Replace this process by the program that carries the command out; does not return.

    Raises:
        Refusal: if what it needs is not installed.
    """
    asked = DELEGATES[name]
    missing = [extra.name for extra in asked.extras if not extra.is_installed]
    if missing:
        wanted = ",".join(extra.name for extra in asked.extras)
        raise Refusal(
            f"paceline {name}: found no paceline[{','.join(missing)}] in this environment ({sys.prefix}), "
            f"which this command needs; install it: pip install 'paceline[{wanted}]'"
        )
    sys.stdout.flush()
    os.execve(
        sys.executable,
        [sys.executable, *asked.program, *arguments],
        with_data_folder(environment(os.environ)),
    )
