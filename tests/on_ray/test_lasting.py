"""What runs on Ray's nodes continues after a failure that passes: the look at the fleet, and each agent."""

import os
import sys
from pathlib import Path

import pytest

from paceline.on_ray.hosting import Hosting
from paceline.on_ray.view import Member, View, Watch
from tests.support.waiting import eventually

VIEW = View(agents=1, most=1, wanted=1, members=[Member(name="ray-0", state="unplaced")])


@pytest.mark.parametrize(
    "error", [RuntimeError("the cluster is busy"), ValueError("no such group"), OSError(28, "full")]
)
def test_a_look_that_fails_is_reported_and_another_follows(error: Exception) -> None:
    later = View(agents=1, most=1, wanted=1, members=[Member(name="ray-0", state="connected")])
    is_back, ended = [], []

    def look() -> View:
        if not started:
            return VIEW
        if is_back:
            return later
        raise error

    started: list[bool] = []
    watch = Watch(look, lambda: ended.append(True), round_s=0.01)
    started.append(True)
    eventually(lambda: watch.view.stale == f"{type(error).__name__}: {error}", what="word of the failure")
    assert watch.view.members == VIEW.members
    is_back.append(True)
    eventually(lambda: watch.view == later, what="the next look")
    watch.end()
    assert ended == [True]


def test_an_agent_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    program = tmp_path / "agent"
    hosting = Hosting([str(program)], "secret", os.environ, pause_s=0.01)
    eventually(lambda: hosting.starts > 1, what="a second try")
    eventually(
        lambda: f"{program} cannot be started: [Errno 2] No such file" in hosting.last, what="why it is not here"
    )
    written = tmp_path / "written"
    written.write_text(
        f"#!{sys.executable}\nimport time\nprint(input(), 'is connected to it', flush=True)\ntime.sleep(60)\n"
    )
    written.chmod(0o755)
    written.rename(program)
    eventually(lambda: hosting.state == "connected", what="its start")
    assert (hosting.pid > 0, hosting.last) == (True, "")
    hosting.end()
