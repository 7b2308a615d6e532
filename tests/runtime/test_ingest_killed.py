"""Ingest is killed between any two statements, with no chance to clean up: the next one loses and doubles nothing."""

import os
import signal
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections

from controlplane.core.commands import MoveProcess
from controlplane.core.states import ProcessState
from controlplane.fleet.models import Agent
from controlplane.jobs.models import Decision, Job, Process
from controlplane.protocol.spec import spec_document
from controlplane.runtime import folds, log, names
from controlplane.runtime.executor import effects_of
from controlplane.runtime.ingest import Ingest
from controlplane.runtime.redis import Client, connect
from controlplane.telemetry.folding import unfolded
from controlplane.telemetry.history import read_columns
from controlplane.telemetry.models import RawEvent
from tests.runtime.support import SPEC, durable_numbers, facts, report, submit
from tests.telemetry.reports import stored_reports

pytestmark = pytest.mark.django_db(transaction=True)

REPORTS = 5


@pytest.fixture
def job(client: Client, enqueued: list[int], monkeypatch: pytest.MonkeyPatch) -> int:
    """One with a process, a decision and some reports that no one has copied."""
    monkeypatch.setattr(folds, "ROWS", 1)
    monkeypatch.setattr(folds, "PER_SENDER", 1)
    row = Job.objects.create(name="digits", spec=spec_document(SPEC), submitted_by=User.objects.create(username="ann"))
    submit(client, row.pk)
    agent = Agent.objects.create(name="m1", credential_digest="d").pk
    ready = MoveProcess(
        cause="1700000000000-0",
        reason="it said hello",
        role="worker",
        index=0,
        instance="w0.0.1",
        state=ProcessState.READY,
        agent=agent,
        slot=0,
    )
    client.xadd(names.commands(row.pk), {"c": effects_of(facts(row.pk), [ready]).commands, "sequence": 1})
    for number in range(1, 1 + REPORTS):
        log.append_event(row.pk, report(number, iteration=number - 1, position=0), client=client)
    return row.pk


def copy_all() -> None:
    client = connect()
    ingest = Ingest(client, Event(), wait_s=0.001)
    while ingest.step():
        pass
    client.close()


def killed_at(statement: int) -> bool:
    """Copy in a process that is killed before that statement; whether there was one."""
    connections.close_all()  # a fork must not share them
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            with connection.execute_wrapper(_killer(statement)):
                copy_all()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
    return os.WIFSIGNALED(status)


def _killer(statement: int) -> Callable[..., Any]:
    seen = 0

    def execute(run: Callable[..., Any], *given: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == statement:
            os.kill(os.getpid(), signal.SIGKILL)
        return run(*given)

    return execute


def test_killed_between_any_two_statements_it_loses_and_doubles_nothing(client: Client, job: int) -> None:
    """One kill after the other: each comes a statement later, and the next process continues from there."""
    statement, kills = 1, 0
    while killed_at(statement):
        statement, kills = statement + 1, kills + 1
        if kills % 4 == 0:  # there is always something left to do
            number = REPORTS + kills // 4
            log.append_event(job, report(number, iteration=number - 1, position=0), client=client)
    copy_all()
    reports = REPORTS + kills // 4
    assert kills > 12
    assert sorted(row.iteration for row in stored_reports()) == list(range(reports))
    assert RawEvent.objects.count() == reports + 1
    assert list(Decision.objects.values_list("sequence", flat=True)) == [1]
    assert Job.objects.get(pk=job).samples == reports * 8
    assert Process.objects.get().iteration == reports - 1
    assert durable_numbers(client, job) == {"w0.0.1": reports}
    assert list(read_columns(job, ("samples",))[0]["iteration"]) == list(range(reports))
    assert unfolded(job) == 0
