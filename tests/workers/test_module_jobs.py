"""Jobs that train a module of a user's own: what they report is what they deliver, wherever the parameters are."""

import os
from typing import Any

import numpy as np
import pytest

from controlplane.protocol.messages import ServerHello, WorkerHello
from controlplane.protocol.spec import JobSpec, Optimizer, Workload
from controlplane.protocol.training import Clip, Federated
from tests.workers.driver import Cluster, job_spec
from tests.workers.reducing import ReducingCluster
from tests.workers.workloads.test_modules import ALLOWED, accuracy, delivered, network, normalised, trained
from workers.trainer.sampler import PermutationSampler
from workers.workloads.network import Network

SHARES = [[12, 4, 8], [20, 4, 0], [8, 8, 8]] * 4
ADAM = Optimizer(name="adam", lr=0.02, weight_decay=1e-3)
CLIPPED = Optimizer(name="adamw", lr=0.02, weight_decay=1e-3, clip=Clip(norm=0.1))


def dropping() -> Network:
    return network(normalised)


def steady() -> Network:
    """Without dropout, which threads of one process draw from one stream."""

    def build() -> Any:
        module = normalised()
        module[3].p = 0.0
        return module

    return network(build)


PLACES: dict[str, dict[str, Any]] = {
    "servers": {"servers": 2},
    "aggregating servers": {"servers": 2, "server_mode": "aggregating"},
    "all-reduce": {"servers": 0, "communication": "all-reduce"},
}


def run(place: str, factory: str, **changes: Any) -> Cluster:
    spec: JobSpec = job_spec(
        **{"workers": 3, "workload": Workload(name=f"tests.workers.test_module_jobs:{factory}"), "optimizer": ADAM}
        | {"seed": 3}
        | PLACES[place]
        | changes
    )
    kind = ReducingCluster if spec.reduces else Cluster
    with kind(spec, SHARES, block_bytes=128, local=ALLOWED) as cluster:
        cluster.run()
    return cluster


@pytest.mark.parametrize("place", PLACES)
def test_the_delivered_module_scores_in_eval_what_was_reported(place: str) -> None:
    cluster = run(place, "dropping", optimizer=CLIPPED)
    (final,) = [each for each in cluster.evaluations() if each.iteration == len(SHARES)]
    (model,) = cluster.models.values()
    assert model["1.num_batches_tracked"] == len(SHARES)
    module = normalised()
    workload = dropping()
    flat = np.zeros(workload.layout.size, dtype=np.float32)
    for name, view in workload.layout.views(flat).items():
        view[...] = model[name]
    loss, right = accuracy(delivered(workload, flat, module))
    assert (loss, right) == (pytest.approx(final.loss, abs=1e-6), pytest.approx(final.accuracy, abs=1e-6))


@pytest.mark.parametrize("place", PLACES)
def test_shares_in_lockstep_give_the_same_module_wherever_it_is(place: str) -> None:
    cluster = run(place, "steady")
    workload = steady()
    order = PermutationSampler(seed=3, sample_count=180).samples(0, 24 * len(SHARES))
    expected = workload.saved(trained(workload, SHARES, optimizer=ADAM, order=order))
    (model,) = cluster.models.values()
    for name, array in expected.items():
        np.testing.assert_allclose(model[name], array, rtol=1e-4, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("place", ["servers", "all-reduce"])
def test_clients_of_a_federation_bring_back_the_mean_of_their_statistics(place: str) -> None:
    cluster = run(place, "steady", federated=Federated(local_steps=2), optimizer=Optimizer(lr=0.05))
    (model,) = cluster.models.values()
    assert np.abs(model["1.running_mean"]).max() > 0.05
    assert (model["1.running_var"] > 0).all()
    assert 20 <= model["1.num_batches_tracked"] <= 24, "the workers' mean, of those that had samples"


def careless() -> Network:
    def build() -> Any:
        module = normalised()
        module[0].weight.data.fill_(int.from_bytes(os.urandom(4)) / 2**32)  # of what no one seeds
        return module

    return network(build)


@pytest.mark.parametrize(("place", "kind"), [("servers", ServerHello), ("all-reduce", WorkerHello)])
def test_those_who_make_the_first_parameters_by_themselves_report_a_checksum_of_them(place: str, kind: Any) -> None:
    said = []
    for factory in ("dropping", "careless"):
        cluster = run(place, factory)
        processes = cluster.servers or cluster.workers
        said.append({hello.initial for process in processes for hello in process.link.heard(kind)})
    assert len(said[0]) == 1
    assert len(said[1]) == 2 + (kind is WorkerHello), "all of them differ"
    assert "" not in said[0] | said[1]


def test_only_the_evaluator_builds_memory_to_score_on(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    for kind in ("scorer", "replica"):
        make = getattr(Network, kind)
        monkeypatch.setattr(Network, kind, lambda self, kind=kind, make=make: (built.append(kind), make(self))[1])
    run("servers", "dropping")
    assert sorted(built) == ["replica"] * 3 + ["scorer"]
