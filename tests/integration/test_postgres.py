"""Every statement that goes to the database goes to PostgreSQL as well.

The fast tests have told which each of them gives (``tests.support.statements``): of those that give the same, one runs.
Where nothing is known of a test, it runs, and so do all that commit.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.support import statements

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

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
    "tests/runtime/test_tables.py",
    "tests/runtime/test_ingest_health.py",
    "tests/frontend",
]
LEFT_OUT = [f"--ignore=tests/{path}" for path in ("api/test_contract.py", "api/demo", "api/test_permissions.py")]
"""Slow, and of no interest here."""

SIDE_BY_SIDE = ["-n", "2", "--dist", "loadfile"]
FAST = "database and not integration and not browser and not cluster"


def test_tests_of_the_database_pass_on_postgresql(
    postgres_url: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    cache, known = pytestconfig.cache, tmp_path / "known.json"
    known.write_text(json.dumps({} if cache is None else cache.get(statements.RECORD, {})))
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
        env={**os.environ, "DATABASE_URL": postgres_url, statements.KNOWN: str(known)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:]
