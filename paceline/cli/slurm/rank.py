"""``paceline slurm rank -- COMMAND``: sets the rank's environment and replaces itself by the command; srun starts it
per task.
"""

import os
import signal
from argparse import Namespace
from collections.abc import Mapping

from paceline.cli.errors import Refusal
from paceline.cli.processes import NO_COMMAND, NOT_EXECUTABLE
from paceline.cli.slurm import queue

PLACES = {"RANK": "SLURM_PROCID", "WORLD_SIZE": "SLURM_NTASKS", "LOCAL_RANK": "SLURM_LOCALID"}
"""The variables of torch.distributed, by those of srun."""

ADDRESS = "{address}"
"""A placeholder in the command: the address at which other nodes reach this one."""


def carry_out(options: Namespace) -> int:
    """Replace this process by the command, with the task's rank in the variables of torch.distributed.

    The signal that requests ranks to leave is blocked: it would end the processes between this one and the rank, such
    as a shell or torchrun, and the processes that the rank starts. The rank waits for it explicitly.

    Raises:
        Refusal: if the command cannot be started.
    """
    command = list(options.behind)
    if not command:
        raise Refusal("paceline slurm rank: found no command, expected one after --, such as: -- python train.py")
    known = placed(os.environ)
    if any(ADDRESS in word for word in command):
        here = queue.address(known.get("SLURMD_NODENAME", "localhost"))
        command = [word.replace(ADDRESS, here) for word in command]
    if name := known.get("PACELINE_LEAVE_ON"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.Signals[f"SIG{name}"]})
    try:
        os.execvpe(command[0], command, known)
    except FileNotFoundError:
        raise Refusal(f"{command[0]}: there is no such command", NO_COMMAND) from None
    except OSError as error:
        raise Refusal(f"{command[0]}: cannot be run ({error.strerror})", NOT_EXECUTABLE) from None


def placed(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment variables, with rank, world size and local rank from srun."""
    return {**variables, **{name: variables[slurm] for name, slurm in PLACES.items() if slurm in variables}}
