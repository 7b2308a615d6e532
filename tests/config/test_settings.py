"""How the pieces are put together."""

import json
import logging
import sys
from typing import Any

import pytest
import structlog
from celery import current_app
from django.contrib.staticfiles import finders
from django.core.management import get_commands, load_command_class
from django.db import connection
from django.test import AsyncClient

from controlplane.config.logs import logging_config


@pytest.mark.django_db(transaction=True)
def test_sqlite_waits_for_the_lock_and_keeps_readers_running() -> None:
    if connection.vendor != "sqlite":
        pytest.skip("this database is not SQLite")
    with connection.cursor() as cursor:
        values = [cursor.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    assert (values, connection.settings_dict["OPTIONS"]["transaction_mode"]) == (["wal", 1], "IMMEDIATE")


def test_decisions_have_a_queue_of_their_own() -> None:
    names = ("coordinate", "ingest", "schedule", "rescue", "tend", "sample_presence")
    router = current_app.amqp.router
    queues = {name: router.route({}, f"controlplane.runtime.tasks.{name}")["queue"].name for name in names}
    assert queues == dict.fromkeys(names, "history") | {"coordinate": "decisions"}


def test_every_beat_entry_is_a_task_of_the_runtime() -> None:
    current_app.loader.import_default_modules()
    wanted = {entry["task"] for entry in current_app.conf.beat_schedule.values()}
    assert wanted
    assert wanted <= set(current_app.tasks)


async def test_static_files_are_served_by_the_web_process(async_client: AsyncClient, static_files: None) -> None:
    reply = await async_client.get("/static/vendor/plotly.min.js")
    first = b"".join([chunk async for chunk in reply]) if reply.streaming else reply.content
    assert (reply.status_code, reply["Content-Type"], len(first) > 1_000_000) == (
        200,
        'text/javascript; charset="utf-8"',
        True,
    )


def test_the_plotly_of_the_wheel_is_found() -> None:
    assert str(finders.find("vendor/plotly.min.js")).endswith("plotly/package_data/plotly.min.js")


def formatter_for(log_format: str) -> logging.Formatter:
    formatter = logging_config(log_format=log_format, level="INFO")["formatters"]["structured"]
    return structlog.stdlib.ProcessorFormatter(
        processors=formatter["processors"], foreign_pre_chain=formatter["foreign_pre_chain"]
    )


def failure() -> logging.LogRecord:
    """What is logged when something fails that has a secret in a variable."""
    secret = "".join(("se", "cret"))
    try:
        raise ValueError(f"{len(secret)} letters")
    except ValueError:
        return logging.LogRecord("controlplane", logging.ERROR, "", 1, "failed", (), sys.exc_info())


def test_logs_of_all_libraries_have_one_form() -> None:
    record = logging.LogRecord("celery.worker", logging.WARNING, "", 1, "lost %s", ("job 7",), None)
    written: dict[str, Any] = json.loads(formatter_for("json").format(record))
    assert {key: written[key] for key in ("event", "level", "logger")} == {
        "event": "lost job 7",
        "level": "warning",
        "logger": "celery.worker",
    }


def test_a_log_that_goes_to_no_terminal_has_no_colours_and_plain_tracebacks(capsys: pytest.CaptureFixture[str]) -> None:
    written = formatter_for("console").format(failure())
    assert "\x1b" not in written
    assert written.splitlines()[1] == "Traceback (most recent call last):"
    assert written.splitlines()[-1] == "ValueError: 6 letters"


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_tracebacks_show_no_values_of_variables(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    written = formatter_for(log_format).format(failure())
    assert "6 letters" in written
    assert "'secret'" not in written


def test_no_command_of_paceline_waits_for_checks_that_load_every_page() -> None:
    ours = {name: load_command_class(app, name) for name, app in get_commands().items() if "controlplane." in str(app)}
    assert ours.keys() >= {"access", "demo", "up", "whatif"}
    assert [name for name, command in ours.items() if command.requires_system_checks] == []
