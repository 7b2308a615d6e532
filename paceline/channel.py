"""Small sums over the ranks, separate from the gradients: on the CPU, in the script's process group or another."""

import ctypes
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist

from paceline.errors import CannotAttach
from paceline.sooner import store_of_group

KEPT = 8
"""Sums whose tensors are kept alive, so that gloo's thread never drops the last reference to one. It would need
a Python thread state; a process that a DataLoader forks at that moment inherits the lock which guards them, and hangs
in ``os.fork`` forever (seen with CPython 3.11 and torch 2.13). At the end of the process they are never freed: the
thread that asks an ending interpreter for its lock is ended itself, which aborts the process with status 134."""


class Sum(Protocol):
    """A sum under way."""

    def result(self) -> list[float]:
        """The sum, once every rank has added its part."""


class AnyChannel(Protocol):
    """Where ranks add up what they say: every rank makes the same calls in the same order."""

    store: Any
    """Where one rank can leave a word for the others without a sum; None: there is none."""

    def begin(self, words: Sequence[float]) -> Sum:
        """Add ``words`` without waiting for the sum."""

    def total(self, words: Sequence[float]) -> list[float]:
        """Add ``words``, and wait for the sum."""

    def close(self) -> None:
        """Let the process end, also while a sum is under way; nothing is added behind this."""


class Round:
    """A sum under way in a process group."""

    __slots__ = ("_total", "_work")

    def __init__(self, total: torch.Tensor, work: Any) -> None:
        self._total, self._work = total, work

    def result(self) -> list[float]:
        """The sum, once every rank has added its part."""
        if self._work is not None:
            self._work.wait()
        values: list[float] = self._total.tolist()
        return values

    def never_free(self) -> None:
        """Keep its tensor to the end of the process, behind that of the interpreter too."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))


class Channel:
    """Every rank makes the same calls in the same order."""

    def __init__(self, group: Any = None) -> None:
        self._group: Any = group or dist.group.WORLD
        self.store = store_of_group()
        self._kept: deque[Round] = deque(maxlen=KEPT)

    def begin(self, words: Sequence[float]) -> Round:
        """Add ``words`` without waiting for the sum."""
        total = torch.tensor(words, dtype=torch.float64)
        # Of the group itself: the function around it costs a third of such a sum again.
        under_way = Round(total, self._group.allreduce([total]))
        self._kept.append(under_way)
        return under_way

    def total(self, words: Sequence[float]) -> list[float]:
        """Add ``words``, and wait for the sum."""
        return self.begin(words).result()

    def close(self) -> None:
        """Let the process end, also while a sum is under way; nothing is added behind this."""
        while self._kept:
            self._kept.popleft().never_free()


class Alone:
    """The channel of a single rank."""

    store = None

    def begin(self, words: Sequence[float]) -> Round:
        """The sum is available at once."""
        return Round(torch.tensor(words, dtype=torch.float64), None)

    def total(self, words: Sequence[float]) -> list[float]:
        """The given words."""
        return list(words)

    def close(self) -> None:
        """No thread has anything of this."""


def open_channel(world: int) -> AnyChannel | None:
    """The channel of this rank; None where there are several, and torch.distributed is not initialised. Collective.

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
