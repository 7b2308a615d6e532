"""Divides a block into parts by group and tensor, and creates torch's optimizers over them."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Any

import torch

from controlplane.protocol.optimizers import Setting, is_factory, setting_of, setting_of_group, settings
from controlplane.protocol.parts import SpecError
from controlplane.protocol.spec import JobSpec
from controlplane.protocol.training import Optimizer
from workers.workloads.layout import Entry, Layout
from workers.workloads.local import Local
from workers.workloads.shape import Clipping

NAMED = 20
"""Maximum number of parameters named in an error."""

_FACTORIES: dict[str, Callable[..., Any]] = {}
"""Factories from the job's code that this process was allowed to import."""


@dataclass(slots=True, kw_only=True)
class Part:
    """Adjacent elements of a block that are trained alike."""

    start: int
    stop: int
    group: int
    """0: no group; else the group's index in the spec plus one."""
    setting: Setting
    shape: tuple[int, ...]
    name: str = ""
    """Name of the tensor; "" if it spans several tensors."""

    def view(self, values: torch.Tensor) -> torch.Tensor:
        """Its part of the block's values, or of the gradients."""
        return values[self.start : self.stop].view(self.shape)


def admit_factories(spec: JobSpec, local: Local) -> None:
    """Import the optimizers from the job's code, before they are used.

    Raises:
        SpecError: if this machine does not run jobs' code, or there is no such factory.
    """
    applied = "federated.server" if spec.federated else "optimizer"
    named = {field: one.name for field, one in settings(spec.optimizer)}
    named |= {field: one.name for field, one in settings(spec.applied, applied)}
    for field, name in named.items():
        if not is_factory(name):
            continue
        if not local.allow_code:
            expected = "one of torch's: this machine runs no code of jobs (its agent was not given --allow-code)"
            raise SpecError(field, name, expected)
        _FACTORIES[name] = _import(name, field)


def check_clip(rule: object, optimizer: Optimizer) -> None:
    """Raise ``SpecError`` if the spec requests clipping that the rule does not support: a user's own may not."""
    if optimizer.clip is not None and not isinstance(rule, Clipping):
        found = type(rule).__name__
        raise SpecError("optimizer.clip", found, "none with this rule, which does not say the norm of a gradient")


def check_groups(spec: JobSpec, layout: Layout) -> None:
    """Raise ``SpecError`` unless the groups of the job's optimizers match existing parameters."""
    for optimizer in (spec.optimizer, spec.applied):
        groups_of(optimizer, layout)


def parts_of(optimizer: Optimizer, layout: Layout | None, start: int, size: int) -> list[Part]:
    """The parts of a block of ``size`` elements at offset ``start`` of the flat vector; buffers are in none.

    Without a layout the block is one part.

    Raises:
        SpecError: if a group has no parameters, or an optimizer cannot train the block's tensors.
    """
    usual = setting_of(optimizer)
    is_whole = layout is not None and start == 0 and size >= layout.edge
    for field, one in settings(optimizer):
        if not (_is_element_wise(one) or is_whole):
            raise SpecError(
                field,
                one.name,
                "an optimizer that treats each element by itself, where a block is less than all parameters: with "
                "communication: all-reduce every worker holds them all (a factory that you wrote that does has the "
                "attribute element_wise = True)",
            )
    if layout is None:
        if optimizer.groups:
            expected = "none: the rule of this workload has no positions of its tensors (layout, start)"
            raise SpecError("optimizer.groups", f"{len(optimizer.groups)} groups", expected)
        return [Part(start=0, stop=size, group=0, setting=usual, shape=(size,))]
    chosen = groups_of(optimizer, layout)
    used = [usual, *(setting_of_group(optimizer, at) for at in range(len(optimizer.groups)))]
    _check_matrices(layout, chosen, used)
    pieces = [piece for piece in layout.span(start, start + size) if piece.entry.kind == "parameter"]
    parts = []
    for (group, apart), run in groupby(pieces, lambda piece: _run_of(piece.entry, chosen, used)):
        of_run = list(run)
        first, last = of_run[0], of_run[-1]
        shape = first.entry.shape if apart else (last.stop - first.start,)
        parts.append(Part(start=first.start, stop=last.stop, group=group, setting=used[group], shape=shape, name=apart))
    return parts


def groups_of(optimizer: Optimizer, layout: Layout) -> dict[str, int]:
    """The group of each parameter by name; 0: none, else the group's index plus one.

    Raises:
        SpecError: if a pattern matches no parameter, or all parameters of a group are in earlier groups.
    """
    names, chosen = list(layout.shapes), dict[str, int]()
    for at, group in enumerate(optimizer.groups):
        field = f"optimizer.groups[{at}].parameters"
        patterns = [group.parameters] if isinstance(group.parameters, str) else group.parameters
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise SpecError(field, pattern, f"a name or pattern of parameters: {_listed(names)}")
        own = [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
        left = [name for name in own if name not in chosen]
        if not left:
            taken = f"parameters that no group before it has: {_listed(own)} are taken"
            raise SpecError(field, group.parameters, taken)
        chosen |= dict.fromkeys(left, at + 1)
    return {name: chosen.get(name, 0) for name in names}


def build(setting: Setting, tensors: Sequence[torch.Tensor]) -> torch.optim.Optimizer:
    """Create a torch optimizer over ``tensors``, with its fused kernel if there is one.

    Raises:
        SpecError: if a factory does not return an optimizer.
    """
    rate = {} if setting.lr is None else {"lr": setting.lr}
    if setting.entry is not None:
        fused = {"fused": True} if setting.entry.fused and _has_kernel(setting.entry.torch, tensors[0].device) else {}
        kind: Callable[..., torch.optim.Optimizer] = getattr(torch.optim, setting.entry.torch)
        return kind(tensors, **rate, **setting.options, **fused)
    try:
        made = _factory(setting.name)(tensors, **rate, **setting.options)
    except SpecError:
        raise
    except Exception as error:
        expected = f"a factory that takes parameters, lr and these options ({type(error).__name__}: {error})"
        raise SpecError("optimizer.name", setting.name, expected) from error
    if not isinstance(made, torch.optim.Optimizer):
        found = type(made).__name__
        raise SpecError("optimizer.name", setting.name, f"a factory of a torch.optim.Optimizer, not of a {found}")
    return made


def _has_kernel(kind: str, device: torch.device) -> bool:
    """Whether torch has a fused kernel of an optimizer on that device: Adagrad's is only for CPUs."""
    return device.type == "cpu" or (device.type == "cuda" and kind != "Adagrad")


def _factory(name: str) -> Callable[..., Any]:
    if name not in _FACTORIES:
        raise SpecError("optimizer.name", name, "a factory that this process was allowed to import")
    return _FACTORIES[name]


def _import(name: str, field: str) -> Callable[..., Any]:
    module, _, factory = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), factory, None)
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
        raise SpecError(field, name, f"a module that can be imported here ({reason})") from error
    if not callable(found):
        raise SpecError(field, name, f"a callable {factory!r} in module {module}")
    return found  # type: ignore[no-any-return]


def _is_element_wise(setting: Setting) -> bool:
    if setting.entry is not None:
        return setting.entry.element_wise
    return getattr(_factory(setting.name), "element_wise", False) is True


def _run_of(entry: Entry, chosen: dict[str, int], used: Sequence[Setting]) -> tuple[int, str]:
    """Which adjacent elements form one part: a group, and a single tensor if the optimizer needs it whole."""
    group = chosen[entry.name]
    return group, "" if _is_element_wise(used[group]) else entry.name


def _check_matrices(layout: Layout, chosen: dict[str, int], used: Sequence[Setting]) -> None:
    for group, setting in enumerate(used):
        if setting.entry is None or not setting.entry.matrices:
            continue
        others = [name for name, shape in layout.shapes.items() if chosen[name] == group and len(shape) != 2]
        if others:
            field = f"optimizer.groups[{group - 1}].name" if group else "optimizer.name"
            cure = f"groups: [{{parameters: {others[:NAMED]}, name: adamw}}]"
            raise SpecError(field, setting.name, f"matrices alone, which {_listed(others)} are not: {cure}")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
