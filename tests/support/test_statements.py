"""What another database is given: of tests with the same statements one, and all that may differ."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction

from tests.architecture.sources import ROOT
from tests.support.statements import KNOWN, covering, form, kind, noted


def test_numbers_savepoints_and_how_many_values_there_are_make_no_other_statement() -> None:
    assert (
        form('SELECT "a" FROM "b" WHERE "c" IN (%s, %s, %s) LIMIT 21')
        == 'SELECT "a" FROM "b" WHERE "c" IN (%s) LIMIT 0'
    )
    assert form('SAVEPOINT "s12_x3"') == form('SAVEPOINT "s7_x1"')
    assert form("INSERT INTO b (a) VALUES (%s, %s), (%s, %s)") == form("INSERT INTO b (a) VALUES (%s, %s)")
    assert form("SELECT a") != form("SELECT b")


@pytest.mark.parametrize(
    ("value", "expected"),
    [("a", "str"), ("a" * 201, "long"), ("a\0", "NUL"), (7, "int"), (-(2**31), "large"), (None, "NoneType")],
)
def test_values_at_the_limits_of_a_database_are_of_another_kind(value: object, expected: str) -> None:
    assert kind(value) == expected


def given_by(ask: Any) -> set[str]:
    given: set[str] = set()
    with noted(given):
        ask()
    return given


@pytest.mark.django_db
def test_what_is_refused_and_what_is_locked_counts_as_another_statement() -> None:
    def insert() -> None:
        with connection.cursor() as cursor, transaction.atomic():
            cursor.execute("INSERT INTO auth_group (name) VALUES (%s)", ["one"])

    def insert_again() -> None:
        with pytest.raises(IntegrityError):
            insert()

    first = given_by(insert)
    assert given_by(insert_again) - first
    read = given_by(lambda: list(User.objects.filter(username="a")))
    locked = given_by(lambda: list(User.objects.select_for_update().filter(username="a")))
    assert read < locked
    assert len(locked - read) == 1
    assert locked != given_by(lambda: list(User.objects.select_for_update().filter(username="a"))), "at another place"


def test_what_all_give_is_given_by_the_cheapest() -> None:
    known = {"a": (500, ["1", "2", "3"]), "b": (20, ["1", "2"]), "c": (20, ["3"]), "d": (20, ["2"]), "e": (20, [])}
    assert covering(known) == {"b", "c"}
    assert covering({}) == set()


TESTS = """
import pytest
from django.contrib.auth.models import User

@pytest.mark.django_db
@pytest.mark.parametrize("name", ["a", "b"])
def test_it(name): User.objects.filter(username=name).exists()

@pytest.mark.django_db
def test_new(): User.objects.filter(username="c").exists()

@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["a", "b"])
def test_commits(name): User.objects.filter(username=name).exists()
"""
CONFTEST = "from tests.conftest import pytest_collection_modifyitems, pytest_configure\n"


@pytest.mark.thorough
def test_a_run_tells_what_its_tests_give_and_another_leaves_out_what_is_given_already(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_a.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nDJANGO_SETTINGS_MODULE = controlplane.config.settings\n")

    def run(*options: str, **environment: str) -> str:
        command = [sys.executable, "-m", "pytest", "-v", *options]
        settings = {**os.environ, "PYTHONPATH": str(ROOT), "DATABASE_URL": "", **environment}
        done = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("-n", "2", "--deselect", "test_a.py::test_new")
    record = tmp_path / ".pytest_cache" / "v" / "paceline" / "statements"
    assert len(json.loads(record.read_text())) == 4
    said = run("-n", "0", **{KNOWN: str(record)})
    assert [said.count(f"test_a.py::{name}") for name in ("test_it", "test_new", "test_commits")] == [1, 1, 2]
