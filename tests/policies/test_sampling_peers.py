"""``sampling: peers``: what the control plane still decides, and what is refused, with the cure."""

from typing import Any

import pytest

from controlplane.core.barriers import AsyncBarrier, SampledByPeers
from controlplane.core.combinations import MOST_PEERS, misfit
from controlplane.jobs.validation import validated_spec
from controlplane.policies import registry
from controlplane.protocol.drawing import PeerSampling
from controlplane.protocol.spec import Choice, SpecError, parse_spec

PEERS = {"name": "pbsp", "sampling": "peers", "sample": 2}


def spec(barrier: dict[str, Any], **fields: Any) -> dict[str, Any]:
    synchronization = {"barrier": barrier} | fields.pop("synchronization", {})
    document = {
        "name": "a job",
        "workload": "softmax-regression",
        "workers": 4,
        "batch_size": 16,
        "stop": {"iterations": 9},
    }
    return document | {"synchronization": synchronization} | fields


def refusal(barrier: dict[str, Any], **fields: Any) -> SpecError:
    with pytest.raises(SpecError) as raised:
        validated_spec(spec(barrier, **fields))
    return raised.value


def test_a_job_whose_workers_sample_is_accepted() -> None:
    validated_spec(spec(PEERS))
    validated_spec(spec({"name": "pssp", "sampling": "peers", "staleness": 2, "strategy": "fixed"}))


def test_orders_define_how_to_sample() -> None:
    chosen = Choice(name="pssp", parameters={"sampling": "peers", "staleness": 3, "resample": "held", "recheck": 0.5})
    policy = registry.resolve("barrier", chosen)
    assert isinstance(policy, SampledByPeers)
    assert (policy.name, policy.lease_s) == ("pssp", 60.0)
    assert policy.sampling(7) == PeerSampling(sample=4, staleness=3, held=True, recheck=0.5, seed=7)


def test_the_control_plane_samples_by_default() -> None:
    policy = registry.resolve("barrier", Choice(name="pbsp"))
    assert isinstance(policy, AsyncBarrier)
    assert not isinstance(policy, SampledByPeers)


@pytest.mark.parametrize(
    ("parameters", "cure"),
    [
        ({"strategy": "grouped"}, "strategy dynamic or fixed with sampling peers, or sampling central"),
        ({"literal": True}, "literal false with sampling peers, or sampling central"),
        ({"recheck": 0.0}, "recheck above 0 with sampling peers, or sampling central"),
    ],
)
def test_what_only_the_control_plane_can_do_is_refused(parameters: dict[str, Any], cure: str) -> None:
    error = refusal(PEERS | parameters)
    assert error.field == "synchronization.barrier"
    assert error.expected.startswith(cure)


def test_a_barrier_that_does_not_sample_is_refused_with_those_that_do() -> None:
    error = refusal({"name": "ssp", "sampling": "peers"})
    assert error.field == "synchronization.barrier.sampling"
    assert error.expected.endswith("; sampling is a parameter of pbsp, pssp")


def test_clients_of_a_federation_cannot_ask_one_another() -> None:
    error = refusal(PEERS, federated={"local_steps": 2})
    assert (error.field, error.found) == ("synchronization.barrier.sampling", "peers")
    assert error.expected.startswith("central in a federated job: its clients may be behind a firewall or NAT")


def test_all_reduce_and_attached_jobs_have_no_such_barrier() -> None:
    assert "all workers in every iteration" in refusal(PEERS, communication="all-reduce", servers=0).expected
    error = refusal(PEERS, launch="attached", workload="attached", stop={})
    assert error.field == "synchronization.barrier.name"
    assert error.expected.startswith("bsp with launch attached")


def test_data_that_is_handed_out_one_iteration_at_a_time_is_refused() -> None:
    error = refusal(PEERS, synchronization={"data": {"name": "rotation"}})
    assert "use data shared, or sampling central" in error.expected


def test_so_many_workers_cannot_know_one_another() -> None:
    error = refusal(PEERS, workers=MOST_PEERS + 1)
    assert (error.field, error.found) == ("workers", MOST_PEERS + 1)
    assert error.expected.endswith("or sampling central")


def test_a_job_whose_workers_do_not_listen_cannot_change_to_it() -> None:
    policy = registry.resolve("barrier", Choice(name="pbsp", parameters={"sampling": "peers"}))
    found = misfit(parse_spec(spec({"name": "pbsp"})), policy)
    assert found is not None
    assert found[2].startswith("central: the workers of this job were started without a port")
