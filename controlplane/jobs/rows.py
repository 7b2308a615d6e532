"""Writes many rows at once, without a model instance for each: ingest copies thousands a second.

Values are given as Django would give them to the database; only times and JSON are adapted here.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from django.db import connection, models

MOST_PARAMETERS: Final = 30_000
"""Per statement: SQLite allows 32,766."""

Row = Sequence[Any]


def insert_rows(model: type[models.Model], fields: Sequence[str], rows: Sequence[Row]) -> None:
    """Insert all; a duplicate is an error."""
    if not rows:
        return
    values = f"({', '.join(['%s'] * len(fields))})"
    with connection.cursor() as cursor:
        cursor.executemany(f"{_insert_into(model, fields)} VALUES {values}", _adapted(model, fields, rows))


def insert_new_rows(
    model: type[models.Model], fields: Sequence[str], rows: Sequence[Row], *, key: Sequence[str]
) -> set[tuple[Any, ...]]:
    """Insert those that are not there yet, where a duplicate is legitimate; the ``key`` of each that is new."""
    added: set[tuple[Any, ...]] = set()
    at_once = MOST_PARAMETERS // len(fields)
    returning = ", ".join(_column(model, name) for name in key)
    with connection.cursor() as cursor:
        for start in range(0, len(rows), at_once):
            chunk = _adapted(model, fields, rows[start : start + at_once])
            values = ", ".join([f"({', '.join(['%s'] * len(fields))})"] * len(chunk))
            statement = f"{_insert_into(model, fields)} VALUES {values} ON CONFLICT DO NOTHING RETURNING {returning}"
            cursor.execute(statement, [value for row in chunk for value in row])
            added.update(tuple(row) for row in cursor.fetchall())
    return added


def update_rows(statement: str, rows: Sequence[Row]) -> None:
    """Run one prepared UPDATE for each row of parameters."""
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(statement, rows)


def _insert_into(model: type[models.Model], fields: Sequence[str]) -> str:
    columns = ", ".join(_column(model, name) for name in fields)
    return f"INSERT INTO {connection.ops.quote_name(model._meta.db_table)} ({columns})"


def _column(model: type[models.Model], name: str) -> str:
    column: str = model._meta.get_field(name).column  # type: ignore[union-attr, assignment]
    return connection.ops.quote_name(column)


def _adapted(model: type[models.Model], fields: Sequence[str], rows: Sequence[Row]) -> list[list[Any]]:
    adapters = [_adapter(model._meta.get_field(name)) for name in fields]
    if not any(adapters):
        return [list(row) for row in rows]
    return [
        [value if adapt is None else adapt(value) for adapt, value in zip(adapters, row, strict=True)] for row in rows
    ]


def _adapter(field: Any) -> Callable[[Any], Any] | None:
    if isinstance(field, models.DateTimeField):
        return connection.ops.adapt_datetimefield_value
    return None
