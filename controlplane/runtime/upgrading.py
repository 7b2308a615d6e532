"""Checks an upgrade: what prevents this release from serving the database and machines, and what the upgrade does.

The check is before any change. Releases with the same first two numbers are compatible, so workers
of the earlier one continue; see ``controlplane.protocol.understands``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from controlplane.core.engine import ENGINE_VERSION
from controlplane.core.states import JOB_OVER, JobState
from controlplane.fleet.models import Agent, Reservation
from controlplane.jobs.models import Job
from controlplane.protocol import RELEASE, understands
from controlplane.telemetry.models import EngineSnapshot

NAMED = 5
"""Maximum number of items of a kind in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """The state of this database for an upgrade to this release."""

    unknown: tuple[str, ...] = ()
    """Migrations in the database that this release does not have: the database belongs to a newer release."""
    pending: tuple[str, ...] = ()
    """Migrations that are to be applied."""
    foreign: tuple[str, ...] = ()
    """Machines with processes of live jobs and a release that is not compatible."""
    live: int = 0
    rebuilt: tuple[int, ...] = ()
    """Live jobs with a snapshot of another engine version: their state is rebuilt from their whole log."""

    @property
    def obstacles(self) -> list[str]:
        """Reasons why the upgrade is not possible."""
        found = []
        if self.unknown:
            found.append(newer_database(self.unknown))
        if self.foreign:
            found.append(
                f"Machines with running jobs have a release not compatible with {RELEASE}: {_some(self.foreign)}."
                " With the earlier release, wait for their jobs or stop them; then update these machines. Nothing was"
                " changed."
            )
        return found

    @property
    def refusals(self) -> list[str]:
        """Reasons why ``migrate`` changes nothing.

        Without a migration to apply, a foreign machine is none: the control plane must start for its job to be stopped.
        """
        return self.obstacles if self.unknown or self.pending else []

    @property
    def notices(self) -> list[str]:
        """The effects of the upgrade."""
        found = [f"Migrations to apply: {_some(self.pending) or 'none'}.", f"Live jobs that continue: {self.live}."]
        if self.rebuilt:
            jobs = _some([f"{number}" for number in self.rebuilt])
            found.append(f"State to recompute from the whole log, which may take minutes per job: job {jobs}.")
        return found


def look() -> Upgrade:
    """Determine the present state. It only reads the database."""
    unknown, pending = migrations()
    if unknown or not _has_tables():
        return Upgrade(unknown=unknown, pending=pending)
    live = Job.objects.filter(simulation=None).exclude(state__in=JOB_OVER).exclude(state=JobState.SUBMITTED)
    numbers = list(live.order_by("pk").values_list("pk", flat=True))
    machines = Agent.objects.filter(pk__in=Reservation.objects.filter(job_id__in=numbers).values("agent"))
    rows = machines.order_by("name").values_list("name", "version")
    snapshots = EngineSnapshot.objects.filter(job_id__in=numbers).exclude(version=ENGINE_VERSION)
    return Upgrade(
        pending=pending,
        foreign=tuple(f"{name} ({version})" for name, version in rows if not understands(version)),
        live=len(numbers),
        rebuilt=tuple(snapshots.order_by("job_id").values_list("job_id", flat=True)),
    )


def _has_tables() -> bool:
    """Whether the tables that are read are there: not in an empty database, or where a first migration was cut off."""
    read = {model._meta.db_table for model in (Job, Agent, Reservation, EngineSnapshot)}
    return read <= set(connection.introspection.table_names())


def migrations() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The database's migrations that this release does not have, and this release's migrations to apply."""
    executor = MigrationExecutor(connection)
    loader = executor.loader
    known = set(loader.disk_migrations)
    known.update(replaced for migration in loader.disk_migrations.values() for replaced in migration.replaces)
    unknown = [key for key in sorted(set(loader.applied_migrations) - known) if key[0] in loader.migrated_apps]
    plan = executor.migration_plan(loader.graph.leaf_nodes())
    return _named(unknown), _named([(each.app_label, each.name) for each, _ in plan])


def newer_database(unknown: Sequence[str]) -> str:
    """Why a database of a newer release is refused."""
    return (
        f"The database belongs to a newer release than {RELEASE}, which does not have {_some(unknown)}: install that"
        " release, or restore the dump from before the upgrade. Nothing was changed."
    )


def _named(keys: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(f"{app}.{name}" for app, name in keys)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
