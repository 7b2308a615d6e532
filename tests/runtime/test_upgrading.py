"""What an upgrade meets: a newer database, machines of another series, jobs whose state is computed again."""

from io import StringIO

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from controlplane.core.engine import ENGINE_VERSION
from controlplane.core.states import JobState
from controlplane.fleet.models import Agent, Reservation
from controlplane.jobs.models import Job
from controlplane.protocol import RELEASE
from controlplane.runtime.upgrading import Upgrade, look
from controlplane.telemetry.models import EngineSnapshot
from tests.support.rows import submitted_job

pytestmark = pytest.mark.django_db


def live_job(version: str, snapshot: str) -> Job:
    user, _ = get_user_model().objects.get_or_create(username="ada")
    job = submitted_job(user)
    job.state = JobState.RUNNING
    job.save()
    agent = Agent.objects.create(name=f"m{job.pk}", credential_digest=f"{job.pk}", version=version)
    Reservation.objects.create(agent=agent, role="worker", slot=0, job_id=job.pk, index=0)
    EngineSnapshot.objects.create(job=job, cursor="1-0", sequence=1, incarnation=0, version=snapshot, data=b"")
    return job


def test_nothing_is_in_the_way_of_the_same_release() -> None:
    live_job(RELEASE, ENGINE_VERSION)
    assert look() == Upgrade(live=1)
    assert look().notices == ["Migrations to apply: none.", "Live jobs that continue: 1."]


def test_machines_of_another_series_and_jobs_of_another_engine_are_named() -> None:
    live_job("9.0.0", ENGINE_VERSION)
    job = live_job(RELEASE, "0")
    found = look()
    assert (found.live, found.rebuilt, len(found.obstacles)) == (2, (job.pk,), 1)
    assert "have a release not compatible with" in found.obstacles[0]
    assert f"job {job.pk}" in found.notices[-1]


def test_a_machine_of_another_series_without_a_job_is_no_obstacle() -> None:
    Agent.objects.create(name="idle", version="9.0.0")
    assert look().obstacles == []


@pytest.mark.parametrize("command", [("migrate",), ("upgrade",), ("upgrade", "--check")])
def test_a_database_of_a_newer_release_is_refused_before_anything_is_changed(command: tuple[str, ...]) -> None:
    MigrationRecorder(connection).record_applied("jobs", "9999_shelf")
    with pytest.raises(
        CommandError, match=rf"^The database belongs to a newer release than {RELEASE}, .* jobs\.9999_shelf: "
    ):
        call_command(*command, verbosity=0)


@pytest.fixture
def pending() -> None:
    """The database is of the release before the last migration of telemetry."""
    known = sorted(name for app, name in MigrationRecorder(connection).applied_migrations() if app == "telemetry")
    MigrationRecorder(connection).record_unapplied("telemetry", known[-1])


@pytest.mark.parametrize("command", [("migrate",), ("upgrade",), ("upgrade", "--check")])
@pytest.mark.usefixtures("pending")
def test_an_upgrade_that_would_break_running_jobs_is_refused_before_anything_is_changed(
    command: tuple[str, ...],
) -> None:
    job = live_job("9.0.0", ENGINE_VERSION)
    before = MigrationRecorder(connection).applied_migrations()
    with pytest.raises(CommandError, match=rf"not compatible with {RELEASE}: m{job.pk} \(9\.0\.0\)\. .* Nothing was"):
        call_command(*command, verbosity=0)
    assert MigrationRecorder(connection).applied_migrations() == before


def test_a_control_plane_of_the_same_release_starts_for_a_job_of_a_foreign_machine_to_be_stopped() -> None:
    live_job("9.0.0", ENGINE_VERSION)
    assert look().obstacles != []
    call_command("migrate", verbosity=0)


def test_a_first_migration_that_was_cut_off_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = connection.introspection.table_names()
    monkeypatch.setattr(
        connection.introspection, "table_names", lambda *_: [name for name in tables if "snapshot" not in name]
    )
    assert look() == Upgrade()


def test_an_upgrade_reports_what_it_does() -> None:
    out = StringIO()
    call_command("upgrade", "--check", stdout=out)
    assert out.getvalue() == f"To release {RELEASE}. Migrations to apply: none. Live jobs that continue: 0.\n"
