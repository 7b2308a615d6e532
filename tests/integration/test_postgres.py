"""Everything that speaks to the database does so on PostgreSQL as well."""

import os
import subprocess
import sys

import pytest

from tests.architecture.sources import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

FOLDERS = [
    "tests/fleet",
    "tests/jobs",
    "tests/telemetry",
    "tests/api",
    "tests/runtime/recovery/test_snapshots.py",
    "tests/runtime/test_dead_letters.py",
    "tests/runtime/test_freshness.py",
    "tests/runtime/test_ingest.py",
    "tests/runtime/test_ingest_killed.py",
    "tests/runtime/test_loglines.py",
    "tests/runtime/test_loops.py",
    "tests/runtime/test_pruning.py",
    "tests/runtime/test_ingest_health.py",
    "tests/frontend",
]
LEFT_OUT = [f"--ignore=tests/{path}" for path in ("api/test_contract.py", "api/demo", "api/test_permissions.py")]
"""Slow, and of no interest here."""

SIDE_BY_SIDE = ["-n", "2", "--dist", "loadfile"]
FAST = "database and not integration and not browser and not cluster"


def test_tests_of_the_database_pass_on_postgresql(postgres_url: str) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-m",
            FAST,
            *SIDE_BY_SIDE,
            "-p",
            "no:cacheprovider",
            *LEFT_OUT,
            *FOLDERS,
        ],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": postgres_url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:]
