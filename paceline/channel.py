"""Small all-reduce operations between ranks, separate from the gradients: on the CPU, in a process group."""

import ctypes
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist

from paceline.errors import CannotAttach
from paceline.sooner import store_of_group

KEPT = 8
"""Sums whose tensors are kept alive, so that gloo's thread never drops the last reference to a tensor.

Dropping it needs a Python thread state. A process that a DataLoader forks at that moment inherits the lock of the
thread states, and hangs in ``os.fork`` forever (seen with CPython 3.11 and torch 2.13). The tensors are not freed at
the end of the process either: a thread that requests the GIL of an interpreter that is shutting down is terminated,
which aborts the process with status 134.
"""


class Sum(Protocol):
    """A sum in progress."""

    def result(self) -> list[float]:
        """The sum, once every rank has contributed."""


class AnyChannel(Protocol):
    """A channel for sums over all ranks: every rank makes the same calls in the same order."""

    store: Any
    """A store in which a rank can set a value for the others without a sum; None: there is none."""

    def begin(self, words: Sequence[float]) -> Sum:
        """Start a sum of ``words`` without waiting for it."""

    def total(self, words: Sequence[float]) -> list[float]:
        """Sum ``words`` over all ranks, and wait for the result."""

    def close(self) -> None:
        """Allow the process to end, even while a sum is in progress; no sum may follow."""


class Round:
    """A sum in progress in a process group."""

    __slots__ = ("_total", "_work")

    def __init__(self, total: torch.Tensor, work: Any) -> None:
        self._total, self._work = total, work

    def result(self) -> list[float]:
        """The sum, once every rank has contributed."""
        if self._work is not None:
            self._work.wait()
        values: list[float] = self._total.tolist()
        return values

    def never_free(self) -> None:
        """Keep its tensor until the process has ended, beyond the shutdown of the interpreter."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))


class Channel:
    """Sums in a process group. Every rank makes the same calls in the same order."""

    def __init__(self, group: Any = None) -> None:
        self._group: Any = group or dist.group.WORLD
        self.store = store_of_group()
        self._kept: deque[Round] = deque(maxlen=KEPT)

    def begin(self, words: Sequence[float]) -> Round:
        """Start a sum of ``words`` without waiting for it."""
        total = torch.tensor(words, dtype=torch.float64)
        # Called on the group directly: ``dist.all_reduce`` adds a third to the time of such a small sum.
        under_way = Round(total, self._group.allreduce([total]))
        self._kept.append(under_way)
        return under_way

    def total(self, words: Sequence[float]) -> list[float]:
        """Sum ``words`` over all ranks, and wait for the result."""
        return self.begin(words).result()

    def close(self) -> None:
        """Allow the process to end, even while a sum is in progress; no sum may follow."""
        while self._kept:
            self._kept.popleft().never_free()


class Alone:
    """The channel of a single rank."""

    store = None

    def begin(self, words: Sequence[float]) -> Round:
        """The sum is available at once."""
        return Round(torch.tensor(words, dtype=torch.float64), None)

    def total(self, words: Sequence[float]) -> list[float]:
        """The given ``words``."""
        return list(words)

    def close(self) -> None:
        """Nothing to do: no thread holds a tensor."""


def open_channel(world: int) -> AnyChannel | None:
    """Return the channel of this rank; None if there are several ranks and torch.distributed is not initialized.
    Collective.

    Raises:
        CannotAttach: if torch.distributed has another number of ranks.
    """
    if world == 1:
        return Alone()
    if not (dist.is_available() and dist.is_initialized()):
        return None
    if dist.get_world_size() != world:
        raise CannotAttach(
            f"the launcher has {world} ranks, torch.distributed {dist.get_world_size()}: call"
            " paceline.attach() after init_process_group(), or pass rank and world"
        )
    return Channel() if _sums_on_cpu() else Channel(dist.new_group(backend="gloo"))


def _sums_on_cpu() -> bool:
    config = str(dist.get_backend_config())
    return "cpu:gloo" in config or config == "gloo"
