"""Laws of training: any division of the samples over the workers is the same run (LB-BSP Eq. 7)."""

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.protocol.optimizers import setting_of
from controlplane.protocol.spec import JobSpec, Optimizer, Workload
from tests.support.examples import examples
from tests.workers.driver import Cluster, Vector, job_spec
from workers.trainer.sampler import PermutationSampler
from workers.workloads.catalogue import load_workload
from workers.workloads.network import Network

GLOBAL_BATCH = 48


def single_process_run(spec: JobSpec, batches: list[tuple[int, int]]) -> Vector:
    """The same training as anybody would write it: one model, one optimizer, the mean loss of each batch."""
    workload = load_workload(spec.workload)
    assert isinstance(workload, Network)
    data = workload.dataset.split.train
    sampler = PermutationSampler(seed=spec.seed, sample_count=workload.sample_count)
    module = workload.build()
    torch.nn.utils.vector_to_parameters(torch.from_numpy(workload.init(spec.seed)), module.parameters())
    setting, clip = setting_of(spec.optimizer), spec.optimizer.clip
    assert setting.entry is not None
    assert setting.lr is not None
    kind: Any = getattr(torch.optim, setting.entry.torch)
    optimizer = kind(module.parameters(), lr=setting.lr, **setting.options)
    for position, count in batches:
        inputs, targets = data.take(sampler.samples(position, count), torch.device("cpu"))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(inputs), targets).backward()
        if clip is not None and clip.norm is not None:
            torch.nn.utils.clip_grad_norm_(module.parameters(), clip.norm)
        optimizer.step()
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy()


def divide(total: int, cuts: list[int]) -> list[int]:
    """``total`` divided at ``cuts``: shares from zero up, in any order."""
    edges = [0, *sorted(cut % (total + 1) for cut in cuts), total]
    return [after - before for before, after in pairwise(edges)]


@st.composite
def schedules(draw: st.DrawFn) -> list[list[int]]:
    """Shares of 2 to 4 workers over 3 to 6 iterations; each sums to the global batch."""
    workers = draw(st.integers(2, 4))
    cuts = st.lists(st.integers(0, GLOBAL_BATCH), min_size=workers - 1, max_size=workers - 1)
    return [divide(GLOBAL_BATCH, c) for c in draw(st.lists(cuts, min_size=3, max_size=6))]


@settings(max_examples=examples(8), deadline=None)
@given(schedule=schedules(), servers=st.integers(1, 3), seed=st.integers(0, 2**31))
def test_a_run_under_any_shares_equals_the_single_process_run(
    schedule: list[list[int]], servers: int, seed: int
) -> None:
    optimizer = Optimizer(lr=0.5, momentum=0.9, weight_decay=1e-3)
    spec = job_spec(workers=len(schedule[0]), servers=servers, seed=seed, optimizer=optimizer)
    with Cluster(spec, schedule, block_bytes=400) as cluster:
        cluster.run()
    batches = [(k * GLOBAL_BATCH, GLOBAL_BATCH) for k in range(len(schedule))]
    np.testing.assert_allclose(cluster.parameters, single_process_run(spec, batches), rtol=1e-5, atol=1e-5)


def test_a_convolutional_network_trains_the_same_on_uneven_shares() -> None:
    spec = job_spec(workers=3, servers=2, workload=Workload(name="cnn"))
    schedule = [[30, 11, 7], [1, 40, 7], [16, 16, 16], [0, 0, 48]]
    with Cluster(spec, schedule, block_bytes=4096) as cluster:
        cluster.run()
    batches = [(k * GLOBAL_BATCH, GLOBAL_BATCH) for k in range(len(schedule))]
    np.testing.assert_allclose(cluster.parameters, single_process_run(spec, batches), rtol=1e-5, atol=1e-5)
