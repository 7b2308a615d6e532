"""Test databases: migrated once for all processes and runs, and emptied without making their permissions anew."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management.color import no_style
from django.db import connections
from django.test import TransactionTestCase
from django.test.utils import setup_databases, teardown_databases

MIGRATED = "migrated-databases"
"""The folder in pytest's cache, with one file for each state of the migrations."""

KEPT = frozenset({"auth_permission", "django_content_type"})
"""Tables that Django fills after migrating; filling them takes ten times longer than emptying all others."""


@contextmanager
def test_databases(config: pytest.Config) -> Iterator[None]:
    """The databases of the settings, with tables; ``migrate`` finds nothing to do in a copy of migrated ones."""
    file, migrated = _file(), migrated_database(config)
    is_copied = file is not None and migrated is not None and migrated.exists()
    if is_copied:
        copy_database(migrated, file)
    before = setup_databases(
        verbosity=0, interactive=False, keepdb=is_copied, aliases={"default"}, serialized_aliases=set()
    )
    if file is not None and migrated is not None and not is_copied:
        made = migrated.with_suffix(f".{os.getpid()}")
        copy_database(file, made)
        made.replace(migrated)
    yield
    teardown_databases(before, verbosity=0)


def migrated_database(config: pytest.Config) -> Path | None:
    """Where an SQLite database with the tables of the present migrations is kept; None: nothing is kept."""
    cache = getattr(config, "cache", None)
    return None if cache is None else cache.mkdir(MIGRATED) / f"{state_of_migrations()}.sqlite3"


def state_of_migrations() -> str:
    """Changes with every file of a migration."""
    digest = blake2b(digest_size=8)
    for folder in sorted(Path(app.path, "migrations") for app in apps.get_app_configs()):
        for path in sorted(folder.glob("*.py")):
            digest.update(f"{folder.parent.name}/{path.name}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def empty_tables(case: TransactionTestCase) -> None:
    """What a test that commits does at its end, in place of Django's ``flush``."""
    for alias in case._databases_names(include_mirrors=False):  # type: ignore[attr-defined]
        connection = connections[alias]
        tables = set(connection.introspection.django_table_names(only_existing=True, include_views=False)) - KEPT
        connection.ops.execute_sql_flush(connection.ops.sql_flush(no_style(), sorted(tables)))


def _file() -> Path | None:
    settings: dict[str, Any] = connections["default"].settings_dict
    return Path(settings["TEST"]["NAME"]) if settings["ENGINE"].endswith("sqlite3") else None


def copy_database(source: Path, target: Path) -> None:
    """Copy an SQLite database, also one that is open, in the place of what ``target`` was."""
    target.unlink(missing_ok=True)
    with closing(sqlite3.connect(source)) as read, closing(sqlite3.connect(target)) as written:
        read.backup(written)
