"""The svmlight format, as in the malicious-URL dataset: a line per row, ``label index:value ...``."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from controlplane.protocol.options import SvmlightData
from workers.workloads.data.examples import SPLIT_SEED, SparseTable, Split
from workers.workloads.data.paths import DataError, resolve


def read(path: Path, options: SvmlightData) -> Split:
    """Read one file, or all ``*.svm`` of a folder; without a file of held-out rows, a seeded tenth is held out.

    Raises:
        DataError: if a file is missing or has another format, or more features or classes than stated.
    """
    held = resolve(options.held, path if path.is_dir() else path.parent) if options.held else None
    files = [file for file in _files(path) if file != held]
    whole = _table(path, files, options)
    if held is not None:
        return Split(train=whole, held=_table(held, _files(held), options))
    order = np.random.default_rng(SPLIT_SEED).permutation(len(whole))
    tenth = max(1, len(whole) // 10)
    return Split(train=_rows(whole, order[tenth:]), held=_rows(whole, order[:tenth]))


def _files(path: Path) -> list[Path]:
    return sorted(path.glob("*.svm")) if path.is_dir() else [path]


def _table(path: Path, files: list[Path], options: SvmlightData) -> SparseTable:
    from sklearn.datasets import load_svmlight_files  # takes 1.5 s: imported only to read the data

    if not files or not all(file.is_file() for file in files):
        raise DataError(f"{path}: found no file, expected one in svmlight's form or a folder of *.svm")
    try:
        loaded: list[Any] = load_svmlight_files([str(file) for file in files], n_features=options.features)
    except (ValueError, OverflowError) as error:
        raise DataError(f"{path}: {error}; expected lines of 'label index:value ...' (data.features)") from None
    matrices, labels = loaded[::2], np.concatenate(loaded[1::2])
    for file, matrix in zip(files, matrices, strict=True):
        _check_values(file, matrix.data)
    starts = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(matrix.indptr) for matrix in matrices]))])
    return SparseTable(
        starts=torch.from_numpy(starts.astype(np.int64)),
        columns=torch.from_numpy(np.concatenate([matrix.indices for matrix in matrices]).astype(np.int64)),
        values=torch.from_numpy(np.concatenate([matrix.data for matrix in matrices]).astype(np.float32)),
        targets=torch.from_numpy(_classes(path, labels, options.classes)),
    )


def _check_values(file: Path, values: np.ndarray) -> None:
    odd = values[~(np.abs(values) <= np.finfo(np.float32).max)]
    if len(odd):
        raise DataError(f"{file}: found the value {odd[0]:g}, expected finite numbers of 32 bits")


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
