"""How the pieces are put together."""

import json
import logging
from typing import Any

import pytest
import structlog
from celery import current_app
from django.contrib.staticfiles import finders
from django.core.management import call_command
from django.db import connection
from django.test import AsyncClient

from controlplane.config.logs import logging_config


@pytest.mark.django_db
def test_migrations_are_complete() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


@pytest.mark.django_db(transaction=True)
def test_sqlite_waits_for_the_lock_and_keeps_readers_running() -> None:
    if connection.vendor != "sqlite":
        pytest.skip("this database is not SQLite")
    with connection.cursor() as cursor:
        values = [cursor.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    assert (values, connection.settings_dict["OPTIONS"]["transaction_mode"]) == (["wal", 1], "IMMEDIATE")


def test_decisions_have_a_queue_of_their_own() -> None:
    names = ("coordinate", "ingest", "schedule", "rescue", "reap_offline_agents", "sample_presence")
    router = current_app.amqp.router
    queues = {name: router.route({}, f"controlplane.runtime.tasks.{name}")["queue"].name for name in names}
    assert queues == dict.fromkeys(names, "history") | {"coordinate": "decisions"}


def test_every_beat_entry_is_a_task_of_the_runtime() -> None:
    current_app.loader.import_default_modules()
    wanted = {entry["task"] for entry in current_app.conf.beat_schedule.values()}
    assert (wanted - set(current_app.tasks), len(wanted)) == (set(), 5)


async def test_static_files_are_served_by_the_web_process(async_client: AsyncClient) -> None:
    reply = await async_client.get("/static/vendor/plotly.min.js")
    first = b"".join([chunk async for chunk in reply]) if reply.streaming else reply.content
    assert (reply.status_code, reply["Content-Type"], len(first) > 1_000_000) == (
        200,
        'text/javascript; charset="utf-8"',
        True,
    )


def test_the_plotly_of_the_wheel_is_found() -> None:
    assert str(finders.find("vendor/plotly.min.js")).endswith("plotly/package_data/plotly.min.js")


def test_logs_of_all_libraries_have_one_form() -> None:
    formatter = logging_config(log_format="json", level="INFO")["formatters"]["structured"]
    made = structlog.stdlib.ProcessorFormatter(
        processors=formatter["processors"], foreign_pre_chain=formatter["foreign_pre_chain"]
    )
    record = logging.LogRecord("celery.worker", logging.WARNING, "", 1, "lost %s", ("job 7",), None)
    written: dict[str, Any] = json.loads(made.format(record))
    assert {key: written[key] for key in ("event", "level", "logger")} == {
        "event": "lost job 7",
        "level": "warning",
        "logger": "celery.worker",
    }
