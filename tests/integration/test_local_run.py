"""``paceline run --local``: a control plane for as long as a command runs."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.commands import running
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

TELL = """
import json, os, urllib.request
url = os.environ["PACELINE_URL"]
print(json.dumps({"url": url, "ready": urllib.request.urlopen(f"{url}/readyz").status}))
"""


def test_a_control_plane_is_there_for_the_command_and_gone_with_it(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "paceline"]
    arguments = ["run", "--local", "--name", "alone", "--", sys.executable, "-c", TELL]
    environment = {"PACELINE_API_TOKEN": "", "PACELINE_URL": ""}
    with running(tmp_path, *arguments, program=program, environment=environment) as command:
        assert command.end(seconds=120) == 0, command.said()
        said = command.said().splitlines()
        told = json.loads(next(line for line in said if line.startswith("{")))
        assert told["ready"] == 200
        assert said[0] == f"paceline: job 1 (alone): {told['url']}/jobs/1/"
        assert said[1].startswith(f"paceline: one-time login link, valid for five minutes: {told['url']}/")
        assert command.family() == []
        with pytest.raises(httpx.ConnectError):
            httpx.get(told["url"])
    assert not (tmp_path / "var" / "address").exists()


def test_a_killed_run_leaves_no_control_plane_behind(tmp_path: Path) -> None:
    arguments = ["run", "--local", "--", "sleep", "60"]
    environment = {"PACELINE_API_TOKEN": "", "PACELINE_URL": ""}
    program = [sys.executable, "-m", "paceline"]
    with running(tmp_path, *arguments, program=program, environment=environment) as command:
        command.await_word("paceline: one-time login link")
        assert len(command.family()) > 4
        listed = [*program, "jobs"]
        beside = {**os.environ, "PACELINE_DATA_DIR": str(tmp_path / "var"), **environment}
        shown = subprocess.run(listed, capture_output=True, text=True, check=False, timeout=60, env=beside)
        assert (shown.returncode, shown.stdout.splitlines()[1].split()[:2]) == (0, ["1", "sleep"]), shown
        command.process.send_signal(signal.SIGKILL)
        planes = "the end of the control plane"
        eventually(lambda: all(each.name() == "sleep" for each in command.family()), what=planes)
