"""Measurements as columns: lists of equal length, and a DataFrame if pandas is installed."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

import msgspec

from paceline.errors import NeedsLibrary

Column = list[float | int | str | None]


class Columns(Mapping[str, Column]):
    """Named columns of equal length; None if nothing was measured."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._columns = dict(columns)

    def __getitem__(self, name: str) -> Column:
        return self._columns[name]

    def __iter__(self) -> Any:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        rows = len(next(iter(self._columns.values()), []))
        return f"<Columns {', '.join(self._columns)}: {rows} rows>"

    def frame(self) -> Any:
        """Return a pandas DataFrame of the columns.

        Raises:
            NeedsLibrary: if pandas is not installed.
        """
        return library("pandas", "a DataFrame").DataFrame(self._columns)


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one worker, or of the job as a whole (``worker`` is None)."""

    metric: str
    unit: str = ""
    worker: int | None = None
    raw_points: int = 0
    thinned: bool = False
    iterations: list[int]
    values: list[float]


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """Series of a job, workers in order of rank."""

    job: int
    since: int = 0
    series: list[Series]

    def columns(self) -> Columns:
        """One row per iteration and worker, one column per metric."""
        names = list(dict.fromkeys(one.metric for one in self.series))
        cells: dict[tuple[int, int | None], dict[str, float]] = {}
        for one in self.series:
            for iteration, value in zip(one.iterations, one.values, strict=True):
                cells.setdefault((iteration, one.worker), {})[one.metric] = value
        keys = sorted(cells, key=lambda key: (key[0], -1 if key[1] is None else key[1]))
        columns: dict[str, Column] = {
            "iteration": [iteration for iteration, _ in keys],
            "worker": [worker for _, worker in keys],
        }
        return Columns(columns | {name: [cells[key].get(name) for key in keys] for name in names})

    def frame(self) -> Any:
        """The columns as a pandas DataFrame."""
        return self.columns().frame()


def from_csv(lines: Iterable[str]) -> Columns:
    """Read the columns of a CSV file whose cells are only numbers and names, without quotes."""
    rows = (line.split(",") for line in lines if line)
    heading = next(rows, [])
    columns = zip(*rows, strict=True)
    read: dict[str, Column] = {name: [] for name in heading}
    for name, cells in zip(heading, columns, strict=False):
        read[name] = [_cell(cell) for cell in cells]
    return Columns(read)


def library(name: str, what: str) -> Any:
    """Import and return the module of that name.

    Raises:
        NeedsLibrary: if it is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError:
        package = name.partition(".")[0]
        raise NeedsLibrary(f"{what}: needs {package}, which is not installed here: pip install {package}") from None


def _cell(text: str) -> float | int | str | None:
    if not text:
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
