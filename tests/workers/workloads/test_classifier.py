import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.protocol.spec import Optimizer, SpecError, Workload
from workers.trainer.sampler import PermutationSampler
from workers.workloads.catalogue import load_workload
from workers.workloads.datasets import DIGITS
from workers.workloads.shape import Update, named_arrays, tensor_sizes

NAMES = ["softmax-regression", "cnn"]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=10, deadline=None)
@given(cut=st.integers(0, 40), seed=st.integers(0, 1000))
def test_sums_over_parts_add_up_to_the_sum_over_the_whole(name: str, cut: int, seed: int) -> None:
    replica = load_workload(Workload(name=name)).replica()
    replica.parameters[:] = load_workload(Workload(name=name)).init(seed)
    samples = PermutationSampler(seed=seed, sample_count=DIGITS.train_samples).samples(0, 40)
    whole, whole_gradient = replica.update(samples), replica.gradient.copy()
    first, first_gradient = replica.update(samples[:cut]), replica.gradient.copy()
    rest = replica.update(samples[cut:])
    np.testing.assert_allclose(first_gradient + replica.gradient, whole_gradient, rtol=1e-4, atol=1e-4)
    assert first.samples + rest.samples == whole.samples == 40
    assert first.loss_sum + rest.loss_sum == pytest.approx(whole.loss_sum, rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_no_samples_give_zeros(name: str) -> None:
    replica = load_workload(Workload(name=name)).replica()
    replica.update(np.arange(5))
    assert replica.gradient.any()
    update = replica.update(np.empty(0, dtype=np.int64))
    assert (update, update.loss, replica.gradient.any()) == (Update(loss_sum=0.0, samples=0), 0.0, False)


@pytest.mark.parametrize("name", NAMES)
def test_initial_parameters_depend_on_the_seed_alone(name: str) -> None:
    first, again, other = (load_workload(Workload(name=name)).init(seed) for seed in (7, 7, 8))
    assert (first.tobytes() == again.tobytes(), first.tobytes() == other.tobytes()) == (True, False)
    assert (first.dtype, first.size) == (np.float32, sum(tensor_sizes(load_workload(Workload(name=name)))))


def test_a_model_is_saved_by_the_names_of_its_tensors() -> None:
    workload = load_workload(Workload(name="cnn"))
    arrays = named_arrays(workload, workload.init(7))
    assert {name: array.shape for name, array in arrays.items()} == dict(workload.shapes)
    assert np.concatenate([array.ravel() for array in arrays.values()]).tobytes() == workload.init(7).tobytes()


def test_two_replicas_do_not_touch_each_other() -> None:
    workload = load_workload(Workload(name="softmax-regression"))
    one, two = workload.replica(), workload.replica()
    one.parameters[:] = workload.init(7)
    one.update(np.arange(8))
    assert (two.parameters.any(), two.gradient.any()) == (False, False)


def test_the_split_keeps_every_sample_once_and_is_normalised_by_its_training_part() -> None:
    split = DIGITS.load()
    assert (len(split.train_labels), len(split.held_labels)) == (DIGITS.train_samples, DIGITS.held_samples)
    assert DIGITS.train_samples + DIGITS.held_samples == 1797
    assert split.train_features.mean().item() == pytest.approx(0.0, abs=1e-5)
    assert split.train_features.std().item() == pytest.approx(1.0, abs=1e-4)
    assert (split.held_features.dtype, split.held_labels.dtype) == (torch.float32, torch.int64)


@pytest.mark.parametrize(
    ("name", "optimizer", "accuracy"),
    [
        ("softmax-regression", Optimizer(lr=0.5), 0.94),
        ("cnn", Optimizer(lr=0.1, momentum=0.9), 0.96),
    ],
)
def test_a_hundred_iterations_of_256_learn_the_digits(name: str, optimizer: Optimizer, accuracy: float) -> None:
    workload = load_workload(Workload(name=name))
    sampler = PermutationSampler(seed=7, sample_count=workload.sample_count)
    replica = workload.replica()
    replica.parameters[:] = workload.init(7)
    rule = workload.rule(torch.from_numpy(replica.parameters), optimizer)
    for iteration in range(100):
        update = replica.update(sampler.samples(iteration * 256, 256))
        rule.apply(torch.from_numpy(replica.gradient), update.samples)
    score = replica.evaluate()
    assert score.samples == 360
    assert score.accuracy is not None
    assert score.accuracy >= accuracy


def test_an_unknown_optimiser_is_named_with_those_there_are() -> None:
    workload = load_workload(Workload(name="cnn"))
    with pytest.raises(SpecError, match=r"optimizer\.name: found 'lion', expected one of sgd"):
        workload.rule(torch.zeros(3), Optimizer(name="lion"))
