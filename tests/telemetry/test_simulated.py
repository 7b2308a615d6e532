"""A simulated run's log as a job's rows."""

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from controlplane.core.events import Entry, WorkerMessageReceived
from controlplane.jobs.models import Job
from controlplane.protocol.messages import WorkerHello
from controlplane.telemetry.simulated import Series
from tests.runtime.support import report
from tests.support.rows import submitted_job

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("has_losses", "epoch"), [(True, 1437), (False, None)])
def test_an_epoch_is_known_where_something_was_learned(has_losses: bool, epoch: int | None) -> None:
    job, series = submitted_job(User.objects.create_user("ada")), Series(has_losses=has_losses)
    hello = WorkerHello(number=1, parameter_count=650, sample_count=1437)
    series.add(Entry(id="1-0", event=WorkerMessageReceived(rank=0, instance="w0.0.1", message=hello)), [])
    series.add(Entry(id="2-0", event=report(2)), [])
    series.store(job, timezone.now())
    assert Job.objects.get(pk=job.pk).training_samples == epoch
