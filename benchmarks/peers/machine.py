"""The emulated machine of a process, and its log: the same for all peers and launchers.

As in ``examples/emulate.py`` a training pass is the real work, then a pause, in ``forward``: so gradients are late, and
their sum waits, in any library. Machines of one run share a clock, which starts at the first pass.

Logs are lines of numbers, times by the monotonic clock that all processes of this host share: ``machine-K.log`` has
begin, due time, end and samples of each pass; ``scores.log`` has the time and the accuracy.
"""

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.data import TensorDataset

from benchmarks.peers.scenes import SCENES, Scene
from benchmarks.peers.task import accuracy
from workers.emulation import Course

FOLDER: Final = "PEERS_FOLDER"
SCENE: Final = "PEERS_SCENE"
CLOCK: Final = "clock"
SCORES: Final = "scores.log"


class Under(threading.local):
    """The pass of a thread: Paceline's own workers evaluate during training."""

    depth = 0
    began = 0.0


class Machine:
    """Slows this process's training passes down to a machine's speed, and logs them."""

    def __init__(self, number: int, scene: Scene, folder: Path) -> None:
        self._folder, self._course = folder, Course(scene.emulation(number))
        self._log = (folder / f"machine-{number}.log").open("a", buffering=1)
        self._pass = Under()
        self._start: float | None = None

    def close(self) -> None:
        """End its log."""
        self._log.close()

    def begin(self, module: nn.Module, inputs: Any) -> None:
        """A module's ``forward`` begins; the outermost one's is the pass."""
        self._pass.depth += 1
        if self._pass.depth == 1:
            self._pass.began = time.monotonic()

    def end(self, module: nn.Module, inputs: Any, output: Any) -> None:
        """A module's ``forward`` is done: behind a training pass, pause until it is due."""
        self._pass.depth -= 1
        if self._pass.depth or not torch.is_grad_enabled() or next(module.parameters(), None) is None:
            return  # inside another, an evaluation, or a loss
        began = self._pass.began
        if self._start is None:
            self._start = started(self._folder, began)
        due = self._start + self._course.done_at(began - self._start, len(output))
        time.sleep(max(0.0, due - time.monotonic()))
        self._log.write(f"{began:.6f} {due:.6f} {time.monotonic():.6f} {len(output)}\n")


def started(folder: Path, at: float) -> float:
    """When the first pass of all machines began, as written by the first of them."""
    clock, own = folder / CLOCK, folder / f"{CLOCK}.{os.getpid()}"
    if not clock.exists():
        own.write_text(f"{at:.6f}")
        with suppress(FileExistsError):
            os.link(own, clock)  # whole, or not at all
        own.unlink()
    return float(clock.read_text())


_current: list[Machine] = []


def emulate(number: int) -> None:
    """Emulate the machine that the environment names; without the variable nothing changes."""
    torch.set_num_threads(1)
    if FOLDER not in os.environ:
        return
    if not _current:
        register_module_forward_pre_hook(lambda *given: _current[-1].begin(*given))
        register_module_forward_hook(lambda *given: _current[-1].end(*given))
    for machine in _current:
        machine.close()
    _current[:] = [Machine(number, SCENES[os.environ[SCENE]], Path(os.environ[FOLDER]))]


def score(model: nn.Module, test: TensorDataset) -> float:
    """Evaluate, and log the accuracy."""
    found = accuracy(model, test)
    note(found)
    return found


def note(found: float) -> None:
    """Log an accuracy."""
    if FOLDER in os.environ:
        with (Path(os.environ[FOLDER]) / SCORES).open("a") as log:
            log.write(f"{time.monotonic():.6f} {found:.6f}\n")
