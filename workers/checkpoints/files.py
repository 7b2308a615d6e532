"""The file format of checkpoints: a folder per iteration, a file per block, and a manifest that is written last.

A block's file is a line of JSON that describes its arrays, followed by their bytes: no pickle, no executable content.
Every file is written under a temporary name and renamed, so it is either complete or absent. The manifest has the size
and checksum of each file; a folder without a manifest is not a checkpoint.
"""

import contextlib
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import numpy as np
import torch

from controlplane.protocol.base import UNREADABLE, Count, Positive, Value
from controlplane.protocol.checkpoints import FoundCheckpoint, SavedBlock
from controlplane.protocol.parts import Seed

MANIFEST: Final = "manifest.json"
FORMAT: Final = "paceline-checkpoint"
VERSION: Final = 1
ALIGNMENT: Final = 64
MAX_HEADER_BYTES: Final = 65_536

TYPES: Final = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64}
Tensors = Mapping[str, torch.Tensor]
VALUES, STATE = "values", "state."
"""Names of a block's tensors: its values, and each tensor of its update rule's state with the rule's name for it."""


class CheckpointError(ValueError):
    """A checkpoint cannot be used; the message has the file, what was found and what was expected."""


class Manifest(Value, frozen=True, kw_only=True):
    """The manifest of a checkpoint: everything that another job, even under another control plane, needs to continue
    from it.
    """

    format: Literal["paceline-checkpoint"] = FORMAT
    version: Literal[1] = VERSION
    job: int
    name: str
    iteration: Count
    position: Count
    """The first position of the seeded permutations that was not processed."""
    seed: Seed
    workload: dict[str, Any]
    optimizer: dict[str, Any]
    elements: Positive
    """Number of elements of the flattened parameters."""
    pieces: list[SavedBlock]


class _Array(Value, frozen=True, kw_only=True):
    name: str
    type: Literal["float32", "float64", "int64"]
    shape: list[Count]


def folder_of(job_folder: Path, iteration: int) -> Path:
    """The folder of the checkpoint of that iteration."""
    return job_folder / f"{iteration:09d}"


def write_piece(folder: Path, start: int, stop: int, steps: int, tensors: Tensors) -> SavedBlock:
    """Write one block's ``tensors``; return its entry for the manifest.

    Raises:
        OSError: if it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = [
        _Array(name=name, type=_type_of(name, tensor), shape=list(tensor.shape)) for name, tensor in tensors.items()
    ]
    line = msgspec.json.encode(names)
    head = line + b" " * (-(len(line) + 1) % ALIGNMENT) + b"\n"
    checksum, size = zlib.crc32(head), len(head)
    with _replacing(folder / _piece_name(start)) as file:
        file.write(head)
        for tensor in tensors.values():
            data = tensor.detach().contiguous().reshape(-1).numpy().data.cast("B")
            file.write(data)
            checksum, size = zlib.crc32(data, checksum), size + len(data)
    return SavedBlock(start=start, stop=stop, steps=steps, bytes=size, checksum=checksum)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, which completes the checkpoint.

    Raises:
        OSError: if it cannot be written.
    """
    with _replacing(folder / MANIFEST) as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=2))


def keep_newest(job_folder: Path, keep: int) -> None:
    """Remove all but the newest ``keep`` complete checkpoints, and incomplete older ones. Errors are ignored."""
    whole = sorted((path.parent for path in job_folder.glob(f"*/{MANIFEST}")), reverse=True)
    if not whole:
        return
    oldest = whole[min(keep, len(whole)) - 1]
    for folder in job_folder.iterdir():
        if folder.is_dir() and folder.name < oldest.name:
            (folder / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of the checkpoint in ``folder``.

    Raises:
        CheckpointError: if it does not exist or is invalid.
    """
    try:
        return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except FileNotFoundError:
        raise CheckpointError(f"{folder} has no {MANIFEST}: it was not finished") from None
    except (OSError, *UNREADABLE) as error:
        raise CheckpointError(f"{folder / MANIFEST} cannot be read: {error}") from None


def check(folder: Path, elements: int) -> Manifest:
    """Check every file of a checkpoint against its manifest; return the manifest.

    Raises:
        CheckpointError: with the first file that does not match, or what the checkpoint lacks.
    """
    manifest = read_manifest(folder)
    if manifest.elements != elements:
        raise CheckpointError(f"{folder} has {manifest.elements} parameters, this job has {elements}")
    end = 0
    for piece in sorted(manifest.pieces, key=lambda each: each.start):
        if piece.start != end:
            raise CheckpointError(f"{folder} has no values of the parameters {end} to {piece.start}")
        _read_checked(folder, piece)
        end = piece.stop
    if end != elements:
        raise CheckpointError(f"{folder} has no values of the parameters {end} to {elements}")
    return manifest


def find(job_folder: Path, elements: int) -> tuple[list[FoundCheckpoint], list[str]]:
    """The usable checkpoints below ``job_folder``, and why each of the others is unusable."""
    found, skipped = [], []
    for folder in sorted(job_folder.iterdir(), reverse=True) if job_folder.is_dir() else []:
        if folder.is_dir() and folder.name.isdigit():
            try:
                manifest = check(folder, elements)
                found.append(FoundCheckpoint(iteration=manifest.iteration, position=manifest.position))
            except CheckpointError as error:
                skipped.append(str(error))
    if not found and not skipped:
        skipped.append(f"{job_folder} holds no checkpoint")
    return found, skipped


def read_block(folder: Path, start: int, stop: int) -> tuple[dict[str, torch.Tensor], int]:
    """Read the tensors of the parameters ``start`` to ``stop`` and their step counts, regardless of how blocks were cut
    when written.

    Raises:
        CheckpointError: if a file is missing, or does not match the manifest.
    """
    manifest = read_manifest(folder)
    pieces = [p for p in sorted(manifest.pieces, key=lambda p: p.start) if p.start < stop and start < p.stop]
    covered = pieces and pieces[0].start <= start and pieces[-1].stop >= stop
    if not covered:
        raise CheckpointError(f"{folder} has no values of the parameters {start} to {stop}")
    joined: dict[str, torch.Tensor] = {}
    for piece in pieces:
        begin, end = max(start, piece.start), min(stop, piece.stop)
        for name, tensor in _tensors(folder, piece).items():
            if tensor.shape == (piece.stop - piece.start,):
                # Arrays with an entry per parameter are cut like the parameters. They are 0 for pieces without one, for
                # example of a buffer.
                whole = joined.setdefault(name, torch.zeros(stop - start, dtype=tensor.dtype))
                whole[begin - start : end - start] = tensor[begin - piece.start : end - piece.start]
            else:  # a step count applies to all pieces
                joined.setdefault(name, tensor)
    return joined, max(piece.steps for piece in pieces)


def _tensors(folder: Path, piece: SavedBlock) -> dict[str, torch.Tensor]:
    data = _read_checked(folder, piece)
    try:
        head = data[: data.index(b"\n", 0, MAX_HEADER_BYTES) + 1]
        arrays = msgspec.json.decode(head, type=list[_Array])
        at, found = len(head), {}
        for array in arrays:
            count = int(np.prod(array.shape, dtype=np.int64))
            values = np.frombuffer(data, dtype=array.type, count=count, offset=at).copy()
            found[array.name] = torch.from_numpy(values).view(array.shape)
            at += count * TYPES[array.type].itemsize
    except (ValueError, msgspec.DecodeError) as error:
        raise CheckpointError(f"{folder / _piece_name(piece.start)} is not a block: {error}") from None
    return found


def _read_checked(folder: Path, piece: SavedBlock) -> bytearray:
    path = folder / _piece_name(piece.start)
    try:
        data = bytearray(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
    found = zlib.crc32(data)
    if len(data) != piece.bytes or found != piece.checksum:
        expected = f"{piece.bytes} bytes with checksum {piece.checksum:08x}"
        raise CheckpointError(f"{path} has {len(data)} bytes with checksum {found:08x}, expected {expected}")
    return data


def _piece_name(start: int) -> str:
    return f"block-{start:012d}.bin"


def _type_of(name: str, tensor: torch.Tensor) -> Any:
    for known, dtype in TYPES.items():
        if tensor.dtype is dtype:
            return known
    raise ValueError(f"{name} has type {tensor.dtype}, expected one of {', '.join(TYPES)}")


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Any]:
    """A file that is renamed to ``path`` once it is complete and flushed to disk."""
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
