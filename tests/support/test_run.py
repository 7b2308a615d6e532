"""What ``make test`` makes of tests that fail, and of an interrupt, in a project with a test of each part."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import run
from tests.support.commands import running
from tests.support.waiting import eventually

PROJECT = """
import os
import pathlib
import time
import pytest

BESIDE = {"integration": "cluster", "cluster": "integration"}

def wait_for(file):
    until = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < until, file
        time.sleep(0.02)

@pytest.mark.parametrize("part", [
    "fast",
    pytest.param("integration", marks=pytest.mark.integration),
    pytest.param("cluster", marks=pytest.mark.cluster),
])
def test_part(part):
    runs = pathlib.Path("runs") / part
    runs.write_text(runs.read_text() + "." if runs.exists() else ".")
    if part in BESIDE:
        wait_for(runs.parent / BESIDE[part])
    if part == "cluster":
        os.write(1, b"not UTF-8: \\xff.")
        if pathlib.Path("stays").exists():
            pathlib.Path("stays").rename("staying")
            try:
                wait_for(pathlib.Path("never"))
            finally:
                pathlib.Path("torn_down").touch()
    fails = pathlib.Path("fails") / part
    assert not fails.exists() or len(runs.read_text()) > int(fails.read_text())
"""
ENVIRONMENT = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
INTERRUPTIBLE = ("env", "--default-signal=INT", "setsid")
"""Also where these tests ignore interrupts, as all background jobs of shells do."""
COMMAND = (sys.executable, str(Path(run.__file__)), "-p", "xdist", "--capture=no")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  integration\n  browser\n  cluster\n")
    (tmp_path / "test_parts.py").write_text(PROJECT)
    for folder in ("runs", "fails"):
        (tmp_path / folder).mkdir()
    return tmp_path


def run_all(project: Path) -> tuple[int, dict[str, int]]:
    """The exit code, and how many times each test ran."""
    environment = {**os.environ, **ENVIRONMENT}
    ended = subprocess.run(COMMAND, cwd=project, env=environment, capture_output=True, timeout=200, check=False)
    return ended.returncode, {each.name: len(each.read_text()) for each in sorted((project / "runs").iterdir())}


def test_clusters_run_beside_tests_of_many_processes(project: Path) -> None:
    assert run_all(project) == (0, {"cluster": 1, "fast": 1, "integration": 1})  # each waits until the other has begun


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
    (project / "runs" / "cluster").touch()  # no test waits for one that cannot begin
    assert run_all(project)[0] == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_an_interrupt_stops_the_clusters_and_shows_their_output(
    project: Path, number: signal.Signals, code: int
) -> None:
    (project / "stays").touch()
    with running(project, program=(*INTERRUPTIBLE, *COMMAND), within=project, environment=ENVIRONMENT) as command:
        eventually((project / "staying").exists, what="the test of a cluster")
        assert f"Its output is in {run.OUTPUT}" in command.said()
        os.killpg(command.process.pid, number)  # as a terminal does
        command.await_word("Stopping the clusters")
        if number == signal.SIGTERM:
            command.process.send_signal(number)  # as make does, in addition
        assert command.end(seconds=30) == code
        assert "not UTF-8: \ufffd." in command.said()
        assert "! KeyboardInterrupt !" in command.said()
    assert (project / "torn_down").exists()
