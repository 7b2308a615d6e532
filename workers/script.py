"""Becomes a process of a user's script, in place of Paceline's own loop: the command of an attached job, as one rank.

The variables are those of torchrun, so that a script runs unchanged, and those with which ``paceline.attach()`` finds
its job. A script may run any program as the agent's user, so an agent starts scripts only if its owner allows it.
"""

import errno
import os
import shutil
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

from controlplane.protocol.orders import ProcessOrder, Script
from workers.devices import AUTO, CPU, CUDA, GPUS, VISIBLE, Gpus
from workers.machines import UsageError
from workers.relay.framing import VARIABLE
from workers.setup import Setup

NO_COMMAND, NOT_EXECUTABLE, REFUSED = 127, 126, 125
"""Exit statuses as of shells: the program is not found, cannot be executed, or is not started."""

LAUNCHER: Final = "agent"


class ScriptRefused(Exception):
    """The script is not started; the message has the reason and the cure."""

    def __init__(self, sentence: str, status: int = REFUSED) -> None:
        super().__init__(sentence)
        self.status = status


def check_network(setup: Setup) -> None:
    """Check that an agent may start scripts: their ranks connect by torch.distributed, which neither encrypts nor
    authenticates, and rank 0 listens on all addresses of its machine.

    Raises:
        UsageError: if this machine encrypts what it exchanges with others.
    """
    if setup.scripts_dir is None or not setup.encrypts:
        return
    found = "--encrypt" if setup.encrypt else f"the address {setup.reached_at} without --insecure"
    cure = "leave it out" if setup.encrypt else "add --insecure if the network of its machines is private"
    raise UsageError(
        f"--allow-scripts {setup.scripts_dir}: found {found}, but ranks of a script connect by torch.distributed, "
        f"which neither encrypts nor authenticates: {cure}, or leave --host at 127.0.0.1 for scripts on this machine "
        "alone"
    )


def become_script(order: ProcessOrder, setup: Setup) -> NoReturn:
    """Replace this process by the script of ``order``.

    Raises:
        SystemExit: with a shell's exit status, if that is not possible; the reason is written to standard error.
    """
    try:
        command, variables = prepared(order, setup, os.environ)
        folder = setup.scripts_dir or ""
        _enter(folder)
        program = shutil.which(command[0], path=variables["PATH"])
        if program is None:
            sentence = f"found no program {command[0]} in {folder} or on this agent's PATH"
            raise ScriptRefused(sentence, NO_COMMAND)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and an ignored signal stays ignored
        try:
            os.execve(program, command, variables)
        except OSError as error:
            raise ScriptRefused(f"{command[0]} cannot be run: {error.strerror}", NOT_EXECUTABLE) from None
    except ScriptRefused as refusal:
        sys.stderr.write(f"{refusal}\n")
        raise SystemExit(refusal.status) from None


def prepared(
    order: ProcessOrder, setup: Setup, environment: Mapping[str, str], gpus: Path = GPUS
) -> tuple[list[str], dict[str, str]]:
    """The command of the script, and its variables.

    Raises:
        ScriptRefused: if this agent runs no scripts, the order has no command, or the port of rank 0 is in use.
    """
    script, command = order.script, order.spec.command
    if script is None or command is None:
        raise ScriptRefused(f"the order of rank {order.index} has no command of a script")
    if setup.scripts_dir is None:
        raise ScriptRefused(
            f"this agent runs no scripts: found the command {command[0]}, expected a job without one; "
            "start the agent with --allow-scripts DIR, the folder in which scripts run"
        )
    if order.index == 0:
        _check_port(script)
    return command, {
        **{name: value for name, value in environment.items() if name != VARIABLE},
        **_visible(order.slot, script, setup, Gpus.found(environment, gpus)),
        "PATH": os.pathsep.join(filter(None, [str(Path(sys.executable).parent), environment.get("PATH")])),
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": str(setup.threads),
        "RANK": str(order.index),
        "WORLD_SIZE": str(script.world),
        "LOCAL_RANK": str(script.slots.index(order.slot)),
        "LOCAL_WORLD_SIZE": str(len(script.slots)),
        "MASTER_ADDR": script.address,
        "MASTER_PORT": str(script.port),
        "PACELINE_URL": setup.url,
        "PACELINE_JOB": str(order.job),
        "PACELINE_TOKEN": script.token,
        "PACELINE_LAUNCHER": LAUNCHER,
        **({"PACELINE_INSECURE": "1"} if setup.insecure else {}),
    }


def _visible(slot: int, script: Script, setup: Setup, gpus: Gpus) -> dict[str, str]:
    """The devices that the script sees: those of all the job's ranks on this machine, which ``LOCAL_RANK`` numbers as
    under torchrun, if each has its own; otherwise only its own.
    """
    own = setup.device_of(slot)
    devices = [setup.device_of(each) for each in script.slots]
    if own in (AUTO, CUDA):
        return {}
    if own == CPU:
        return {VISIBLE: ""}
    each_its_own = len(set(devices)) == len(devices) and not {AUTO, CPU, CUDA} & set(devices)
    return {VISIBLE: ",".join(gpus.visible(device) for device in (devices if each_its_own else [own]))}


def _check_port(script: Script) -> None:
    """Check that rank 0 can listen, since otherwise all ranks would wait for it in vain."""
    where = f"port {script.port} of {script.address}, where the ranks meet,"
    try:
        with socket.create_server(("", script.port)):
            pass
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise ScriptRefused(f"{where} cannot be used: {error.strerror}") from None
        raise ScriptRefused(
            f"{where} is in use by another program: submit the job again, or with elastic: {{restarts: 1}}, since each "
            "start uses another port"
        ) from None


def _enter(folder: str) -> None:
    try:
        os.chdir(folder)
    except OSError as error:
        raise ScriptRefused(f"{folder}, the folder in which scripts run, cannot be used: {error.strerror}") from None
