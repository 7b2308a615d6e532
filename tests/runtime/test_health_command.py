"""``manage.py health``: what a container engine asks of the background services."""

import io
import time

import pytest
from django.core.management import call_command

from controlplane.runtime import names
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
    assert check("beat") == (0, "beat: well")


def test_beat_is_not_well_once_they_stopped(redis_url: str) -> None:
    shared().set(names.REAPER_BEAT, int((time.time() - 60) * 1000))
    assert check("beat") == (1, "the last of beat's tasks ran 60 s ago, expected one each second")


def test_a_worker_that_does_not_answer_is_not_well(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "ANSWER_S", 0.01)
    monkeypatch.setattr(health.socket, "gethostname", lambda: "host")
    assert check("decisions") == (1, "decisions@host did not answer within 0 s")
