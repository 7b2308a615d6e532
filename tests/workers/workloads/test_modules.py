"""Modules of a user's own: what is trained, what is kept beside it, and what is delivered."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from controlplane.protocol.parts import SpecError
from controlplane.protocol.training import Optimizer, Workload
from workers.workloads.catalogue import load_workload
from workers.workloads.data.examples import Dataset, Facts, Split, table
from workers.workloads.local import Local
from workers.workloads.network import Network
from workers.workloads.objectives import CROSS_ENTROPY
from workers.workloads.shape import Samples, named_arrays

HERE = "tests.workers.workloads.test_modules"
ALLOWED = Local(allow_code=True)
FEATURES, CLASSES = 6, 3


def read() -> Split:
    rng = np.random.default_rng(5)
    classes = np.arange(240) % CLASSES
    rows = rng.normal(loc=2.0, scale=1.2, size=(240, FEATURES)).astype(np.float32)
    rows[:, :CLASSES] += 4.0 * np.eye(CLASSES, dtype=np.float32)[classes]
    return Split(train=table(rows[:180], classes[:180]), held=table(rows[180:], classes[180:]), writers=None)


def network(build: Callable[[], nn.Module], **options: Any) -> Network:
    return Network(build, Dataset("rows", Facts(shape=(FEATURES,), classes=CLASSES), read), CROSS_ENTROPY, **options)


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, CLASSES))


def factory(*, init: Any = "module", fixed: float = 0.25) -> Network:
    def build() -> nn.Module:
        module = normalised()
        nn.init.constant_(module[0].weight, fixed)
        return module

    return network(build, init=init)


class Counting(nn.Module):
    """Has a buffer that each pass raises by ``step`` of its samples, and constants."""

    def __init__(self, step: Callable[[int], int] = lambda samples: 0, **buffers: torch.Tensor) -> None:
        super().__init__()
        self.linear, self._step = nn.Linear(FEATURES, CLASSES), step
        self.register_buffer("seen", torch.zeros(2, dtype=torch.int64))
        for name, each in buffers.items():
            self.register_buffer(name, each)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen += self._step(len(inputs))
        return self.linear(inputs)


def trained(
    workload: Any, shares: list[list[int]], *, optimizer: Optimizer | None = None, order: Samples | None = None
) -> np.ndarray:
    """Version ``len(shares)`` of the values: workers with those shares of ``order`` add up and step."""
    values = workload.init(3)
    rule = workload.rule(torch.from_numpy(values), optimizer or Optimizer(lr=0.05))
    replicas = [workload.replica() for _ in shares[0]]
    at = 0
    for round_ in shares:
        total, samples = np.zeros_like(values), 0
        for replica, share in zip(replicas, round_, strict=True):
            np.copyto(replica.parameters, values)
            update = replica.update((np.arange(1800) % 180 if order is None else order)[at : at + share])
            at, samples, total = at + share, samples + update.samples, total + replica.gradient
        rule.apply(torch.from_numpy(total), samples)
    return values


def delivered(workload: Any, values: np.ndarray, module: nn.Module) -> nn.Module:
    """The user's module with what is downloaded, loaded strictly."""
    arrays = named_arrays(workload, values)
    module.load_state_dict({name: torch.from_numpy(np.asarray(array)) for name, array in arrays.items()}, strict=True)
    return module.eval()


def accuracy(module: nn.Module) -> tuple[float, float]:
    held = read().held
    inputs, targets = held.take(np.arange(len(held)), torch.device("cpu"))
    with torch.no_grad():
        outputs = module(inputs)
    return nn.functional.cross_entropy(outputs, targets).item(), (outputs.argmax(1) == targets).float().mean().item()


def test_what_is_reported_is_what_the_delivered_module_scores_in_eval() -> None:
    workload = network(normalised)
    values = trained(workload, [[16, 8]] * 60)
    scorer = workload.scorer()
    np.copyto(scorer.parameters, values)
    scores = [scorer.evaluate() for _ in range(3)]
    assert scores[0] == scores[1] == scores[2], "dropout is off"
    loss, right = accuracy(delivered(workload, values, normalised()))
    assert (loss, right) == (pytest.approx(scores[0].loss, abs=1e-6), pytest.approx(scores[0].accuracy, abs=1e-6))
    assert right > 0.9


def test_every_entry_of_the_state_dict_is_delivered_in_its_own_type() -> None:
    workload = network(normalised)
    arrays = named_arrays(workload, trained(workload, [[16, 8]] * 5))
    expected = {name: (tuple(each.shape), str(each.dtype)) for name, each in normalised().state_dict().items()}
    assert {name: (each.shape, f"torch.{each.dtype}") for name, each in arrays.items()} == expected
    assert arrays["1.num_batches_tracked"] == 5


def test_shares_of_one_batch_give_the_running_mean_of_the_whole_batch_and_the_mean_of_their_variances() -> None:
    workload = network(lambda: nn.Sequential(nn.BatchNorm1d(FEATURES), nn.Linear(FEATURES, CLASSES)))
    arrays = named_arrays(workload, trained(workload, [[24, 8, 0]]))
    rows = read().train.take(np.arange(32), torch.device("cpu"))[0]
    assert isinstance(rows, torch.Tensor)
    np.testing.assert_allclose(arrays["0.running_mean"], 0.1 * rows.mean(0), rtol=1e-5)
    variance = (24 * rows[:24].var(0) + 8 * rows[24:].var(0)) / 32
    np.testing.assert_allclose(arrays["0.running_var"], 0.9 + 0.1 * variance, rtol=1e-5)


@pytest.mark.parametrize("cut", [[], [70, 75], [98, 99, 100, 110]])
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_blocks_that_cut_the_buffers_give_what_the_whole_gives(cut: list[int], name: str) -> None:
    workload = network(normalised)
    optimizer = Optimizer(name=name, lr=0.1, weight_decay=0.1)
    edges = [0, *cut, workload.layout.size]
    assert workload.layout.edge == 99
    rng, initial = np.random.default_rng(1), workload.init(3)
    whole, parts = initial.copy(), [initial[a:b].copy() for a, b in itertools.pairwise(edges)]
    rule = workload.rule(torch.from_numpy(whole), optimizer)
    rules = [
        workload.rule(torch.from_numpy(part), optimizer, start=start) for start, part in zip(edges, parts, strict=False)
    ]
    for _ in range(3):
        total = rng.normal(size=whole.size).astype(np.float32)
        total[workload.layout.entries[-1].start :] = 4.0
        for each, start, part in zip(rules, edges, parts, strict=False):
            each.apply(torch.from_numpy(total[start : start + len(part)].copy()), 4)
        rule.apply(torch.from_numpy(total), 4)
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-6)
    assert whole[-1] == 3.0


def test_an_update_that_is_applied_on_arrival_moves_buffers_a_part_of_the_way_and_counts_once() -> None:
    workload = network(normalised)
    values, layout = workload.init(3), workload.layout
    rule = workload.rule(torch.from_numpy(values[layout.edge :]), Optimizer(lr=1.0), start=layout.edge)
    change = np.full(layout.size - layout.edge, 8.0, dtype=np.float32)
    rule.apply(torch.from_numpy(change), 8, scale=0.25)
    arrays = named_arrays(workload, values)
    assert arrays["1.running_mean"].tolist() == [0.25] * 8
    assert arrays["1.num_batches_tracked"] == 1


def test_a_share_of_one_sample_is_normalised_by_the_running_statistics() -> None:
    workload = network(normalised)
    replica = workload.replica()
    replica.parameters[:] = workload.init(3)
    update = replica.update(np.arange(1))
    assert np.isfinite(update.loss)
    assert np.abs(replica.gradient[: workload.layout.edge]).sum() > 0
    assert not replica.gradient[workload.layout.edge :].any(), "it has no statistics of its own"
    replica.update(np.arange(2))
    assert replica.gradient[workload.layout.edge :].any()


def test_a_module_begins_with_its_own_values_by_default() -> None:
    own, drawn = (load_workload(Workload(name=f"{HERE}:factory", init=init), ALLOWED) for init in (None, "seed"))
    assert set(own.init(1)[: 8 * FEATURES].tolist()) == {0.25}
    assert len(set(drawn.init(1)[: 8 * FEATURES].tolist())) > 10
    assert named_arrays(drawn, drawn.init(1))["1.running_var"].tolist() == [1.0] * 8


def test_what_a_module_draws_as_it_is_built_depends_on_the_jobs_seed_alone() -> None:
    workload = network(normalised)
    first, again, other = (workload.init(seed).tobytes() for seed in (4, 4, 5))
    assert first == again != other
    torch.manual_seed(1)
    before = torch.rand(3).tolist()
    torch.manual_seed(1)
    workload.init(4)
    assert torch.rand(3).tolist() == before


def test_a_catalogue_name_begins_with_the_seed_and_with_its_module_if_asked() -> None:
    drawn, own = (load_workload(Workload(name="mlp", init=init)).init(1) for init in (None, "module"))
    assert drawn.tobytes() != own.tobytes()
    with pytest.raises(SpecError, match=r"workload\.init.*module.*not a torch module"):
        load_workload(Workload(name="k-means", init="module"))


def test_a_module_that_loads_its_values_needs_no_memory_less_device() -> None:
    def build() -> nn.Module:
        module = nn.Linear(FEATURES, CLASSES)
        module.bias.data[0] = float(module.weight.detach().sum()) * 0.0 + 3.0  # reads values, which meta has not
        return module

    assert network(build).init(1)[-CLASSES] == 3.0


def test_constants_counters_and_frozen_parameters_stay_what_they_were() -> None:
    def build() -> nn.Module:
        module = Counting(
            lambda samples: 2,
            positions=torch.arange(5),
            mask=torch.tensor([True, False]),
            small=torch.full((2,), 0.5, dtype=torch.float16),
            exact=torch.tensor(0.125, dtype=torch.float64),
            empty=torch.zeros(0),
        )
        module.linear.bias.requires_grad_(False)
        return module

    workload = network(build)
    decayed = Optimizer(lr=0.1, weight_decay=0.5)
    arrays = named_arrays(workload, trained(workload, [[3, 9], [6, 0], [1, 1]], optimizer=decayed))
    before = {name: each.numpy() for name, each in build().state_dict().items()}
    assert arrays["seen"].tolist() == [6, 6]
    assert {name: each.dtype for name, each in arrays.items()} == {name: each.dtype for name, each in before.items()}
    for name in ("positions", "mask", "small", "exact", "empty"):
        assert arrays[name].tolist() == before[name].tolist()
    assert arrays["linear.bias"].tolist() == named_arrays(workload, workload.init(3))["linear.bias"].tolist()
    assert 0 not in workload.layout.sizes, "a tensor without elements is in no block"


class Tied(nn.Module):
    """Has one weight in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, FEATURES, bias=False)
        self.second = nn.Linear(FEATURES, FEATURES, bias=False)
        self.second.weight = self.first.weight
        self.last = nn.Linear(FEATURES, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(self.second(self.first(inputs)))  # type: ignore[no-any-return]


def test_the_gradients_of_a_shared_parameter_are_summed_and_reported_once_complete() -> None:
    workload = network(Tied)
    replica, told = workload.replica(), []
    replica.parameters[:] = workload.init(3)
    replica.report_progress(told.append)
    replica.update(np.arange(20))
    module = delivered(workload, replica.parameters, Tied())
    inputs, targets = read().train.take(np.arange(20), torch.device("cpu"))
    nn.functional.cross_entropy(module(inputs), targets, reduction="sum").backward()  # type: ignore[no-untyped-call]
    expected = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])  # type: ignore[union-attr]
    np.testing.assert_allclose(replica.gradient, expected.numpy(), rtol=1e-4, atol=1e-4)
    edge = FEATURES * FEATURES
    assert told[-1] == 0
    assert set(told) <= {0, edge, edge + FEATURES * CLASSES}
    assert told.count(0) == 1, "after both of its gradients"


def test_shared_parameters_are_trained_once_and_delivered_under_each_name() -> None:
    workload = network(Tied)
    values = trained(workload, [[8, 8]] * 2)
    assert workload.layout.size == FEATURES * FEATURES + (FEATURES + 1) * CLASSES
    module = delivered(workload, values, Tied())
    assert torch.equal(module.first.weight, module.second.weight)


def test_a_buffer_that_is_replaced_in_a_pass_is_followed() -> None:
    class Replacing(Counting):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            if self.training:
                self.total = self.total * 0.5 + inputs.mean().detach()
            return self.linear(inputs)

    workload = network(lambda: Replacing(total=torch.ones(())))
    arrays = named_arrays(workload, trained(workload, [[10]]))
    rows = read().train.take(np.arange(10), torch.device("cpu"))[0]
    assert float(arrays["total"]) == pytest.approx(0.5 + float(rows.mean()), rel=1e-5)  # type: ignore[union-attr]


def lazily() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(CLASSES))


class Extra(nn.Linear):
    def get_extra_state(self) -> Any:
        return {"mine": 1}


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "synchronised statistics": (lambda: nn.Sequential(nn.SyncBatchNorm(FEATURES)), "SyncBatchNorm 0.*GroupNorm"),
    "statistics of a batch alone": (
        lambda: nn.Sequential(nn.BatchNorm1d(FEATURES, track_running_stats=False)),
        "BatchNorm1d 0 without running statistics.*track_running_stats=True",
    ),
    "double parameters": (lambda: nn.Linear(FEATURES, CLASSES).double(), r"float64 parameter weight.*module\.float"),
    "half parameters": (lambda: nn.Linear(FEATURES, CLASSES).bfloat16(), r"bfloat16 parameter weight"),
    "brain floats beside": (lambda: Counting(b=torch.ones(1).bfloat16()), "bfloat16 buffer b.*persistent=False"),
    "lazy parameters": (lazily, "lazy parameter 0.weight"),
    "extra state": (lambda: Extra(FEATURES, CLASSES), "_extra_state"),
    "nothing to train": (lambda: nn.Linear(FEATURES, CLASSES).requires_grad_(False), "without parameters"),
}
INEXACT: dict[str, tuple[torch.Tensor, str]] = {
    "large whole numbers": (torch.tensor([2**24 + 1]), "int64 buffer b.*persistent=False"),
    "fine doubles": (torch.tensor([0.1], dtype=torch.float64), "float64 buffer b"),
    "infinite masks": (torch.tensor([-torch.inf]), "float32 buffer b.*finite"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_trained_or_delivered_is_refused_with_its_cure(case: str) -> None:
    build, message = REFUSED[case]
    with pytest.raises(SpecError, match=message):
        network(build)


@pytest.mark.parametrize("case", INEXACT)
def test_what_float32_does_not_hold_is_refused_before_training(case: str) -> None:
    values, message = INEXACT[case]
    with pytest.raises(SpecError, match=message):
        network(lambda: Counting(b=values)).init(1)


def test_a_counter_that_rises_with_the_share_is_refused() -> None:
    workload = network(lambda: Counting(lambda samples: samples))
    with pytest.raises(SpecError, match=r"int64 buffer seen.*persistent=False"):
        workload.replica()


def test_the_error_of_a_users_factory_is_shown_unchanged() -> None:
    with pytest.raises(SpecError, match=r"SyncBatchNorm 0") as refused:
        load_workload(Workload(name=f"{HERE}:synchronised"), ALLOWED)
    assert refused.value.field == "workload.name"


def synchronised() -> Network:
    return network(lambda: nn.Sequential(nn.SyncBatchNorm(FEATURES)))
