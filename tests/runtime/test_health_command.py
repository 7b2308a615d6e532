"""``manage.py health``: what a container engine asks of the background services."""

import io
import time
from pathlib import Path
from typing import Any

import pytest
from celery import current_app
from django.core.management import call_command
from django.core.management.base import CommandError

from controlplane.runtime import names
from controlplane.runtime.broker_address import broker_url
from controlplane.runtime.management.commands import health
from controlplane.runtime.redis import shared


def check(service: str) -> tuple[int, str]:
    output, errors = io.StringIO(), io.StringIO()
    try:
        call_command("health", service, stdout=output, stderr=errors)
    except SystemExit as end:
        return int(str(end.code)), errors.getvalue().strip()
    return 0, output.getvalue().strip()


def test_beat_is_well_while_its_tasks_come_through(redis_url: str) -> None:
    shared().set(names.REAPER_BEAT, int(time.time() * 1000))
    assert check("beat") == (0, "beat: healthy")


def test_beat_is_not_well_once_they_stopped(redis_url: str) -> None:
    shared().set(names.REAPER_BEAT, int((time.time() - 60) * 1000))
    assert check("beat") == (1, "the last periodic task ran 60 s ago, expected one each second")


def test_a_worker_that_does_not_answer_is_not_well(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "ANSWER_S", 0.01)
    monkeypatch.setattr(health.socket, "gethostname", lambda: "host")
    assert check("decisions") == (1, "decisions@host did not answer within 0 s")


def test_beside_up_it_asks_the_redis_that_up_runs(
    redis_url: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared().set(names.REAPER_BEAT, int(time.time() * 1000))
    monkeypatch.setattr(current_app.conf, "broker_url", current_app.conf.broker_url)
    monkeypatch.setattr(health, "running_redis", lambda folder: redis_url)
    settings.REDIS_URL = ""
    assert check("beat") == (0, "beat: healthy")
    assert current_app.conf.broker_url == broker_url(redis_url)


def test_where_nothing_runs_it_reports_what_to_set(settings: Any, tmp_path: Path) -> None:
    settings.REDIS_URL, settings.DATA_DIR = "", tmp_path
    with pytest.raises(CommandError, match="REDIS_URL is not set, and no control plane of"):
        check("decisions")
