"""CIFAR-10 in its binary format: rows of one byte of label and 3,072 bytes of red, green and blue."""

from pathlib import Path

import numpy as np

from controlplane.protocol.options import FolderData
from workers.workloads.data.examples import Split, prepared
from workers.workloads.data.paths import DataError

ROW_BYTES = 1 + 3 * 32 * 32
CLASSES = 10


def read(folder: Path, options: FolderData) -> Split:
    """Read ``data_batch_*.bin`` and ``test_batch.bin``.

    Raises:
        DataError: if one of them is missing or has another format.
    """
    batches = sorted(folder.glob("data_batch_*.bin"))
    if not batches:
        raise DataError(f"{folder}: found no data_batch_*.bin, expected CIFAR-10's files in their binary form")
    parts = [_rows(path) for path in batches]
    train = np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])
    return prepared(train, _rows(folder / "test_batch.bin"))


def _rows(path: Path) -> tuple[np.ndarray, np.ndarray]:
    if not path.is_file():
        raise DataError(f"{path}: does not exist, expected a file of CIFAR-10 in its binary form")
    data = np.fromfile(path, dtype=np.uint8)
    if not len(data) or len(data) % ROW_BYTES:
        raise DataError(f"{path}: found {len(data)} bytes, expected a multiple of {ROW_BYTES} as in CIFAR-10")
    rows = data.reshape(-1, ROW_BYTES)
    if rows[:, 0].max() >= CLASSES:
        raise DataError(f"{path}: found label {rows[:, 0].max()}, expected 0 to {CLASSES - 1} as in CIFAR-10")
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].astype(np.int64)
