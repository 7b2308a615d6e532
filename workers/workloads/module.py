"""Maps a torch module to the flat vector: its parameters, then the buffers of its ``state_dict``.

Buffers (running statistics, counts of batches, constants) and frozen parameters are the tail of the vector, which no
optimizer changes. Values that float32 cannot represent, or that a weighted mean would falsify, are refused with the
cure.
"""

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from controlplane.protocol.parts import SpecError
from workers.workloads.layout import Entry, Layout
from workers.workloads.tensors import numbers

EXACT = 2**24
"""float32 represents every integer up to this one."""

WHOLE = ("int8", "int16", "int32", "int64", "uint8")
FIELD = "workload.name"
Tensors = Mapping[str, torch.Tensor]
_building = threading.Lock()


class Shape:
    """The layout of a module in the flat vector, and the names of each tensor in its ``state_dict``.

    Raises:
        SpecError: if a part of it cannot be trained or returned correctly.
    """

    def __init__(self, module: nn.Module) -> None:
        _check_layers(module)
        trained, beside = _tensors(module)
        _check_types(trained, beside)
        self.layout = Layout.of(
            {name: tuple(each.shape) for name, each in trained.items()},
            {name: (tuple(each.shape), _type(each)) for name, each in beside.items()},
        )
        if not self.layout.shapes:
            raise SpecError(FIELD, f"a {type(module).__name__} without parameters", "at least one that is trained")
        names = {id(each): name for name, each in [*trained.items(), *beside.items()]}
        _check_saved(module, set(names))
        self.saved = {key: names[id(each)] for key, each in module.state_dict(keep_vars=True).items()}
        """The tensor of each entry of the ``state_dict``; shared ones have several entries."""

    def write(self, module: nn.Module, vector: np.ndarray) -> None:
        """Write the module's values into ``vector``.

        Raises:
            SpecError: if float32 cannot represent some values besides the parameters exactly.
        """
        trained, beside = _tensors(module)
        check_exact(beside)
        views = self.layout.views(vector)
        for name, each in (trained | beside).items():
            torch.from_numpy(views[name]).copy_(each.detach())

    def state(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """The whole ``state_dict`` with the values of ``vector``, in the module's own types; views if possible."""
        entries = {entry.name: entry for entry in self.layout.entries}
        views = self.layout.views(vector)
        typed = {name: _as(view, entries[name]) for name, view in views.items()}
        return {key: typed[name] for key, name in self.saved.items()}


class Tail:
    """The buffers and frozen parameters of one module, set from the flat vector before each pass over samples.

    Args:
        module: on the device where it computes.
    """

    def __init__(self, module: nn.Module, layout: Layout) -> None:
        self._edge = layout.edge
        self._kept = [(entry, *_place(module, entry.name)) for entry in layout.buffers]
        self._steps: dict[str, float] = {}
        """The increment of each counter in a pass."""

    @torch.no_grad()
    def load(self, values: torch.Tensor) -> None:
        """Set them from the whole vector."""
        for entry, owner, name in self._kept:
            own = values[entry.start : entry.stop].view(entry.shape)
            tensor = getattr(owner, name).detach()
            tensor.copy_(own if tensor.is_floating_point() else own.round())
            if name in owner._buffers:
                owner._buffers[name] = tensor  # without attributes that a forward pass may have added to it

    @torch.no_grad()
    def add_changes(self, values: torch.Tensor, sums: torch.Tensor, samples: int) -> bool:
        """Add ``samples`` times the change of a pass to the whole vector ``sums``; return whether all of it is finite.

        Raises:
            SpecError: if something changed whose mean over workers would be wrong.
        """
        marks: list[tuple[Entry, torch.Tensor]] = []
        for entry, owner, name in self._kept:
            part, tensor = slice(entry.start, entry.stop), getattr(owner, name)
            if tuple(tensor.shape) != entry.shape or _type(tensor) != entry.dtype:
                found = f"{_type(tensor)} of {tuple(tensor.shape)} in the buffer {entry.name} after a forward pass"
                raise SpecError(FIELD, found, f"{entry.dtype} of {entry.shape}, as it was built")
            change = tensor.reshape(-1).to(torch.float32) - values[part]
            if not tensor.is_floating_point() and change.numel():
                marks.append((entry, torch.stack(change.aminmax())))
            sums[part].add_(change, alpha=samples)
        if not self._kept:
            return True
        read = numbers([torch.isfinite(sums[self._edge :]).all(), *(mark for _, mark in marks)])
        for at, (entry, _) in enumerate(marks):
            self._check_counter(entry, read[2 * at + 1], read[2 * at + 2])
        return bool(read[0])

    @torch.no_grad()
    def check_counters(self, run: Callable[[int], object]) -> None:
        """Test how passes over one sample and over two change integer buffers; everything is restored afterwards.

        Raises:
            SpecError: if the changes differ: a mean over workers with unequal shares would be wrong.
        """
        if not any(entry.dtype in ("bool", *WHOLE) and not _is_norms(owner) for entry, owner, _ in self._kept):
            return
        before = [getattr(owner, name).detach().clone() for _, owner, name in self._kept]
        for samples in (1, 2):
            run(samples)
            for (entry, owner, name), old in zip(self._kept, before, strict=True):
                tensor = getattr(owner, name).detach()
                if not old.is_floating_point() and old.numel():
                    change = tensor.to(torch.float32) - old.to(torch.float32)
                    self._check_counter(entry, *numbers(change.aminmax()))
                tensor.copy_(old)

    def _check_counter(self, entry: Entry, least: float, step: float) -> None:
        """Integers must stay constant, or grow by the same amount in every pass: otherwise their mean is not an
        integer.
        """
        if not step and not least:
            return
        if entry.dtype == "bool" or least != step or self._steps.setdefault(entry.name, step) != step:
            expected = (
                "one that stays as it is or rises by the same in every pass: it is averaged over workers. Keep what "
                "each worker counts for itself with register_buffer(..., persistent=False), or as float32"
            )
            raise SpecError(FIELD, f"the {entry.dtype} buffer {entry.name} that a forward pass changes", expected)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch, numpy and random in this context, and restore their states afterwards."""
    drawn, numbers = random.getstate(), np.random.get_state()
    with _building, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(drawn)
            np.random.set_state(numbers)


def build_bare(build: Callable[[], nn.Module]) -> nn.Module:
    """The module without memory for its values, or with it if it cannot be built without."""
    try:
        with seeded(0), torch.device("meta"):
            return build()
    except (RuntimeError, NotImplementedError):
        with seeded(0):
            return build()


def normalise_lone_samples(module: nn.Module) -> None:
    """Make batch norm use its running statistics, as in ``eval()``, if a pass has one value per channel."""
    for layer in module.modules():
        if isinstance(layer, _BatchNorm):
            layer.register_forward_pre_hook(_set_aside)
            layer.register_forward_hook(_take_back, always_call=True)


def untie(module: nn.Module) -> dict[int, list[nn.Parameter]]:
    """Replace further occurrences of a shared parameter by separate ones with the same values and gradient memory.

    Gradients of all occurrences are then added in place. Otherwise autograd accumulates them in three additional
    tensors of its size, which is a lot of memory for tied embeddings.

    Returns:
        The separate ones, by the id of the parameter.
    """
    twins: dict[int, list[nn.Parameter]] = {}
    for layer in module.modules():
        for name, parameter in list(layer._parameters.items()):
            if parameter is None or not parameter.requires_grad:
                continue
            if id(parameter) not in twins:
                twins[id(parameter)] = []
                continue
            twin = nn.Parameter(parameter.data)
            twin.grad = parameter.grad
            twins[id(parameter)].append(twin)
            setattr(layer, name, twin)
    return twins


def _set_aside(layer: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    values = inputs[0]
    if layer.training and values.dim() > 1 and values.numel() == values.shape[1]:
        layer.training = False
        layer.is_lone = True  # type: ignore[assignment]


def _take_back(layer: nn.Module, inputs: object, outputs: object) -> None:
    if getattr(layer, "is_lone", False):
        layer.training = True
        layer.is_lone = False  # type: ignore[assignment]


def check_exact(beside: Tensors) -> None:
    """Raise ``SpecError`` unless float32 represents all these values exactly."""
    for name, each in beside.items():
        values = each.detach()
        is_same = values.to(torch.float32).to(values.dtype) == values
        is_small = (
            values.isfinite()
            if values.is_floating_point()
            else values.abs() <= EXACT
            if _type(each) in WHOLE
            else is_same
        )
        if not bool((is_same & is_small).all()):
            cure = "finite values that float32 holds exactly (whole numbers up to 2**24), or persistent=False"
            raise SpecError(FIELD, f"values of the {_type(each)} buffer {name}", cure)


def _is_norms(owner: nn.Module) -> bool:
    """Whether its integers are torch's own count of batches."""
    return isinstance(owner, _BatchNorm | nn.modules.instancenorm._InstanceNorm)


def _place(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The layer with the tensor of that name, and its attribute: a forward pass may replace it."""
    path, _, leaf = name.rpartition(".")
    return module.get_submodule(path), leaf


def _tensors(module: nn.Module) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Parameters and buffers of the ``state_dict``; each tensor once, under its first name."""
    persistent = {id(each) for each in module.state_dict(keep_vars=True).values() if isinstance(each, torch.Tensor)}
    parameters = dict(module.named_parameters())
    trained: dict[str, torch.Tensor] = {name: each for name, each in parameters.items() if each.requires_grad}
    frozen = {name: each for name, each in parameters.items() if not each.requires_grad}
    buffers = {name: each for name, each in module.named_buffers() if id(each) in persistent}
    return trained, {**frozen, **buffers}


def _check_layers(module: nn.Module) -> None:
    for name, layer in module.named_modules():
        found = f"{type(layer).__name__} {name or '(the module itself)'}"
        if isinstance(layer, nn.SyncBatchNorm):
            expected = "GroupNorm or LayerNorm, or BatchNorm: workers normalise by the statistics of their own shares"
            raise SpecError(FIELD, found, f"{expected}, and do not synchronise them within a pass")
        if isinstance(layer, _BatchNorm) and not layer.track_running_stats:
            expected = "track_running_stats=True, or GroupNorm: evaluation and shares of one sample have no statistics"
            raise SpecError(FIELD, f"{found} without running statistics", expected)
    for name, parameter in [*module.named_parameters(), *module.named_buffers()]:
        if is_lazy(parameter):
            raise SpecError(FIELD, f"the lazy parameter {name}", "sizes that are given: not those of Lazy modules")


def _check_types(trained: Tensors, beside: Tensors) -> None:
    for name, each in trained.items():
        if each.dtype is not torch.float32:
            cure = "float32 (module.float()); autocast within forward computes in less"
            raise SpecError(FIELD, f"the {_type(each)} parameter {name}", cure)
    for name, each in beside.items():
        if _type(each) not in ("float32", "float64", "float16", "bool", *WHOLE):
            expected = "float32, float64, float16, whole numbers or bool, or register_buffer(persistent=False)"
            raise SpecError(FIELD, f"the {_type(each)} buffer {name}", expected)


def _check_saved(module: nn.Module, known: set[int]) -> None:
    """Check that every entry of the ``state_dict`` is in the flat vector."""
    for key, each in module.state_dict(keep_vars=True).items():
        if id(each) not in known:
            expected = "parameters and buffers alone in the state_dict: extra state is neither trained nor delivered"
            raise SpecError(FIELD, f"the entry {key} of the module's state_dict", expected)


def _type(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _as(view: np.ndarray, entry: Entry) -> np.ndarray:
    """The values in their type in the module."""
    if entry.dtype == "float32":
        return view
    return (view if entry.dtype.startswith("float") else np.rint(view)).astype(entry.dtype)
