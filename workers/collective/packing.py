"""Copies the state of an update rule between members as bytes, so that a joining member can
continue like the others.
"""

from collections.abc import Mapping

import msgspec
import torch

from controlplane.protocol.base import Value
from workers.collective.group import Group

DTYPES = {name: getattr(torch, name) for name in ("float32", "float64", "int64", "bool")}


class Kept(Value, frozen=True, kw_only=True):
    """One tensor of the state."""

    name: str
    dtype: str
    shape: list[int]


def copy_state(
    group: Group, state: Mapping[str, torch.Tensor], *, root: int, is_root: bool, timeout_s: float
) -> dict[str, torch.Tensor]:
    """Copy the state of the member ``root`` to every member; the state that others pass is ignored.

    Raises:
        GroupBroken: if a member fails.
    """
    kept = [_described(name, tensor) for name, tensor in sorted(state.items())]
    header = _copy_bytes(group, msgspec.msgpack.encode(kept) if is_root else b"", root=root, timeout_s=timeout_s)
    copied = {}
    for entry in msgspec.msgpack.decode(header, type=list[Kept]):
        # The root uses its own: a copy of an optimizer's complete state may be twice as large as the model.
        tensor = state[entry.name] if is_root else torch.zeros(entry.shape, dtype=DTYPES[entry.dtype])
        group.copy(tensor, root=root, timeout_s=timeout_s)
        copied[entry.name] = tensor
    return copied


def _described(name: str, tensor: torch.Tensor) -> Kept:
    return Kept(name=name, dtype=str(tensor.dtype).removeprefix("torch."), shape=list(tensor.shape))


def _copy_bytes(group: Group, data: bytes, *, root: int, timeout_s: float) -> bytes:
    size = torch.tensor([len(data)])
    group.copy(size, root=root, timeout_s=timeout_s)
    carried = torch.zeros(int(size), dtype=torch.uint8)
    if data:
        carried.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
    group.copy(carried, root=root, timeout_s=timeout_s)
    return bytes(carried.numpy())
