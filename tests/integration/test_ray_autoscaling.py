"""``paceline ray up`` on a cluster without room, to which Ray's own autoscaler adds nodes."""

import re

import pytest

from tests.support.on_ray import INSTALL, is_installed, running_autoscaler
from tests.support.stack import Stack
from tests.support.waiting import eventually

NODES = 2


@pytest.mark.cluster
@pytest.mark.timeout(400)
@pytest.mark.skipif(not is_installed(), reason=INSTALL)
def test_agents_without_room_get_nodes_from_rays_autoscaler_which_takes_them_back(stack: Stack) -> None:
    reach = {"PACELINE_API_TOKEN": stack.token, "PACELINE_URL": stack.url}
    given = ("--name", "scaled", "--agents", str(NODES), "--detach")
    with running_autoscaler(most=NODES) as cluster:
        said = cluster.paceline("ray", "up", *given, "--emulate", "1000", **reach)
        agents = re.findall(r"^scaled-\d +(\w+) +\w+ +(127\.[\d.]+) +\d", said, flags=re.MULTILINE)
        assert {state for state, _ in agents} == {"connected"}
        assert len({host for _, host in agents}) == NODES, said
        cluster.paceline("ray", "down", "--name", "scaled", **reach)
        eventually(lambda: not cluster.left(), what="the end of the agents")
        eventually(lambda: cluster.raylets() == 1, what="the end of nodes that nobody needs", seconds=90, every=0.5)
