"""Datasets from files, which must be below the machine's data folder."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workers.workloads.data import cifar, idx, leaf, svmlight, wav
from workers.workloads.data.examples import Dataset, Facts, Split
from workers.workloads.data.paths import DataError, resolve

Read = Callable[[Path, Any], Split]


def from_files(name: str, options: Any, data_dir: Path | None) -> Dataset:
    """The dataset of that name in the catalogue; its files are read on first use.

    Raises:
        DataError: if this machine has no data folder, or the path leads out of it.
    """
    if data_dir is None:
        return Dataset(name, _FACTS[name](options), lambda: _nowhere(name))
    folder = resolve(options.path, data_dir)
    return Dataset(name, _FACTS[name](options), lambda: _read(_READERS[name], folder, options))


def _nowhere(name: str) -> Split:
    raise DataError(f"data set {name} is read from files, and this machine has no data folder (--data-dir)")


def _read(read: Read, folder: Path, options: Any) -> Split:
    """The result of ``read``.

    Raises:
        DataError: if a file is missing, cannot be read, has another format, or leaves one part empty.
    """
    try:
        if not folder.exists():
            raise DataError(f"{folder} does not exist on this machine")
        split = read(folder, options)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(
            f"{error.filename or folder}: cannot be read ({reason}), expected a file of the data set"
        ) from None
    if not len(split.train) or not len(split.held):
        found = f"{len(split.train)} samples to train on and {len(split.held)} to hold out"
        raise DataError(f"{folder}: found {found}, expected at least one of each")
    return split


_FACTS: Mapping[str, Callable[[Any], Facts]] = {
    "cifar-10": lambda o: Facts(shape=(3, 32, 32), classes=10),
    "idx": lambda o: Facts(shape=(1, o.side, o.side), classes=o.classes),
    "femnist": lambda o: Facts(shape=(1, 28, 28), classes=62),
    "svmlight": lambda o: Facts(shape=(o.features,), classes=o.classes),
    "speech-commands": lambda o: Facts(shape=(o.frames, o.bands), classes=len(o.words)),
}

_READERS: Mapping[str, Read] = {
    "cifar-10": cifar.read,
    "idx": idx.read,
    "femnist": leaf.read,
    "svmlight": svmlight.read,
    "speech-commands": wav.read,
}
