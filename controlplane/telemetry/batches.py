"""Encodes the reports of one batch as named columns. Pure.

Ingest writes the reports of a job that it copies together as one row, so that a report costs an array element instead
of a row. Columns are named, and a column without values is omitted, so that a batch stays readable after columns are
added.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import UNSET

from controlplane.protocol.measurements import OF_WORKERS
from controlplane.protocol.messages import IterationReport
from controlplane.telemetry.columns import INTEGERS, MEASURES, Block, Column, Rows

PLACES: Final = ("rank", "iteration", "generation", "position", *(each.name for each in OF_WORKERS), "overran")
"""The identifying fields of each report, after its rank."""
WHOLE: Final = frozenset(("rank", "instance", "iteration", "position", "overran", *INTEGERS))
"""Integer columns; the others are floats, with NaN for unknown values."""
OPTIONAL: Final = frozenset(each.name for each in OF_WORKERS if each.is_optional)

_fields = attrgetter(*PLACES[1:])


class _Stored(msgspec.Struct, frozen=True, tag="reports-1"):
    """The stored form; a later format gets another tag."""

    instances: list[str]
    columns: dict[str, bytes]
    """Little-endian values of eight bytes, one per report."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A report, when it arrived, and from which process."""

    rank: int
    instance: str
    at_ms: int
    report: IterationReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportColumns:
    """Reports in the order in which they arrived."""

    instances: Sequence[str]
    """The processes that sent them; ``instance`` in ``columns`` is an index into this list."""
    columns: Block

    def __len__(self) -> int:
        """The number of reports."""
        return len(self.columns["rank"])

    def column(self, name: str) -> Column:
        """One column; NaN if no report has a value."""
        found = self.columns.get(name)
        return np.full(len(self), np.nan) if found is None else found

    def rows(self, names: Iterable[str]) -> Rows:
        """These columns, for overlaying them on blocks."""
        return Rows(
            rank=self.columns["rank"],
            iteration=self.columns["iteration"],
            columns={name: self.column(name) for name in names},
        )

    def where(self, chosen: Column) -> "ReportColumns":
        """Selected reports."""
        kept = {name: values[chosen] for name, values in self.columns.items()}
        return ReportColumns(instances=self.instances, columns=kept)


def columns_of(received: Sequence[Received]) -> ReportColumns:
    """The reports as columns."""
    places: dict[str, int] = {}
    instance = [places.setdefault(each.instance, len(places)) for each in received]
    taken = zip(*(_fields(each.report) for each in received), strict=True) if received else [()] * (len(PLACES) - 1)
    values: dict[str, Sequence[Any]] = dict(zip(PLACES[1:], taken, strict=True))
    values |= {"rank": [each.rank for each in received], "at_ms": [each.at_ms for each in received]}
    columns: Block = {"instance": np.array(instance, np.int64)}
    for name, column in values.items():
        if name in OPTIONAL:
            column = [np.nan if value is UNSET else value for value in column]
        columns[name] = np.array(column, np.int64 if name in WHOLE else np.float64)
    columns["loss"][~np.isfinite(columns["loss"])] = np.nan
    return ReportColumns(instances=list(places), columns=columns)


def encoded_batch(reports: ReportColumns) -> bytes:
    """The stored form."""
    kept = {
        name: values.astype("<i8" if name in WHOLE else "<f8", copy=False).tobytes()
        for name, values in reports.columns.items()
        if name in WHOLE or not np.isnan(values).all()
    }
    return _encoder.encode(_Stored(instances=list(reports.instances), columns=kept))


def decoded_batch(data: bytes, names: Collection[str] | None = None) -> ReportColumns:
    """Reports from their stored form: all columns, or ``names`` and the identifying columns.

    Raises:
        ValueError: if the bytes are of a later format, or cut off.
    """
    try:
        stored = _decoder.decode(data)
        wanted = None if names is None else {"rank", "instance", "iteration", *names}
        columns = {
            name: np.frombuffer(values, "<i8" if name in WHOLE else "<f8")
            for name, values in stored.columns.items()
            if wanted is None or name in wanted
        }
    except (msgspec.DecodeError, ValueError) as error:
        raise ValueError(
            f"a stored batch of reports, {len(data)} bytes: {error}; expected the format `reports-1` in whole: was it"
            " written by a later release, or cut off?"
        ) from error
    return ReportColumns(instances=stored.instances, columns=columns)


def joined(batches: Sequence[ReportColumns]) -> ReportColumns:
    """The reports of all batches, in their order."""
    if not batches:
        return empty_reports()
    names = list(dict.fromkeys(name for batch in batches for name in batch.columns))
    instances: dict[str, int] = {}
    parts: list[Block] = []
    for batch in batches:
        places = np.array([instances.setdefault(name, len(instances)) for name in batch.instances], np.int64)
        columns = {name: batch.column(name) for name in names}
        columns["instance"] = places[batch.columns["instance"]] if len(places) else batch.columns["instance"]
        parts.append(columns)
    return ReportColumns(
        instances=list(instances),
        columns={name: np.concatenate([part[name] for part in parts]) for name in names},
    )


def empty_reports() -> ReportColumns:
    """No reports."""
    columns = {name: np.empty(0, np.int64) for name in WHOLE} | {name: np.empty(0) for name in MEASURES}
    return ReportColumns(instances=[], columns=columns)
