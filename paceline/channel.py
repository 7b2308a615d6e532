"""Small all-reduce operations between ranks, separate from the gradients: on the CPU, in a process group."""

import ctypes
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist

from paceline.errors import CannotAttach
from paceline.sooner import store_of_group


class Sum(Protocol):
    """A sum in progress."""

    def result(self) -> list[float]:
        """The sum, once every rank has contributed; read it once."""


class AnyChannel(Protocol):
    """A channel for sums over all ranks: every rank makes the same calls in the same order."""

    store: Any
    """A store in which a rank can set a value for the others without a sum, or None."""

    def begin(self, words: Sequence[float]) -> Sum:
        """Start a sum of ``words`` without waiting for it."""

    def total(self, words: Sequence[float]) -> list[float]:
        """Sum ``words`` over all ranks, and wait for the result."""


class Buffers:
    """The tensors of sums: used again once their sum was read, and never freed.

    Gloo's thread drops its references some time after the sum. If only the Python object's reference is left then, the
    thread needs a thread state and the GIL. A process that a DataLoader forks at that moment inherits the lock of the
    thread states and hangs in ``os.fork``; a process whose interpreter shuts down is aborted with status 134 (seen
    with CPython 3.11 and torch 2.13). So each tensor has one more reference, as the ``grad`` of a tensor that outlives
    the interpreter.
    """

    def __init__(self) -> None:
        self._free: defaultdict[int, list[torch.Tensor]] = defaultdict(list)

    def take(self, words: Sequence[float]) -> torch.Tensor:
        """Return a tensor with these ``words``, float64."""
        values = torch.tensor(words, dtype=torch.float64)
        if not (free := self._free[len(words)]):
            return _never_freed(values)
        return free.pop().copy_(values)

    def give_back(self, tensor: torch.Tensor) -> None:
        """Allow another sum to use the tensor."""
        self._free[len(tensor)].append(tensor)


def _never_freed(tensor: torch.Tensor) -> torch.Tensor:
    holder = torch.empty_like(tensor)
    holder.grad = tensor
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(holder))
    return tensor


class Round:
    """A sum in progress in a process group."""

    __slots__ = ("_buffers", "_total", "_work")

    def __init__(self, total: torch.Tensor, work: Any, buffers: Buffers) -> None:
        self._total, self._work, self._buffers = total, work, buffers

    def result(self) -> list[float]:
        """The sum, once every rank has contributed; read it once."""
        self._work.wait()
        values: list[float] = self._total.tolist()
        self._buffers.give_back(self._total)
        return values


class Channel:
    """Sums in a process group. Every rank makes the same calls in the same order."""

    def __init__(self, group: Any = None) -> None:
        self._group: Any = group or dist.group.WORLD
        self.store = store_of_group()
        self._buffers = Buffers()

    def begin(self, words: Sequence[float]) -> Round:
        """Start a sum of ``words`` without waiting for it."""
        total = self._buffers.take(words)
        # Called on the group directly: ``dist.all_reduce`` adds a third to the time of such a small sum.
        return Round(total, self._group.allreduce([total]), self._buffers)

    def total(self, words: Sequence[float]) -> list[float]:
        """Sum ``words`` over all ranks, and wait for the result."""
        return self.begin(words).result()


class Known:
    """The sum of a single rank."""

    __slots__ = ("_words",)

    def __init__(self, words: Sequence[float]) -> None:
        self._words = words

    def result(self) -> list[float]:
        """The words themselves."""
        return list(self._words)


class Alone:
    """The channel of a single rank."""

    store = None

    def begin(self, words: Sequence[float]) -> Known:
        """The sum is available at once."""
        return Known(words)

    def total(self, words: Sequence[float]) -> list[float]:
        """The given ``words``."""
        return list(words)


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
    return Channel() if _sums_on_cpu() else Channel(dist.new_group(backend="gloo", timeout=_timeout()))


def _sums_on_cpu() -> bool:
    config = str(dist.get_backend_config())
    return "cpu:gloo" in config or config == "gloo"


def _timeout() -> timedelta | None:
    """The longest timeout of the script's process group, so that no sum ends before it; None if torch does not say."""
    world: Any = dist.group.WORLD
    try:
        longest: timedelta = max(world._get_backend(device).options._timeout for device in world._device_types)
    except (AttributeError, RuntimeError, ValueError):
        return None
    return longest
