"""Machine settings that workloads depend on: its data folder, its device, permission to run code."""

from dataclasses import dataclass
from pathlib import Path

import torch

from workers.setup import Setup


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """Settings of the machine's agent."""

    data_dir: Path | None = None
    """The folder of data files; None on a machine without data files."""
    checkpoint_dir: Path | None = None
    """The folder of checkpoints that workers write, or None."""
    host: str = "127.0.0.1"
    """The address at which other machines reach this one."""
    announced: str | None = None
    """The address announced to others; None: the same."""
    device: str = "cpu"
    allow_code: bool = False
    """Whether jobs may use their own workloads, ``package.module:factory``, and so run their code."""
    encrypts: bool = False
    """Whether servers on this machine encrypt."""
    insecure: bool = False
    """Whether parameters may travel between machines unencrypted."""


NOWHERE = Local()
"""A machine without files, accelerator or permission for code."""


def local_of(setup: Setup, device: str = "cpu") -> Local:
    """The settings of a process of an agent that computes on ``device``.

    Raises:
        ValueError: if the requested device cannot be used.
    """
    return Local(
        data_dir=None if setup.data_dir is None else Path(setup.data_dir),
        checkpoint_dir=None if setup.checkpoint_dir is None else Path(setup.checkpoint_dir),
        host=setup.host,
        announced=setup.announced,
        device=pick_device(device),
        allow_code=setup.allow_code,
        encrypts=setup.encrypts,
        insecure=setup.insecure,
    )


def pick_device(requested: str) -> str:
    """The device of that name; ``auto``: an accelerator if one is found, else the CPU.

    Raises:
        ValueError: if there is no such device here.
    """
    if requested == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=requested)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device {requested!r} cannot be used: {reason}; try --device auto or --device cpu") from None
    return requested
