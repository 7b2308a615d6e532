"""Whatever starts a release looks at the database before it migrates it."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from controlplane.protocol import RELEASE
from controlplane.runtime.embedded import control_plane
from tests.deploy.kubernetes import pods
from tests.deploy.reading import ROOT, services

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

JOB = """
from django.utils import timezone
from controlplane.fleet.models import Agent, Reservation
from controlplane.jobs.models import Job
job = Job.objects.create(name="nightly", spec={}, state="running", state_since=timezone.now())
agent = Agent.objects.create(name="m1", credential_digest="d", version="9.0.0")
Reservation.objects.create(agent=agent, role="worker", slot=0, job_id=job.pk, index=0)
"""

LAST = "SELECT id FROM django_migrations WHERE app = 'telemetry' ORDER BY name DESC LIMIT 1"

WAYS = {
    "up": control_plane.MIGRATE[1:],
    "compose": services()["migrate"]["command"][1:],
    "kubernetes": pods("overlays/small")["migrate"]["containers"][0]["command"][1:],
    "upgrade": ["manage.py", "upgrade"],
}


def manage(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PACELINE_DATA_DIR": str(folder), "DATABASE_URL": "", "REDIS_URL": ""}
    return subprocess.run(
        [sys.executable, *command], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of an earlier release: one migration less, and a job on a machine of another series."""
    folder = tmp_path_factory.mktemp("earlier")
    for command in (["manage.py", "migrate"], ["manage.py", "shell", "-c", JOB]):
        done = manage(folder, *command)
        assert done.returncode == 0, done.stderr
    with closing(sqlite3.connect(next(folder.glob("*.sqlite3")))) as database, database:
        database.execute(f"DELETE FROM django_migrations WHERE id = ({LAST})")
    return folder


def rows(folder: Path) -> list[str]:
    with closing(sqlite3.connect(next(folder.glob("*.sqlite3")))) as database:
        return list(database.iterdump())


@pytest.mark.parametrize("way", WAYS)
def test_what_would_break_a_running_job_is_said_before_anything_is_touched(
    earlier: Path, tmp_path: Path, way: str
) -> None:
    folder = Path(shutil.copytree(earlier, tmp_path / "data"))
    before = rows(folder)
    done = manage(folder, *WAYS[way])
    assert done.returncode == 1
    assert f"not compatible with {RELEASE}: m1 (9.0.0)" in done.stderr
    assert rows(folder) == before


@pytest.mark.parametrize("way", WAYS)
def test_a_downgrade_is_refused_with_why(earlier: Path, tmp_path: Path, way: str) -> None:
    folder = Path(shutil.copytree(earlier, tmp_path / "data"))
    with closing(sqlite3.connect(next(folder.glob("*.sqlite3")))) as database, database:
        database.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('jobs', '9999_shelf', '2026-01-01')"
        )
    before = rows(folder)
    done = manage(folder, *WAYS[way])
    assert done.returncode == 1
    assert f"The database belongs to a newer release than {RELEASE}, which does not have jobs.9999_shelf" in done.stderr
    assert rows(folder) == before
