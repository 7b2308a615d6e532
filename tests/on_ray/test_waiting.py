"""What ``paceline ray up`` says where its agents do not join; by the interpreter that has Ray, without a cluster."""

import json
import subprocess

import pytest

from tests.architecture.sources import ROOT
from tests.support.on_ray import INSTALL, PYTHON, is_installed

SCRIPT = """
import json, sys
from paceline.cli.errors import Refusal
from paceline.on_ray import commands
from paceline.on_ray.plan import Plan
from paceline.on_ray.view import Member, View

commands.nodes = lambda: ["n1: 1 CPU"]
plan = Plan(name="ray", url="http://127.0.0.1:9", enrolment="secret", agents=2, most=2)
members = [Member(name=f"ray-{index}", **each) for index, each in enumerate(json.loads(sys.argv[1]))]
view = View(agents=2, most=2, wanted=2, members=members)
try:
    commands._await(plan, lambda: view, lambda: {plan.group(0): "PENDING"}, 0.0)
except Refusal as refusal:
    print(refusal)
"""
UNPLACED = {"state": "unplaced"}
CONNECTED = {"state": "connected", "node": "a" * 20, "host": "127.0.0.2", "starts": 1}
AWAY = {"state": "ended", "node": "b" * 20, "host": "127.0.0.3", "starts": 4, "last": "no control plane answers at it"}


@pytest.mark.integration
@pytest.mark.skipif(not is_installed(), reason=INSTALL)
@pytest.mark.parametrize(
    ("members", "said"),
    [
        (
            [UNPLACED, UNPLACED],
            "paceline ray up: a placement group of 2 x (CPU 1) found no room within 0 s (it is pending); "
            "the cluster has:\n"
            "  n1: 1 CPU\n"
            "ask for fewer --agents, or less of --cpus and --gpus, or --wait longer where nodes are added\n",
        ),
        (
            [CONNECTED, AWAY],
            "paceline ray up: found 1 of 2 agents connected to http://127.0.0.1:9 after 0 s, expected all:\n"
            "agent  state      node          address    starts\n"
            "ray-0  connected  aaaaaaaaaaaa  127.0.0.2  1\n"
            "ray-1  ended      bbbbbbbbbbbb  127.0.0.3  4       no control plane answers at it\n"
            "fix these errors (each node needs paceline[agent], and reaches that address)\n",
        ),
    ],
)
def test_what_keeps_agents_from_joining_is_named(members: list[dict[str, object]], said: str) -> None:
    command = [str(PYTHON), "-c", SCRIPT, json.dumps(members)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, said), done.stderr
