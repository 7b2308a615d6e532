"""Laws of every workload in the catalogue: a new one joins by its entry in ``tiny``."""

import numpy as np
import pytest
import torch

from controlplane.protocol.catalogue import WORKLOADS
from tests.workers.workloads.tiny import TINY
from workers.trainer.sampler import PermutationSampler
from workers.workloads.catalogue import load_workload
from workers.workloads.shape import Replica, Update, Workload, named_arrays

BATCH = 48
every_workload = pytest.mark.parametrize("name", list(TINY))


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def ready(name: str) -> tuple[Workload, Replica, PermutationSampler]:
    workload = load_workload(TINY[name][0])
    replica = workload.replica()
    replica.parameters[:] = workload.init(7)
    return workload, replica, PermutationSampler(seed=7, sample_count=workload.sample_count)


def test_all_of_the_catalogue_is_tried() -> None:
    assert set(TINY) == set(WORKLOADS)


@every_workload
def test_its_loss_falls(name: str) -> None:
    workload, replica, sampler = ready(name)
    rule = workload.rule(torch.from_numpy(replica.parameters), TINY[name][1])
    before = replica.evaluate()
    for iteration in range(15):
        update = replica.update(sampler.samples(iteration * BATCH, BATCH))
        rule.apply(torch.from_numpy(replica.gradient), update.samples)
    after = replica.evaluate()
    assert after.loss < 0.95 * before.loss
    assert after.samples == before.samples > 0


@every_workload
@pytest.mark.parametrize("cut", [0, 1, 17])
def test_sums_over_parts_add_up_to_the_sum_over_the_whole(name: str, cut: int) -> None:
    _, replica, sampler = ready(name)
    samples = sampler.samples(0, 40)
    whole, sums = replica.update(samples), replica.gradient.copy()
    first, part = replica.update(samples[:cut]), replica.gradient.copy()
    rest = replica.update(samples[cut:])
    np.testing.assert_allclose(part + replica.gradient, sums, rtol=1e-4, atol=1e-4 * max(1.0, abs(sums).max()))
    assert (first.samples, rest.samples, whole.samples) == (cut, 40 - cut, 40)
    assert first.loss_sum + rest.loss_sum == pytest.approx(whole.loss_sum, rel=1e-4)


@every_workload
def test_no_samples_give_zeros(name: str) -> None:
    _, replica, _ = ready(name)
    replica.update(np.arange(5))
    assert replica.gradient.any()
    update = replica.update(np.empty(0, dtype=np.int64))
    assert (update, update.loss, replica.gradient.any()) == (Update(loss_sum=0.0, samples=0), 0.0, False)


@every_workload
def test_its_first_parameters_depend_on_the_seed_alone(name: str) -> None:
    workload = load_workload(TINY[name][0])
    first, again, other = (load_workload(TINY[name][0]).init(seed) for seed in (7, 7, 8))
    assert first.tobytes() == again.tobytes()
    assert first.dtype == np.float32
    assert first.size == sum(workload.layout.sizes)
    assert first.tobytes() != other.tobytes()


@every_workload
def test_it_is_saved_by_the_names_of_its_tensors(name: str) -> None:
    workload, replica, _ = ready(name)
    arrays = named_arrays(workload, replica.parameters)
    assert {name: array.shape for name, array in arrays.items()} == workload.layout.shapes


@every_workload
def test_two_replicas_do_not_touch_each_other(name: str) -> None:
    workload, one, _ = ready(name)
    other = workload.replica()
    one.update(np.arange(8))
    assert (other.parameters.any(), other.gradient.any()) == (False, False)


@every_workload
def test_it_has_a_class_for_each_training_sample(name: str) -> None:
    workload = load_workload(TINY[name][0])
    labels = workload.labels()
    assert (labels.shape, labels.dtype) == ((workload.sample_count,), np.int64)
