"""A worker that is lost: its machine's card and its line say so and why, and continue saying it once it is back."""

from datetime import datetime, timedelta

import pytest
from django.test import Client

from controlplane.core.states import ProcessState
from controlplane.jobs.models import Job, Process
from frontend.queries.fleet import SHOWN_FOR, Loss, machines
from frontend.queries.job import decisions, processes
from frontend.queries.overview import events
from tests.frontend import factories
from tests.frontend.factories import START
from tests.frontend.test_pages import text_of

pytestmark = pytest.mark.django_db

WHY = "was ended by signal 9; restart 1 of 3 in 0.5 s"
ENDED = START + timedelta(seconds=30)


@pytest.fixture
def job() -> Job:
    """One of whose workers was killed."""
    job = factories.demo_job()
    Process.objects.filter(role="worker", index=1).update(
        state=ProcessState.LOST, state_since=ENDED, ended_at=ENDED, reason=WHY
    )
    return job


def begin_again(job: Job) -> None:
    life = Process.objects.get(job=job, role="worker", index=1)
    life.pk, life.instance, life.started_at, life.ended_at = None, "w1-b", ENDED + timedelta(seconds=1), None
    life.state, life.reason = ProcessState.READY, "it said hello"
    life.save()


def losses(now: datetime) -> list[list[Loss]]:
    return [card.losses for card in machines(now)]


def test_the_card_reports_who_was_lost_and_why_until_the_job_ends(job: Job) -> None:
    lost = Loss(title="w1", job=job.pk, at=ENDED, reason=WHY, back=False)
    assert losses(ENDED + timedelta(days=1)) == [[], [lost], [], []]
    Job.objects.update(state="cancelled")
    assert losses(ENDED) == [[], [], [], []]


def test_the_card_reports_it_for_a_while_when_it_is_back(job: Job) -> None:
    begin_again(job)
    back = Loss(title="w1", job=job.pk, at=ENDED, reason=WHY, back=True)
    assert losses(ENDED + SHOWN_FOR / 2) == [[], [back], [], []]
    assert losses(ENDED + SHOWN_FOR) == [[], [], [], []]


def test_its_line_keeps_the_reason_of_the_previous_instance(job: Job, viewer: Client) -> None:
    begin_again(job)
    lines = {line.title: (line.state, line.reason, line.instances, line.earlier) for line in processes(job)}
    assert lines["w1"] == ("ready", "it said hello", 2, WHY)
    assert lines["w0"][2:] == (1, "")
    shown = text_of(viewer, f"/jobs/{job.pk}/?tab=processes")
    assert WHY in shown


def test_the_feed_shows_each_loss_once_and_why(job: Job) -> None:
    moved = {"role": "worker", "index": 1, "state": "lost"}
    factories.make_decision(job, 90, "move-process", moved, reason=WHY)
    factories.make_decision(job, 91, "raise-flag", {"subject": "worker", "rank": 1, "kind": "lost"}, reason=WHY)
    factories.make_decision(job, 92, "move-process", moved | {"state": "ready"}, reason="it said hello")
    told = [(event.what, event.reason) for event in events() if event.reason == WHY]
    assert told == [("w1 is lost", WHY)]
    assert [line.what for line in decisions(job)][:2] == ["w1 is flagged: lost", "w1 is lost"]


def test_the_overview_names_it(job: Job, viewer: Client) -> None:
    shown = text_of(viewer, "/")
    assert f"w1 of job {job.pk}" in shown
    assert WHY in shown
