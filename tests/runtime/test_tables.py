"""The tables of an empty database: made in one step, they are those that all migrations make."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.core.management.commands import migrate
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder
from pytest_django.plugin import DjangoDbBlocker

from controlplane.runtime.tables import create_tables

pytestmark = [pytest.mark.database, pytest.mark.timeout(300)]

FILLED = {
    "auth_group": "name",
    "auth_permission": "codename",
    "django_content_type": "app_label, model",
    "django_migrations": "app, name",
}
"""Tables with rows after ``migrate``, and what is compared of them."""


@pytest.fixture(autouse=True)
def unblocked(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Every database is allowed: these tests make their own."""
    with django_db_blocker.unblock():
        yield


@contextmanager
def empty_database(name: str, folder: Path) -> Iterator[BaseDatabaseWrapper]:
    """A new database of the kind that the tests use, in the place of theirs."""
    theirs, settings = connections["default"], connections.settings["default"]
    file = str(folder / f"{name}.sqlite3") if theirs.vendor == "sqlite" else f"{theirs.settings_dict['NAME']}_{name}"
    if theirs.vendor == "postgresql":
        on_server(theirs, f'CREATE DATABASE "{file}"')
    connections.settings["default"] = {**theirs.settings_dict, "NAME": file}
    connections["default"] = own = connections.create_connection("default")
    try:
        yield own
    finally:
        own.close()
        connections["default"], connections.settings["default"] = theirs, settings
        if theirs.vendor == "postgresql":
            on_server(theirs, f'DROP DATABASE "{file}"')


def on_server(database: BaseDatabaseWrapper, statement: str) -> None:
    """Run what no transaction may contain."""
    import psycopg

    with psycopg.connect(**database.get_connection_params(), autocommit=True) as aside:
        aside.execute(statement)


def tables_of(database: BaseDatabaseWrapper) -> dict[str, Any]:
    """Columns, constraints and indexes by table, whatever their order and the names that a database made up."""
    found: dict[str, Any] = {}
    with database.cursor() as cursor:
        for table in database.introspection.table_names(cursor):
            columns = database.introspection.get_table_description(cursor, table)
            constraints = database.introspection.get_constraints(cursor, table)
            found[table] = (
                sorted(repr(column) for column in columns),
                sorted(repr(constraint) for constraint in constraints.values()),
                sorted(name for name in constraints if name in NAMED),
            )
    return found


NAMED = frozenset(each.name for model in apps.get_models() for each in (*model._meta.indexes, *model._meta.constraints))


def rows_of(database: BaseDatabaseWrapper) -> dict[str, list[tuple[Any, ...]]]:
    """What is in the tables that ``migrate`` fills, without numbers and times."""
    found = {}
    with database.cursor() as cursor:
        for table, columns in FILLED.items():
            cursor.execute(f"SELECT {columns} FROM {table}")
            found[table] = sorted(cursor.fetchall())
    return found


def test_one_step_makes_what_all_migrations_make(tmp_path: Path) -> None:
    with empty_database("steps", tmp_path) as steps:
        call_command(migrate.Command(), verbosity=0, interactive=False)
        tables, rows = tables_of(steps), rows_of(steps)
    with empty_database("once", tmp_path) as once:
        call_command("migrate", verbosity=0, interactive=False)
        assert tables_of(once) == tables
        assert rows_of(once) == rows
    assert len(rows["auth_group"]) == 3


def test_a_database_with_tables_is_migrated_step_by_step(tmp_path: Path) -> None:
    with empty_database("earlier", tmp_path) as earlier:
        call_command("migrate", "contenttypes", "0001", verbosity=0)
        assert not create_tables(earlier)
        call_command("migrate", verbosity=0)
        executor = MigrationExecutor(earlier)
        assert executor.migration_plan(executor.loader.graph.leaf_nodes()) == []


def test_a_step_that_fails_leaves_an_empty_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("disk full")

    with empty_database("broken", tmp_path) as broken:
        with monkeypatch.context() as patched:
            patched.setattr(MigrationRecorder, "record_applied", refuse)
            with pytest.raises(OSError, match="disk full"):
                create_tables(broken)
        assert broken.introspection.table_names() == []
        assert create_tables(broken)
