"""What earlier releases called dead is called lost, wherever it is kept."""

from importlib import import_module

import msgspec
import pytest
from django.apps import apps
from django.db import connection

from controlplane.core.states import ProcessState
from controlplane.jobs.models import Decision, Flag, FlagNote, Process
from tests.frontend import factories


@pytest.mark.django_db
def test_rows_decisions_and_findings_are_renamed() -> None:
    job = factories.demo_job()
    Process.objects.filter(role="worker", index=1).update(state="dead")
    factories.make_decision(job, 90, "move-process", {"role": "worker", "index": 1, "state": "dead"})
    factories.make_decision(job, 91, "raise-flag", {"subject": "worker", "rank": 1, "kind": "dead"})
    factories.make_flag(job, key="w1-dead", rank=1, kind="dead")
    FlagNote.objects.create(job=job, key="w1-dead", subject="worker", rank=1, kind="dead", actor="ada")
    import_module("controlplane.jobs.migrations.0006_lost_processes").rename(apps, connection.schema_editor())
    assert Process.objects.get(role="worker", index=1).state == ProcessState.LOST
    assert Process.objects.filter(state=ProcessState.READY).count() == 5
    assert [row.payload for row in Decision.objects.filter(sequence__gte=90).order_by("sequence")] == [
        {"role": "worker", "index": 1, "state": "lost"},
        {"subject": "worker", "rank": 1, "kind": "lost"},
    ]
    assert set(Flag.objects.values_list("rank", "kind")) == {(3, "compute"), (1, "lost")}
    assert FlagNote.objects.get().kind == "lost"


def test_snapshots_and_logs_of_earlier_releases_can_be_read() -> None:
    assert msgspec.json.decode(b'["dead", "ready"]', type=list[ProcessState]) == [ProcessState.LOST, ProcessState.READY]
    with pytest.raises(msgspec.ValidationError, match="Invalid enum value"):
        msgspec.json.decode(b'"asleep"', type=ProcessState)
