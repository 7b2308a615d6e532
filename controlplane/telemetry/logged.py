"""Series that scripts of attached jobs log by name: one value per iteration, the mean over the ranks that logged it.

For a repeated iteration the values of the highest generation count. Each series is stored in blocks of 1,000
iterations; only ingest writes them, from new reports.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from controlplane.protocol.messages import MAX_LOGGED, IterationReport
from controlplane.telemetry.blobs import header, named
from controlplane.telemetry.columns import STRETCH
from controlplane.telemetry.models import LoggedSeries

NAMES: Final = MAX_LOGGED
"""The most series of a job: the first ones that were logged."""

BLOCKS_READ: Final = 4_096
"""For long jobs with many series only the newest blocks are read: 64 MB at most."""

ENTRY: Final = np.dtype([("generation", "<i4"), ("count", "<i4"), ("sum", "<f8")])

SERIES_FORMAT: Final = b"series\x00\x01"

UNNAMED: Final = np.dtype([("generation", "<i4"), ("count", "<i4"), ("sum", "<f8")])
"""The fields of blocks that were stored before they had a header."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a job."""

    name: str
    iteration: NDArray[np.int64]
    value: NDArray[np.float64]


def record_logged(job_id: int, reports: Iterable[IterationReport]) -> None:
    """Add the logged values of these reports, all of which are new."""
    found: dict[tuple[str, int], list[tuple[int, int, float]]] = defaultdict(list)
    for report in reports:
        number, place = divmod(report.iteration, STRETCH)
        for name, value in report.logged.items():
            found[name, number].append((place, report.generation, value))
    if not found:
        return
    kept = _kept_names(job_id, [name for name, _ in found])
    found = {key: values for key, values in found.items() if key[0] in kept}
    stored = LoggedSeries.objects.filter(job_id=job_id, name__in=kept, number__in={number for _, number in found})
    blocks = {(row.name, row.number): _decoded(bytes(row.data)) for row in stored}
    for key, values in found.items():
        block = blocks.setdefault(key, _decoded(b""))
        for entry in values:
            _add(block, *entry)
    LoggedSeries.objects.bulk_create(
        [
            LoggedSeries(job_id=job_id, name=name, number=number, data=_encoded(blocks[name, number]))
            for name, number in found
        ],
        update_conflicts=True,
        unique_fields=["job", "name", "number"],
        update_fields=["data"],
    )


def has_logged(job_id: int) -> bool:
    """Whether the job has any series."""
    return LoggedSeries.objects.filter(job_id=job_id).exists()


def logged_series(job_id: int) -> list[Series]:
    """The series of a job by name, without iterations that have no value."""
    rows = LoggedSeries.objects.filter(job_id=job_id).order_by("-number", "name").values_list("name", "number", "data")
    blocks: dict[str, list[tuple[int, NDArray[Any]]]] = defaultdict(list)
    for name, number, data in rows[:BLOCKS_READ]:
        blocks[name].append((number, _decoded(bytes(data))))
    return [_joined(name, sorted(blocks[name], key=lambda block: block[0])) for name in sorted(blocks)]


def _kept_names(job_id: int, requested: list[str]) -> set[str]:
    known = set(LoggedSeries.objects.filter(job_id=job_id).values_list("name", flat=True).distinct())
    new = [name for name in dict.fromkeys(requested) if name not in known]
    return known.intersection(requested) | set(new[: max(0, NAMES - len(known))])


def _add(block: NDArray[Any], place: int, generation: int, value: float) -> None:
    before = block[place]
    if not before["count"] or generation > before["generation"]:
        block[place] = (generation, 1, value)
    elif generation == before["generation"]:
        block[place] = (generation, before["count"] + 1, before["sum"] + value)


def _encoded(block: NDArray[Any]) -> bytes:
    """The stored form: names and types of the fields, then entries up to the last one with a value."""
    fields = [f"{name}:{block.dtype[name].str}" for name in block.dtype.names or ()]
    return header(SERIES_FORMAT, fields) + block[: int(np.flatnonzero(block["count"])[-1]) + 1].tobytes()


def _decoded(data: bytes) -> NDArray[Any]:
    """A block from bytes of any release; fields that did not exist then are zero.

    Raises:
        ValueError: if the bytes are of a later format, or cut off.
    """
    found = _stored(data)
    block = np.zeros(STRETCH, ENTRY)
    for name in set(ENTRY.names or ()) & set(found.dtype.names or ()):
        block[name][: len(found)] = found[name]
    return block


def _stored(data: bytes) -> NDArray[Any]:
    if not data.startswith(SERIES_FORMAT[:6]):
        return np.frombuffer(data, UNNAMED)
    names, values = named(SERIES_FORMAT, data)
    return np.frombuffer(values, np.dtype([(name, kind) for name, _, kind in (each.partition(":") for each in names)]))


def _joined(name: str, blocks: list[tuple[int, NDArray[Any]]]) -> Series:
    iterations, values = [], []
    for number, block in blocks:
        known = np.flatnonzero(block["count"])
        iterations.append(number * STRETCH + known)
        values.append(block["sum"][known] / block["count"][known])
    return Series(name, np.concatenate(iterations), np.concatenate(values))
