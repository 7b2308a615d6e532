"""``paceline run --local``: a control plane for as long as a command runs."""

import json
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.commands import running

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
        assert command.process.wait(timeout=120) == 0, command.said()
        said = command.said().splitlines()
        told = json.loads(next(line for line in said if line.startswith("{")))
        assert told["ready"] == 200
        assert said[0] == f"paceline: job 1 (alone): {told['url']}/jobs/1/"
        assert said[1].startswith(f"paceline: sign in, once and within five minutes: {told['url']}/")
        assert command.family() == []
        with pytest.raises(httpx.ConnectError):
            httpx.get(told["url"])
    assert not (tmp_path / "var" / "address").exists()
