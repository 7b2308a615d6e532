"""When the enrolment token of a fleet is revoked; by the interpreter that has Ray, without a cluster."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.support.on_ray import INSTALL, PYTHON, is_installed

SCRIPT = """
import argparse, json, sys
from contextlib import contextmanager
from types import SimpleNamespace

from paceline.cli import ray as parser
from paceline.cli.access import Access
from paceline.cli.errors import Refusal
from paceline.client.address import Address
from paceline.on_ray import commands
from paceline.on_ray.view import Member, View

state, interrupted, *arguments = sys.argv[1:]
view = View(agents=1, most=1, wanted=1, members=[Member(name="ray-0", state=state)])
done = []


@contextmanager
def context(*_):
    yield client


def look():
    if interrupted == "interrupted":
        raise KeyboardInterrupt
    return view


client = SimpleNamespace(
    invite=lambda **_: SimpleNamespace(token="secret", id=7), revoke_invitation=lambda number: done.append(number)
)
fleet = SimpleNamespace(look=look, groups=lambda: {}, end=lambda: done.append("ended"))
actor = SimpleNamespace(
    view=SimpleNamespace(remote=look),
    groups=SimpleNamespace(remote=lambda: {}),
    end=SimpleNamespace(remote=lambda: done.append("ended")),
)
commands.access.find = lambda *_: Access(address=Address(url="http://127.0.0.1:9", token="x"))
commands.access.opened = commands.access.connected = commands.connected = context
commands.nodes = lambda: []
commands._check_free = lambda name: None
commands._view = lambda actor: look()
commands.Fleet = lambda plan: fleet
commands.supervisor.begin = lambda plan: actor
commands.ray.get = lambda answer, timeout: answer
commands.ray.kill = lambda actor, no_restart: None
known = argparse.ArgumentParser()
parser.add_command(known.add_subparsers())
options = known.parse_args(["ray", "up", "--wait", "1s", *arguments])
options.behind = []
try:
    commands.up(options)
    done.append("up")
except Refusal:
    done.append("refused")
except KeyboardInterrupt:
    done.append("interrupted")
print(json.dumps(done))
"""


def done(state: str, *arguments: str, interrupted: bool = False) -> list[str | int]:
    """What ``ray up`` did to a fleet whose agent is in this state, last how it ended; a number: the revoked token."""
    command = [str(PYTHON), "-c", SCRIPT, state, "interrupted" if interrupted else "", *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    found: list[str | int] = json.loads(ended.stdout.splitlines()[-1])
    return found


pytestmark = [pytest.mark.integration, pytest.mark.skipif(not is_installed(), reason=INSTALL)]


@pytest.mark.parametrize("detached", [(), ("--detach",)])
def test_the_token_of_a_fleet_that_does_not_start_is_revoked(detached: tuple[str, ...]) -> None:
    assert done("unplaced", *detached) == ["ended", 7, "refused"]


@pytest.mark.parametrize("detached", [(), ("--detach",)])
def test_the_token_of_a_fleet_that_is_interrupted_is_revoked(detached: tuple[str, ...]) -> None:
    assert done("connected", *detached, interrupted=True) == ["ended", 7, "interrupted"]


def test_a_detached_fleet_keeps_its_token() -> None:
    assert done("connected", "--detach") == ["up"]


def test_a_token_that_the_user_named_is_not_revoked(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    named = ("--enrolment-token", str(tmp_path / "token"))
    assert done("connected", *named, interrupted=True) == ["ended", "interrupted"]
