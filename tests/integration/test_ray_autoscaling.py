"""A fleet that grows for a job on a cluster without room: Ray's own autoscaler adds the nodes and takes them back."""

import pytest

from tests.integration.test_ray import TRAINING, down, joined, members, up, wanting
from tests.support.on_ray import INSTALL, is_installed, running_autoscaler
from tests.support.stack import Stack
from tests.support.waiting import eventually

MOST = 3
HEAD = 1


@pytest.mark.cluster
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not is_installed(), reason=INSTALL)
def test_a_job_that_waits_gets_agents_and_their_nodes_which_go_when_no_one_needs_them(stack: Stack) -> None:
    every = {"growing-0", "growing-1", "growing-2"}
    with running_autoscaler(most=MOST) as cluster:
        given = ("--agents", "1", "--max-agents", str(MOST), "--idle", "3s", "--emulate", "1000")
        up(stack, cluster, "growing", *given)
        assert (set(joined(stack, "growing")), cluster.raylets()) == ({"growing-0"}, HEAD + 1)
        large = stack.submit(**TRAINING | {"labels": {"pool": "growing"}, "workers": 9})["id"]
        view = eventually(
            lambda: wanting(cluster, "growing", too_large=[large]), what="word of a job that is too large", every=0.5
        )
        assert len(view["members"]) == 1
        stack.stop(large)

        job = stack.submit(**TRAINING | {"labels": {"pool": "growing"}})["id"]
        assert "slots" in stack.job(job)["waiting"]["sentence"]
        eventually(lambda: cluster.raylets() == HEAD + MOST, what="a node for each agent", seconds=120)
        stack.await_job(job, "succeeded", seconds=300)
        processes = stack.ask("GET", f"/api/v1/jobs/{job}/processes")["results"]
        assert {process["agent"] for process in processes} == every

        eventually(lambda: set(members(cluster, "growing")) == {"growing-0"}, what="the end of idle agents", every=0.5)
        eventually(lambda: set(joined(stack, "growing")) == {"growing-0"}, what="the leaving of idle agents")
        eventually(lambda: cluster.raylets() == HEAD + 1, what="the end of idle nodes", seconds=90, every=0.5)
        down(stack, cluster, "growing")
        eventually(lambda: not cluster.left(), what="the end of the agents")
        eventually(lambda: cluster.raylets() == HEAD, what="the end of the last node", seconds=90, every=0.5)
