"""``paceline slurm rank -- COMMAND``: what srun starts as each task. It becomes the command."""

import os
import signal
from argparse import Namespace
from collections.abc import Mapping

from paceline.cli.errors import Refusal
from paceline.cli.processes import NO_COMMAND, NOT_EXECUTABLE
from paceline.cli.slurm import queue

PLACES = {"RANK": "SLURM_PROCID", "WORLD_SIZE": "SLURM_NTASKS", "LOCAL_RANK": "SLURM_LOCALID"}
"""How torch.distributed calls what srun says."""

ADDRESS = "{address}"
"""In a word of the command: where other nodes reach this one."""


def carry_out(options: Namespace) -> int:
    """Become the command, with the task's place in the variables of torch.distributed.

    The signal by which ranks are told to leave is blocked: what lies between this and the rank, such as a shell or
    torchrun, would end by it, and so would processes that the rank starts. The rank itself waits for it.

    Raises:
        Refusal: if the command cannot be started.
    """
    command = list(options.behind)
    if not command:
        raise Refusal("paceline slurm rank: found no command, expected one behind --, such as: -- python train.py")
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
    """The variables, with rank, world size and local rank as srun says."""
    return {**variables, **{name: variables[slurm] for name, slurm in PLACES.items() if slurm in variables}}
