"""The steps that make the database."""

from importlib import import_module

import numpy as np
import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from controlplane.jobs.models import Job
from controlplane.telemetry.columns import (
    COLUMNS,
    ITEM_BYTES,
    ROLLED,
    STATISTICS,
    decoded_rollup,
    encoded_rollup,
    rolled,
    rollup_header,
)
from controlplane.telemetry.models import Rollup

FOLDED = {
    "fleet": (
        *("0001_initial", "0002_agent_enrolled_labels", "0003_agent_environment", "0004_agent_rotation"),
        "0005_one_slot_per_process",
    ),
    "jobs": (
        *("0001_initial", "0002_servers_and_subjects", "0003_restarts", "0004_simulated_runs"),
        *("0005_requests_and_notes", "0006_lost_processes", "0007_one_index_per_job", "0008_block_times"),
        *("0009_training_samples", "0010_environments"),
    ),
    "runtime": ("0001_initial", "0002_forecast", "0003_givenincarnation"),
    "telemetry": (
        *("0001_initial", "0002_durable_numbers", "0003_chunks_and_rollups", "0004_log_lines", "0005_simulations"),
        *("0006_simulation_attempts", "0007_engine_snapshots", "0008_simulation_variations"),
    ),
}
"""What a database says that was made in many steps."""


@pytest.mark.django_db
def test_migrations_are_complete() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


@pytest.mark.django_db
def test_a_database_that_was_made_in_many_steps_goes_on_as_it_is() -> None:
    recorder = MigrationRecorder(connection)
    recorder.migration_qs.filter(app__in=FOLDED).delete()
    for app, names in FOLDED.items():
        for name in names:
            recorder.record_applied(app, name)
    executor = MigrationExecutor(connection)
    executor.loader.check_consistent_history(connection)
    planned = {migration.name for migration, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())}
    assert not {name for name in planned if "squashed" in name or name.startswith("0001")}


@pytest.mark.django_db
def test_rollups_of_before_read_as_they_did_once_their_columns_are_named() -> None:
    step = import_module("controlplane.telemetry.migrations.0003_rollups_name_their_columns")
    names = tuple(step.NAMES.split(","))
    windows = rolled({name: np.arange(1000.0) for name in COLUMNS}, 100, names)
    bare = encoded_rollup(windows, names).removeprefix(rollup_header(names))
    assert len(bare) % (len(names) * len(STATISTICS) * ITEM_BYTES) == 0
    job = Job.objects.create(name="old", spec={}, state="succeeded", state_since=timezone.now())
    row = Rollup.objects.create(job=job, rank=0, number=0, by_10=bare, by_100=bare, by_1000=b"")
    step.name_columns(apps, None)
    step.name_columns(apps, None)
    row.refresh_from_db()
    places = [ROLLED.index(name) for name in names]
    np.testing.assert_array_equal(decoded_rollup(bytes(row.by_100))[places], windows)
    assert bytes(row.by_1000) == b""
    step.take_names_away(apps, None)
    row.refresh_from_db()
    assert bytes(row.by_10) == bare
