"""Svmlight's form, as the malicious-URL set has it: a line for each row, ``label index:value ...``."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from controlplane.protocol.options import SvmlightData
from workers.workloads.data.examples import SPLIT_SEED, SparseTable, Split
from workers.workloads.data.paths import DataError, resolve


def read(path: Path, options: SvmlightData) -> Split:
    """One file, or all ``*.svm`` of a folder; where no file of held-out rows is named, a seeded tenth is held out.

    Raises:
        DataError: if a file is missing or not of that form, or has more features or classes than stated.
    """
    whole = _table(path, options)
    if options.held:
        return Split(train=whole, held=_table(resolve(options.held, path.parent), options))
    order = np.random.default_rng(SPLIT_SEED).permutation(len(whole))
    held = max(1, len(whole) // 10)
    return Split(train=_rows(whole, order[held:]), held=_rows(whole, order[:held]))


def _table(path: Path, options: SvmlightData) -> SparseTable:
    from sklearn.datasets import load_svmlight_files  # a second and a half: only those who read the data pay it

    files = sorted(path.glob("*.svm")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise DataError(f"{path}: found no file, expected one in svmlight's form or a folder of *.svm")
    try:
        loaded: list[Any] = load_svmlight_files([str(file) for file in files], n_features=options.features)
    except (ValueError, OverflowError) as error:
        raise DataError(f"{path}: {error}; expected lines of 'label index:value ...' (data.features)") from None
    matrices, labels = loaded[::2], np.concatenate(loaded[1::2])
    starts = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(matrix.indptr) for matrix in matrices]))])
    return SparseTable(
        starts=torch.from_numpy(starts.astype(np.int64)),
        columns=torch.from_numpy(np.concatenate([matrix.indices for matrix in matrices]).astype(np.int64)),
        values=torch.from_numpy(np.concatenate([matrix.data for matrix in matrices]).astype(np.float32)),
        targets=torch.from_numpy(_classes(path, labels, options.classes)),
    )


def _classes(path: Path, labels: np.ndarray, classes: int) -> np.ndarray:
    """Labels -1 and 1 are the classes 0 and 1; others count from 0."""
    if set(np.unique(labels)) <= {-1.0, 1.0}:
        return (labels > 0).astype(np.int64)
    if not np.all((labels >= 0) & (labels < classes) & (labels == np.round(labels))):
        raise DataError(f"{path}: found labels {labels.min():g} to {labels.max():g}, expected 0 to {classes - 1}")
    return labels.astype(np.int64)


def _rows(whole: SparseTable, chosen: np.ndarray) -> SparseTable:
    bag, targets = whole.take(chosen, torch.device("cpu"))
    starts = torch.cat([bag.offsets, torch.tensor([len(bag.columns)])])
    return SparseTable(starts=starts, columns=bag.columns, values=bag.values, targets=targets)
