"""``paceline ray up`` on a cluster without room, to which Ray's own autoscaler adds nodes; without a control plane."""

import re
from pathlib import Path

import pytest

from tests.support.on_ray import PYTHON, running_autoscaler
from tests.support.waiting import eventually

NODES = 2


@pytest.mark.cluster
@pytest.mark.timeout(400)
@pytest.mark.skipif(
    not (PYTHON.parents[1] / ".installed").exists(), reason="the adapters' libraries are not installed: make adapters"
)
def test_agents_without_room_get_nodes_from_rays_autoscaler_which_takes_them_back(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("not one")
    given = ("--agents", str(NODES), "--url", "http://127.0.0.1:9", "--enrolment-token", str(tmp_path / "token"))
    with running_autoscaler(most=NODES) as cluster:
        said = cluster.paceline("ray", "up", *given, "--wait", "60s", code=1)
        agents = re.findall(r"^ray-\d +(\w+) +\w+ +(127\.[\d.]+) +\d", said, flags=re.MULTILINE)
        assert len({host for _, host in agents}) == NODES, said
        assert "no control plane answers at http://127.0.0.1:9" in said
        assert said.rstrip().endswith("fix these errors (each node needs paceline[agent], and reaches that address)")
        eventually(lambda: not cluster.left(), what="the end of the agents")
        eventually(lambda: cluster.raylets() == 1, what="the end of nodes that nobody needs", seconds=90, every=0.5)
