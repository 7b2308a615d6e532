"""Optimizer state of a block, as named tensors that do not depend on how the block is divided.

Per-element state is as long as the block, regardless of its parts, so that it can be divided and joined like the
values. Group state (a step count) is stored once: ``step``, or ``step@2`` for the second group. If groups have
different optimizers, names start with theirs: ``adamw.exp_avg``. State with another shape, of an optimizer that needs
whole tensors, is stored by tensor: ``row_var#hidden.weight``.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from workers.workloads.trained import Part, build

NUMBERS: Mapping[type, str] = {bool: "bool", int: "int", float: "float"}
"""Python numbers are stored as tensors without dimensions, under ``name:type``."""


class ParameterState(NamedTuple):
    """One part, and the optimizer that has its state."""

    part: Part
    tensor: torch.Tensor
    optimizer: torch.optim.Optimizer
    is_mixed: bool
    """Whether the job has several optimizers."""

    @property
    def state(self) -> dict[str, Any]:
        """As torch stores it: empty before the first step."""
        found: dict[str, Any] = self.optimizer.state[self.tensor]
        return found

    @property
    def prefix(self) -> str:
        """Prefix of the names."""
        return f"{self.part.setting.name}." if self.is_mixed else ""

    @property
    def suffix(self) -> str:
        """Suffix of names of group state."""
        return f"@{self.part.group}" if self.part.group else ""


def gather(held: Sequence[ParameterState], values: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return all state by name; views if a part is the whole block.

    Raises:
        ValueError: if an optimizer's state is neither a tensor nor a number.
    """
    found: dict[str, torch.Tensor] = {}
    for each in held:
        for key, value in each.state.items():
            name = f"{each.prefix}{key}"
            if value is None:
                continue
            if type(value) in NUMBERS:
                found[f"{name}{each.suffix}:{NUMBERS[type(value)]}"] = torch.tensor(value)
            elif not isinstance(value, torch.Tensor):
                raise ValueError(f"{each.part.setting.name} remembers {key} as {type(value).__name__}, not as a tensor")
            elif not value.dim():
                found[f"{name}{each.suffix}"] = value
            elif value.shape != each.tensor.shape:
                found[f"{name}#{each.part.name}"] = value
            elif len(held) == 1 and each.part.shape == values.shape:
                found[name] = value
            else:
                each.part.view(found.setdefault(name, torch.zeros_like(values))).copy_(value)
    return found


def spread(state: Mapping[str, torch.Tensor], held: Sequence[ParameterState], values: torch.Tensor) -> None:
    """Copy the result of ``gather`` to the optimizers of the same parameters, regardless of how they are divided now.

    An optimizer that lacks part of its state starts without state: another optimizer had written it.
    """
    for each in held:
        expected = _expected(each)
        found = {key: _find(key, each, state, values) for key in expected}
        each.state.clear()
        if all(value is not None for value in found.values()):
            each.state.update({key: _on(expected[key], value) for key, value in found.items()})


def _find(key: str, held: ParameterState, state: Mapping[str, torch.Tensor], values: torch.Tensor) -> Any:
    name = f"{held.prefix}{key}"
    for kind, suffix in NUMBERS.items():
        number = state.get(f"{name}{held.suffix}:{suffix}", state.get(f"{name}:{suffix}"))
        if number is not None:
            return kind(number.item())
    if (whole := state.get(f"{name}#{held.part.name}")) is not None:
        return whole.clone()
    if (one := state.get(f"{name}{held.suffix}", state.get(name))) is not None and not one.dim():
        return one.clone()
    every = state.get(name)
    return held.part.view(every).clone() if every is not None and every.shape == values.shape else None


def _on(where: torch.device | None, value: Any) -> Any:
    return value.to(where) if isinstance(value, torch.Tensor) and where is not None else value


def _expected(held: ParameterState) -> dict[str, torch.device | None]:
    """The state of such an optimizer after a step and its devices, from a trial step on parameters of the same shape.

    Counts of steps lie on the host with some of torch's kernels, beside the parameters with others.
    """
    probe = torch.zeros(held.part.shape if held.part.name else (1,), device=held.tensor.device)
    probe.grad = torch.zeros_like(probe)
    optimizer = build(held.part.setting, [probe])
    optimizer.step()
    found = optimizer.state[probe].items()
    return {key: getattr(value, "device", None) for key, value in found if value is not None}
