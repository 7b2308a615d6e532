"""What ``make test`` makes of tests that fail, in a project with a test of each part."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import run

PROJECT = """
import pathlib
import pytest

@pytest.mark.parametrize("part", [
    "fast",
    pytest.param("integration", marks=pytest.mark.integration),
    pytest.param("cluster", marks=pytest.mark.cluster),
])
def test_part(part):
    runs = pathlib.Path("runs") / part
    runs.write_text(runs.read_text() + "." if runs.exists() else ".")
    fails = pathlib.Path("fails") / part
    assert not fails.exists() or len(runs.read_text()) > int(fails.read_text())
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  integration\n  browser\n  cluster\n")
    (tmp_path / "test_parts.py").write_text(PROJECT)
    for folder in ("runs", "fails"):
        (tmp_path / folder).mkdir()
    return tmp_path


def run_all(project: Path) -> tuple[int, dict[str, int]]:
    """The exit code, and how many times each test ran."""
    command = [sys.executable, str(Path(run.__file__)), "-p", "xdist"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ended = subprocess.run(command, cwd=project, env=environment, capture_output=True, timeout=200, check=False)
    return ended.returncode, {each.name: len(each.read_text()) for each in sorted((project / "runs").iterdir())}


def test_a_test_that_fails_once_in_each_part_runs_again_and_passes(project: Path) -> None:
    for part in ("fast", "integration", "cluster"):
        (project / "fails" / part).write_text("1")
    assert run_all(project) == (0, {"cluster": 2, "fast": 2, "integration": 2})


@pytest.mark.parametrize("part", ["fast", "integration", "cluster"])
def test_a_test_that_fails_again_fails_all_and_keeps_no_other_from_running(project: Path, part: str) -> None:
    (project / "fails" / part).write_text("2")
    assert run_all(project) == (1, {"cluster": 1, "fast": 1, "integration": 1, part: 2})


def test_a_part_that_does_not_run_fails_all(project: Path) -> None:
    (project / "test_broken.py").write_text("import missing_module")
    assert run_all(project)[0] == 1
