"""Jobs that compute in bf16 or fp16: what stays exact, what is rounded, what overflows, and what travels."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.distributed import HashStore

from controlplane.protocol.catalogue import check_workload
from controlplane.protocol.parts import SpecError
from controlplane.protocol.training import Precision, Workload
from tests.support.gpus import needs_gpu
from tests.workers.test_module_jobs import SHARES, run
from tests.workers.workloads.test_modules import ALLOWED, CLASSES, FEATURES, network
from workers.collective.chunks import Sums, chunk_offsets
from workers.collective.group import Group, Place
from workers.workloads.arithmetic import FIRST_SCALE, Scaled
from workers.workloads.catalogue import load_workload
from workers.workloads.network import Network
from workers.workloads.replica import NetworkReplica

LESS: tuple[Precision, ...] = ("bf16", "fp16")
FACTORY = "tests.workers.test_module_jobs:steady"
SAMPLES = np.arange(48)


def replica(precision: Precision, *, scale: float = 1.0, device: str = "cpu") -> NetworkReplica:
    """Of two layers, at the same values; ``scale``: of the loss, so of all gradients."""

    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, CLASSES))

    workload: Network = network(build, device=device)
    workload.precision = precision
    workload.objective = replace(
        workload.objective,
        loss_sum=lambda outputs, targets, own=workload.objective.loss_sum: scale * own(outputs, targets),
    )
    made = workload.replica()
    np.copyto(made.parameters, workload.init(3))
    return made


def gradients(made: NetworkReplica) -> np.ndarray:
    made.update(SAMPLES)
    return made.gradient[: made._layout.edge].copy()


@pytest.mark.parametrize("precision", LESS)
@pytest.mark.parametrize("place", ["servers", "all-reduce"])
def test_a_job_in_less_than_float32_ends_near_the_one_in_float32(place: str, precision: Precision) -> None:
    (whole,) = run(place, "steady").models.values()
    (less,) = run(place, "steady", workload=Workload(name=FACTORY, precision=precision)).models.values()
    assert less["1.num_batches_tracked"] == len(SHARES), "a count, which bf16 would round"
    apart = {name: np.abs(less[name] - array).max() for name, array in whole.items()}
    assert 0.0 < max(apart.values()) < 0.1, apart


@pytest.mark.parametrize("precision", LESS)
def test_gradients_are_those_of_float32_but_for_rounding_and_are_kept_as_float32(precision: Precision) -> None:
    exact, made = gradients(replica("fp32")), replica(precision)
    rounded = gradients(made)
    assert (rounded.dtype, made.parameters.dtype) == (np.float32, np.float32)
    assert not np.array_equal(rounded, exact)
    assert np.linalg.norm(rounded - exact) < 0.02 * np.linalg.norm(exact)


def test_small_gradients_are_not_lost_in_fp16() -> None:
    tiny = 2.0**-26  # fp16 ends at 2^-24
    found, exact = gradients(replica("fp16", scale=tiny)), gradients(replica("fp32", scale=tiny))
    assert np.linalg.norm(found - exact) < 0.2 * np.linalg.norm(exact)


def test_gradients_that_overflow_are_computed_again_and_none_is_left_out() -> None:
    made, exact = replica("fp16", scale=2.0**9), gradients(replica("fp32", scale=2.0**9))
    found = gradients(made)
    assert isinstance(made._arithmetic, Scaled)
    assert made._arithmetic.scale < FIRST_SCALE
    assert np.isfinite(found).all()
    assert np.linalg.norm(found - exact) < 0.02 * np.linalg.norm(exact)


@given(sizes=st.lists(st.integers(1, 50), min_size=2, max_size=12), data=st.data(), least=st.integers(1, 120))
def test_no_stretch_lies_across_a_border(sizes: list[int], data: st.DataObject, least: int) -> None:
    begins = [sum(sizes[:count]) for count in range(len(sizes))]
    borders = data.draw(st.sets(st.sampled_from(begins)))
    found = chunk_offsets(sizes, least=least, borders=borders)
    assert borders - {0} <= set(found) <= set(begins)
    assert found == sorted(found, reverse=True)


def test_gradients_travel_as_bf16_and_counts_and_statistics_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    store = HashStore()
    store.set_timeout(timedelta(seconds=30))
    group, travelled = Group(store, Place(rank=0, size=1, host="127.0.0.1")), []
    begin = group.begin_sum

    def noted(vector: torch.Tensor, **options: Any) -> Any:
        travelled.append((len(vector), options["dtype"]))
        return begin(vector, **options)

    monkeypatch.setattr(group, "begin_sum", noted)
    vector = torch.full((10,), 1.0 + 2.0**-12)  # which bf16 has as 1
    begins = chunk_offsets([3, 2, 3, 2], least=1, borders={3, 8})
    sums = Sums(group, vector, begins, timeout_s=30.0, rounded=slice(3, 8))
    for stretch in sums.rest:
        sums.begin(stretch)
    sums.wait()
    assert travelled == [(2, None), (3, torch.bfloat16), (2, torch.bfloat16), (3, None)]
    assert (vector == 1.0).tolist() == [False] * 3 + [True] * 5 + [False] * 2
    group.leave()


def test_what_has_no_gradients_or_computes_by_itself_is_refused() -> None:
    with pytest.raises(SpecError, match=r"workload.precision: found 'bf16', expected fp32: als computes no gradients"):
        check_workload(Workload(name="als", dataset="movielens-like", precision="bf16"))
    with pytest.raises(
        SpecError, match=r"workload.precision: found 'fp16', expected fp32: a Traffic computes as its own"
    ):
        load_workload(Workload(name="tests.workers.workloads.test_foreign:tiny", precision="fp16"), ALLOWED)


@needs_gpu
@pytest.mark.parametrize("precision", LESS)
def test_a_gpu_computes_the_same_gradients(precision: Precision) -> None:
    exact, found = gradients(replica("fp32")), gradients(replica(precision, device="cuda"))
    assert np.linalg.norm(found - exact) < 0.02 * np.linalg.norm(exact)


@pytest.mark.parametrize("precision", ["fp32", *LESS])
def test_a_loss_of_ones_own_gets_what_the_module_returns_in_full_precision(precision: Precision) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(FEATURES, CLASSES)

        def forward(self, inputs: torch.Tensor) -> dict[str, Any]:
            scores = self.layer(inputs)
            return {"scores": scores, "others": (scores.argmax(1), scores.double())}

    seen = []

    def loss_sum(outputs: dict[str, Any], targets: torch.Tensor) -> torch.Tensor:
        labels, exact = outputs["others"]
        seen.append((outputs["scores"].dtype, labels.dtype, exact.dtype))
        return nn.functional.cross_entropy(outputs["scores"], targets, reduction="sum")

    workload: Network = network(Two)
    workload.precision = precision
    workload.objective = replace(workload.objective, loss_sum=loss_sum)
    made = workload.replica()
    made.update(SAMPLES)
    assert set(seen) == {(torch.float32, torch.int64, torch.float64)}
