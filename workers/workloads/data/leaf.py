"""LEAF's FEMNIST: folders ``train`` and ``test`` of JSON files, each with its users and their samples."""

import json
import operator
from pathlib import Path
from typing import Any

import numpy as np

from controlplane.protocol.options import FolderData
from workers.workloads.data.examples import Split, prepared
from workers.workloads.data.paths import DataError

SIDE = 28
CLASSES = 62


def read(folder: Path, options: FolderData) -> Split:
    """Read every ``train/*.json`` and ``test/*.json``; pixels are numbers from 0 to 1 in one list of 784.

    Raises:
        DataError: if there is none, or one of them has another format.
    """
    images, labels, writers = _part(folder / "train")
    held_images, held_labels, _ = _part(folder / "test")
    names = {name: at for at, name in enumerate(sorted(set(writers)))}
    numbers = np.array([names[name] for name in writers], dtype=np.int64)
    return prepared((images, labels), (held_images, held_labels), writers=numbers)


def _part(folder: Path) -> tuple[np.ndarray, np.ndarray, list[str]]:
    files = sorted(folder.glob("*.json"))
    if not files:
        raise DataError(f"{folder}: found no .json, expected files of LEAF's FEMNIST")
    parts = [_users(path) for path in files]
    images = np.concatenate([images for images, _, _ in parts])
    labels = np.concatenate([labels for _, labels, _ in parts])
    return images, labels, [name for _, _, names in parts for name in names]


def _users(path: Path) -> tuple[np.ndarray, np.ndarray, list[str]]:
    try:
        document = json.loads(path.read_bytes())
        users: list[str] = document["users"]
        data: dict[str, Any] = document["user_data"]
        images = np.array([row for user in users for row in data[user]["x"]], dtype=np.float32)
        labels = np.array([operator.index(label) for user in users for label in data[user]["y"]], dtype=np.int64)
        names = [user for user in users for _ in data[user]["y"]]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise DataError(
            f"{path}: {type(error).__name__} {error}, expected LEAF's form: users, and user_data with x and y of each"
        ) from None
    if images.shape != (len(labels), SIDE * SIDE):
        found = " x ".join(map(str, images.shape))
        raise DataError(f"{path}: found pixels of {found}, expected {len(labels)} samples of {SIDE * SIDE}")
    if not np.isfinite(images).all():
        at = int(np.flatnonzero(~np.isfinite(images).all(axis=1))[0])
        raise DataError(f"{path}: found a pixel of sample {at} that is not a number, expected numbers from 0 to 1")
    if len(labels) and not 0 <= labels.min() <= labels.max() < CLASSES:
        raise DataError(f"{path}: found labels {labels.min()} to {labels.max()}, expected 0 to {CLASSES - 1}")
    return images.reshape(-1, 1, SIDE, SIDE), labels, names
