"""Writes rows without a model instance or a new query per row, since ingest copies thousands of rows per second.

Values are given as Django would give them to the database; only times are adapted here.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connection, connections, models, transaction

Row = Sequence[Any]
Fields = tuple[str, ...]


def insert_rows(model: type[models.Model], fields: Fields, rows: Sequence[Row]) -> None:
    """Insert all rows; a duplicate raises an error."""
    if rows:
        with _fast_cursor() as cursor:
            cursor.executemany(_in_drivers_format(_insert(model, fields)), _adapted(model, fields, rows))


def insert_new_rows(
    model: type[models.Model], fields: Fields, rows: Sequence[Row], *, key: Sequence[str]
) -> set[tuple[Any, ...]]:
    """Insert the rows that do not exist yet; returns the ``key`` of each new row.

    Duplicates are rare, and looking for them costs half as much again: that is done only if an insert finds one.
    """
    adapted = _adapted(model, fields, rows)
    places = [fields.index(name) for name in key]
    with _fast_cursor() as cursor:
        point = transaction.savepoint()
        cursor.executemany(_in_drivers_format(f"{_insert(model, fields)} ON CONFLICT DO NOTHING"), adapted)
        if cursor.rowcount == len(rows):
            transaction.savepoint_commit(point)
            return {tuple(row[place] for place in places) for row in rows}
        transaction.savepoint_rollback(point)
        return _insert_returning(cursor, model, fields, adapted, key)


def update_rows(statement: str, rows: Sequence[Row]) -> None:
    """Run one prepared UPDATE for each row of parameters."""
    if rows:
        with _fast_cursor() as cursor:
            cursor.executemany(_in_drivers_format(statement), rows)


def change_row(statement: str, parameters: Row) -> int:
    """Run one statement and return the number of changed rows. A Django query takes several times as long."""
    with _fast_cursor() as cursor:
        cursor.execute(_in_drivers_format(statement), parameters)
        return int(cursor.rowcount)


def read_row(statement: str, parameters: Row) -> tuple[Any, ...] | None:
    """The first row of the query, or None."""
    with _fast_cursor() as cursor:
        cursor.execute(_in_drivers_format(statement), parameters)
        found: tuple[Any, ...] | None = cursor.fetchone()
        return found


@contextmanager
def _fast_cursor() -> Iterator[Any]:
    """The driver's own cursor. Django's inspects every row, and for PostgreSQL formats statements in Python."""
    database = connections[DEFAULT_DB_ALIAS]  # each attribute of ``connection`` looks for it anew
    database.ensure_connection()
    if database.vendor == "postgresql":
        from psycopg import Cursor

        opened: Any = Cursor(database.connection)
    else:
        opened = closing(sqlite3.Cursor(database.connection))
    with database.wrap_database_errors, opened as cursor:
        yield cursor


@lru_cache(maxsize=256)
def _in_drivers_format(statement: str) -> str:
    """The statement, with ``%s`` placeholders, in the driver's format."""
    return statement if connection.vendor == "postgresql" else statement.replace("%s", "?")


def _insert_returning(
    cursor: Any, model: type[models.Model], fields: Fields, rows: Sequence[Row], key: Sequence[str]
) -> set[tuple[Any, ...]]:
    returning = ", ".join(_column(model, name) for name in key)
    statement = _in_drivers_format(f"{_insert(model, fields)} ON CONFLICT DO NOTHING RETURNING {returning}")
    added: set[tuple[Any, ...]] = set()
    for row in rows:
        cursor.execute(statement, row)
        added.update(tuple(found) for found in cursor.fetchall())
    return added


@cache
def _insert(model: type[models.Model], fields: Fields) -> str:
    columns = ", ".join(_column(model, name) for name in fields)
    values = ", ".join(["%s"] * len(fields))
    return f"INSERT INTO {connection.ops.quote_name(model._meta.db_table)} ({columns}) VALUES ({values})"


def _column(model: type[models.Model], name: str) -> str:
    column: str = model._meta.get_field(name).column  # type: ignore[union-attr, assignment]
    return connection.ops.quote_name(column)


def _adapted(model: type[models.Model], fields: Fields, rows: Sequence[Row]) -> list[list[Any]]:
    times = [
        place for place, name in enumerate(fields) if isinstance(model._meta.get_field(name), models.DateTimeField)
    ]
    adapt = _time_for_sqlite if connection.vendor == "sqlite" else connection.ops.adapt_datetimefield_value
    adapted = [list(row) for row in rows]
    for place in times:
        for row in adapted:
            row[place] = adapt(row[place])
    return adapted


def _time_for_sqlite(value: datetime | None) -> str | None:
    """The time as Django stores it under UTC, in a fifth of the time."""
    if value is None:
        return None
    if value.tzinfo is not UTC:
        value = value.astimezone(UTC)
    return value.replace(tzinfo=None).isoformat(" ")
