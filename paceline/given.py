"""Parses the arguments of ``pacer.loader``: a dataset, or a DataLoader whose options are kept."""

import os
import sys
import tempfile
from typing import Any, Final

import torch.multiprocessing
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from paceline.errors import CannotAttach
from paceline.loading import Plan

KEPT: Final = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
    "in_order",
)
"""Options kept from a DataLoader."""

PATH: Final = 107
"""Maximum length in bytes of a Unix socket's path on Linux."""

SOCKET: Final = len("/pymp-12345678/listener-12345678")
"""Bytes of it that a DataLoader's process appends to the temporary folder's path."""

OURS: Final = ("sampler", "batch_sampler")
"""Options of ``DataLoader`` that the shares determine."""


def understood(given: Any, plan: dict[str, Any], options: dict[str, Any]) -> tuple[Any, Plan, dict[str, Any]]:
    """Return the dataset, the plan of its passes, and the options of DataLoader.

    Raises:
        CannotAttach: if a value cannot be used.
    """
    if isinstance(given, DataLoader):
        given, found, kept = taken_over(given)
        plan, options = plan | found, kept | options
    made = checked("loader", plan)
    if not isinstance(given, IterableDataset) and len(given) < 1:
        raise CannotAttach("loader(): the dataset is empty")
    options = check_options(options)
    if options.get("num_workers"):
        check_sockets(tempfile.gettempdir())
    return given, made, options


def checked(call: str, plan: dict[str, Any]) -> Plan:
    """Return the plan of passes.

    Raises:
        CannotAttach: if a value cannot be used; ``call`` is the method that received it.
    """
    for name in ("batch_size", "accumulate", "multiple"):
        check_number(call, name, plan[name])
    check_number(call, "seed", plan["seed"], 0)
    return Plan(**plan)


def check_options(options: dict[str, Any]) -> dict[str, Any]:
    """Check the options for DataLoader.

    Raises:
        CannotAttach: if the shares determine one of them.
    """
    for name in OURS:
        if options.get(name) is not None:
            raise CannotAttach(f"loader(): {name} is determined by the shares; omit it")
    if options.get("in_order") is False:
        raise CannotAttach("loader(): in_order is False, and batches are weighted by their position; omit it")
    return {name: value for name, value in options.items() if name not in OURS}


def check_sockets(folder: str) -> None:
    """Check that a DataLoader's processes can create the sockets through which they transfer tensors.

    If they cannot, they print a traceback, and the loader waits for its first batch forever.

    Raises:
        CannotAttach: if the temporary folder's path is too long.
    """
    strategy: str = torch.multiprocessing.get_sharing_strategy()  # type: ignore[no-untyped-call]
    by_sockets = sys.platform == "linux" and strategy == "file_descriptor"
    found, room = len(os.fsencode(folder)), PATH - SOCKET
    if by_sockets and found > room:
        raise CannotAttach(
            f"loader(): the processes of num_workers have sockets in the temporary folder, whose path has {found}"
            f" bytes ({folder}); set TMPDIR to one of at most {room}"
        )


def check_number(call: str, name: str, value: Any, least: int = 1) -> None:
    """Check that a value, such as a number of samples or batches, is an integer in range.

    Raises:
        CannotAttach: if it is not.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**63:
        raise CannotAttach(f"{call}(): {name} is {value!r}; give a whole number, {least} or more")


def taken_over(given: DataLoader[Any]) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return the dataset of a DataLoader, the part of the plan that it determines, and its options.

    Raises:
        CannotAttach: if its batches are made by a custom sampler, or changed by a custom ``__iter__``.
    """
    _check_iteration(given)
    options = {name: getattr(given, name) for name in KEPT if hasattr(given, name)}
    dataset: Any = given.dataset
    if isinstance(dataset, IterableDataset):
        if given.batch_size is None:
            raise CannotAttach("loader(): the DataLoader yields single samples; give the data set, and batch_size")
        return dataset, {"batch_size": given.batch_size, "drop_last": given.drop_last}, options
    if given.batch_size is None or type(given.batch_sampler) is not BatchSampler:
        raise CannotAttach(
            f"loader(): the DataLoader has its own batch sampler ({type(given.batch_sampler).__name__}), and"
            " shares decide about batches; give the data set, and batch_size"
        )
    plan = {"batch_size": given.batch_size, "drop_last": given.drop_last, "shuffle": _shuffles(given.sampler)}
    return dataset, plan, options


def _check_iteration(given: DataLoader[Any]) -> None:
    kind = type(given)
    if kind.__iter__ is DataLoader.__iter__:
        return
    found = f"loader(): {kind.__name__} has its own __iter__, and a loader that takes its place has not"
    if isinstance(given.dataset, IterableDataset):
        raise CannotAttach(f"{found}; give the data set, and do in the training loop what __iter__ does")
    raise CannotAttach(
        f"{found}; create it with batch_sampler=pacer.batch_sampler(len(dataset), batch_size=...), and train with it"
    )


def _shuffles(sampler: Any) -> bool:
    if type(sampler) is DistributedSampler:
        return bool(sampler.shuffle)
    if type(sampler) is RandomSampler and not sampler.replacement and sampler._num_samples is None:
        return True
    if type(sampler) is SequentialSampler:
        return False
    raise CannotAttach(
        f"loader(): the DataLoader draws by {type(sampler).__name__}, and each sample is drawn once a pass here; give"
        " the data set, and batch_size"
    )
