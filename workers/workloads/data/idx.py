"""IDX, the format of MNIST and EMNIST: a header of big-endian numbers, then bytes; plain or gzip."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from controlplane.protocol.options import IdxData
from workers.workloads.data.examples import Split, prepared
from workers.workloads.data.paths import DataError

UNSIGNED_BYTES = 0x08


def read(folder: Path, options: IdxData) -> Split:
    """Read ``train-images-idx3-ubyte`` and its three companions, or ``<split>-train-...`` and ``<split>-test-...``.

    Raises:
        DataError: if one of them is missing or has another format.
    """
    train, held = ("train", "t10k") if not options.split else (f"{options.split}-train", f"{options.split}-test")
    return prepared(_part(folder, train, options), _part(folder, held, options))


def _part(folder: Path, name: str, options: IdxData) -> tuple[np.ndarray, np.ndarray]:
    images_path, images = _array(folder, f"{name}-images-idx3-ubyte", dimensions=3)
    labels_path, labels = _array(folder, f"{name}-labels-idx1-ubyte", dimensions=1)
    if images.shape[1:] != (options.side, options.side):
        found = " x ".join(map(str, images.shape[1:]))
        raise DataError(f"{images_path}: found images of {found}, expected {options.side} x {options.side} (data.side)")
    if len(images) != len(labels):
        raise DataError(f"{labels_path}: found {len(labels)} labels, expected one for each of {len(images)} images")
    if len(labels) and labels.max() >= options.classes:
        raise DataError(
            f"{labels_path}: found label {labels.max()}, expected 0 to {options.classes - 1} (data.classes)"
        )
    return images[:, None], labels.astype(np.int64)


def _array(folder: Path, name: str, *, dimensions: int) -> tuple[Path, np.ndarray]:
    path, data = _bytes(folder, name)
    begin = 4 + 4 * dimensions
    if len(data) < begin or data[:4] != bytes([0, 0, UNSIGNED_BYTES, dimensions]):
        expected = bytes([0, 0, UNSIGNED_BYTES, dimensions]).hex()
        raise DataError(f"{path}: begins with {data[:4].hex() or 'nothing'}, expected {expected} as IDX files do")
    extents = struct.unpack(f">{dimensions}I", data[4:begin])
    size = math.prod(extents)
    if len(data) - begin != size:
        raise DataError(f"{path}: found {len(data) - begin} bytes behind the header, expected {size} by the header")
    return path, np.frombuffer(data, dtype=np.uint8, offset=begin).reshape(extents)


def _bytes(folder: Path, name: str) -> tuple[Path, bytes]:
    plain, packed = folder / name, folder / f"{name}.gz"
    if plain.is_file():
        return plain, plain.read_bytes()
    if not packed.is_file():
        raise DataError(f"{plain}: does not exist, nor with .gz; expected a file of MNIST's form")
    try:
        return packed, gzip.decompress(packed.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{packed}: cannot be unpacked ({error}), expected gzip") from None
