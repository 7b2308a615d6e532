"""The steps that make the database."""

from importlib import import_module

import numpy as np
import pytest
from django.apps import apps
from django.core.management import call_command
from django.utils import timezone

from controlplane.jobs.models import Job
from controlplane.telemetry.blobs import ITEM_BYTES
from controlplane.telemetry.columns import (
    COLUMNS,
    ROLLED,
    STATISTICS,
    decoded_rollup,
    encoded_rollup,
    rolled,
    rollup_header,
)
from controlplane.telemetry.models import Rollup


@pytest.mark.django_db
def test_migrations_are_complete() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


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
