"""Records the statements that each test executes, so that on another database fewer tests execute all of them again.

A run on SQLite records, for each test: statements without numbers and names of savepoints, the types of their values,
whether the database refused them, and where rows are locked, since SQLite executes no statement for that.
"""

import json
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from heapq import heappop, heappush
from pathlib import Path
from time import process_time
from typing import Any
from unittest.mock import patch

import django
import pytest
from django.db import connection
from django.db.models import QuerySet

from tests.support.sharing import MARKS

RECORD = "paceline/statements"
"""Where pytest's cache has them."""

KNOWN = "PACELINE_KNOWN_STATEMENTS"
"""The environment variable that names a file with such a record; where it is set, tests are chosen by it."""

LEAST_MS = 20
"""What a test costs at the least."""

LONG = 200
DJANGO = str(Path(django.__file__).parent)

Given = tuple[int, list[str]]
"""What a test costs in ms, and fingerprints of what it gave."""

_PLAIN = (
    (re.compile(r'SAVEPOINT "[^"]+"'), "SAVEPOINT"),
    (re.compile(r"\b\d+\b"), "0"),
    (re.compile(r"\((?:%s|NULL)(?:, (?:%s|NULL))+\)"), "(%s)"),
    (re.compile(r"(\(%s\))(?:, \(%s\))+"), r"\1"),
)


@lru_cache(maxsize=4096)
def form(statement: str) -> str:
    """The statement without what varies from test to test: numbers, names of savepoints, how many values."""
    for pattern, plain in _PLAIN:
        statement = pattern.sub(plain, statement)
    return statement


def kind(value: object) -> str:
    """What a database may treat differently: types, and values at its limits."""
    if isinstance(value, str) and ("\0" in value or len(value) > LONG):
        return "NUL" if "\0" in value else "long"
    return "large" if isinstance(value, int) and abs(value) >= 2**31 else type(value).__name__


def fingerprint(*words: str) -> str:
    """Of few digits."""
    return blake2b("|".join(words).encode(), digest_size=6).hexdigest()


@contextmanager
def noted(given: set[str]) -> Iterator[None]:
    """What this thread gives to the database meanwhile is added to ``given``."""

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        values = (params[0] if params else ()) if many else params or ()
        kinds = sorted({kind(value) for value in (values.values() if isinstance(values, Mapping) else values)})
        try:
            done = execute(sql, params, many, context)
        except Exception as error:
            given.add(fingerprint(form(sql), *kinds, type(error).__name__))
            raise
        given.add(fingerprint(form(sql), *kinds))
        return done

    lock = QuerySet.select_for_update

    def noting(self: Any, *args: Any, **options: Any) -> Any:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename.startswith(DJANGO):
            frame = frame.f_back
        given.add(fingerprint("lock", frame.f_code.co_filename, str(frame.f_lineno)))
        return lock(self, *args, **options)

    with patch.object(QuerySet, "select_for_update", noting), connection.execute_wrapper(note):
        yield


class Recording:
    """Writes down, into pytest's cache, what each fast test of this run gives to the database."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._record: dict[str, Given] = {}
        self._given: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Around the test and its fixtures."""
        marks = {mark.name for mark in item.iter_markers()}
        if "database" not in marks or marks & MARKS:
            return (yield)
        self._given = set()
        begun = process_time()
        with noted(self._given):
            done = yield
        self._record[item.nodeid] = (round(1000 * (process_time() - begun)), sorted(self._given))
        return done

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Any:
        """The migrations, which the first test of a process waits for, are not of that test."""
        done = yield
        if fixturedef.argname == "django_db_setup":
            self._given.clear()
        return done

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """What a process of several has to tell at its end."""
        self._record |= json.loads(getattr(node, "workeroutput", {}).get(RECORD, "{}"))

    def pytest_sessionfinish(self) -> None:
        """Told to the process that controls this one, if any; else kept, beside what is known of tests not run now."""
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[RECORD] = json.dumps(self._record)
        elif self._record and (cache := getattr(self._config, "cache", None)) is not None:
            cache.set(RECORD, cache.get(RECORD, {}) | self._record)


def covering(known: Mapping[str, Given]) -> set[str]:
    """Tests, cheap ones first, that together give all that these do."""
    left = {name: set(given) for name, (_, given) in known.items() if given}

    def rank(name: str) -> tuple[float, str]:
        return -len(left[name]) / max(LEAST_MS, known[name][0]), name

    heap = sorted(rank(name) for name in left)  # which is a heap
    covered: set[str] = set()
    chosen: set[str] = set()
    while heap:
        best, name = heappop(heap)
        left[name] -= covered
        if not left[name]:
            continue
        if rank(name) == (best, name):
            chosen.add(name)
            covered |= left[name]
        else:
            heappush(heap, rank(name))
    return chosen


def choose(items: list[pytest.Item], known: Mapping[str, Given]) -> list[pytest.Item]:
    """Take away the tests that give nothing to the database which others do not; those are returned.

    What is not known stays, and so does what commits: locks and constraints are seen at the end of a transaction.
    """
    met = {item.nodeid: known[item.nodeid] for item in items if item.nodeid in known and not _commits(item)}
    needless: Collection[str] = met.keys() - covering(met)
    gone = [item for item in items if item.nodeid in needless]
    items[:] = [item for item in items if item.nodeid not in needless]
    return gone


def _commits(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("django_db")
    return "transactional_db" in getattr(item, "fixturenames", ()) or bool(mark and mark.kwargs.get("transaction"))
