"""A torch module trained on a data set: the workload behind every name whose updates are gradients."""

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import nn

from controlplane.protocol.parts import SpecError
from controlplane.protocol.training import Optimizer
from workers.workloads.data.examples import Dataset
from workers.workloads.data.loader import Loader
from workers.workloads.layout import Layout
from workers.workloads.memory import Pieces
from workers.workloads.objectives import Objective
from workers.workloads.rules import GradientRule
from workers.workloads.shape import Rule, Samples, Score, TellFinal, Update, Vector

SCORED_AT_ONCE = 1024
MakeRule = Callable[[torch.Tensor, Optimizer], Rule]


class Network:
    """``Workload`` of one module and one data set.

    Args:
        build: makes the module; its own initial values are not used.
        dataset: what it is trained on.
        objective: what its outputs are to be.
        l2: weight of half the squared norm of the parameters, as part of every sample's loss.
        make_rule: what a mean gradient does.
        device: where updates are computed.
    """

    def __init__(
        self,
        build: Callable[[], nn.Module],
        dataset: Dataset,
        objective: Objective,
        *,
        l2: float = 0.0,
        make_rule: MakeRule = GradientRule,
        device: str = "cpu",
    ) -> None:
        self.build, self.dataset, self.objective, self.l2 = build, dataset, objective, l2
        self._make_rule, self._device = make_rule, torch.device(device)
        with torch.device("meta"):
            module = build()
        self.layout = Layout.of({name: tuple(each.shape) for name, each in module.named_parameters()})

    @property
    def sample_count(self) -> int:
        """Samples of the training split."""
        return len(self.dataset.split.train)

    def init(self, seed: int) -> Vector:
        """Weights uniform within 1 / sqrt(inputs), biases 0, scales of norms 1; each tensor from its own stream."""
        items = enumerate(self.layout.shapes.items())
        tensors = [_init_tensor(name, shape, seed, index) for index, (name, shape) in items]
        return np.concatenate([tensor.ravel() for tensor in tensors])

    def replica(self) -> "NetworkReplica":
        """New parameters and gradients, and the data set."""
        return NetworkReplica(self.build, self.dataset, self.objective, self.l2, self._device)

    def rule(self, values: torch.Tensor, optimizer: Optimizer, *, start: int = 0) -> Rule:
        """Mean gradients drive the optimiser of the spec."""
        return self._make_rule(values, optimizer)

    def labels(self) -> Samples:
        """The classes; numbers to be predicted are ranked into ten."""
        targets = self.dataset.split.train.targets.numpy()
        if self.dataset.facts.classes:
            return targets.astype(np.int64)
        return (np.argsort(np.argsort(targets)) * 10 // len(targets)).astype(np.int64)

    def writers(self) -> Samples | None:
        """Who made each training sample, where the data say so."""
        return self.dataset.split.writers


class NetworkReplica:
    """``Replica`` whose tensors are views of two flat vectors: on a CPU, what is pulled is used where it lies."""

    def __init__(
        self, build: Callable[[], nn.Module], dataset: Dataset, objective: Objective, l2: float, device: torch.device
    ) -> None:
        self._data, self._objective, self._l2, self._device = dataset.split, objective, l2, device
        with torch.device(device):
            self._module = build()
        size = sum(p.numel() for p in self._module.parameters())
        self.parameters: Vector = np.zeros(size, dtype=np.float32)
        self.gradient: Vector = np.zeros(size, dtype=np.float32)
        self._values, self._sums = self._on_device(self.parameters), self._on_device(self.gradient)
        self._bind()
        self._progress: Progress | None = None
        self._pieces = Pieces(release=torch.cuda.empty_cache)
        self._loader = Loader(self._data.train, device)

    @property
    def ceiling(self) -> int | None:
        """The largest number of samples that memory was found to hold at once; None: it never ran short."""
        return self._pieces.limit

    def update(self, samples: Samples) -> Update:
        """Sum of the gradients of the loss over ``samples``; in pieces where memory does not hold them at once."""
        self._take_parameters()
        loss_sum = self._pieces.run(samples, self._begin, self._add)
        if self._device.type != "cpu":
            torch.from_numpy(self.gradient).copy_(self._sums)
        return Update(loss_sum=loss_sum, samples=len(samples))

    def prefetch(self, batches: Sequence[Samples]) -> None:
        """Take the samples of coming updates ahead, in the pieces that memory holds."""
        self._loader.expect([piece for batch in batches for piece in self._pieces.cut(batch)])

    def tell_progress(self, tell: TellFinal) -> None:
        """Have ``tell`` called while an update is computed; never from an accelerator, whose sums come all at once."""
        if self._device.type == "cpu":
            self._progress = Progress(list(self._module.parameters()), tell)

    @torch.no_grad()
    def evaluate(self) -> Score:
        """Mean loss, and accuracy where there is a right and a wrong, on the held-out split."""
        self._take_parameters()
        held, right, loss_sum = self._data.held, 0, 0.0
        for chunk in np.array_split(np.arange(len(held)), -(-len(held) // SCORED_AT_ONCE)):
            inputs, targets = held.take(chunk, self._device)
            outputs = self._module(inputs)
            loss_sum += self._objective.loss_sum(outputs, targets).item()
            if self._objective.right is not None:
                right += int(self._objective.right(outputs, targets).sum())
        accuracy = None if self._objective.right is None else right / len(held)
        return Score(loss=loss_sum / len(held), accuracy=accuracy, samples=len(held))

    def _take_parameters(self) -> None:
        if self._device.type != "cpu":
            self._values.copy_(torch.from_numpy(self.parameters))

    def _begin(self) -> None:
        self._sums.zero_()

    def _add(self, samples: Samples) -> float:
        inputs, targets = self._loader.take(samples)
        outputs = self._module(inputs)
        loss = self._objective.loss_sum(outputs, targets)
        if self._l2:
            norm = torch.stack([p.square().sum() for p in self._module.parameters()]).sum()
            loss = loss + 0.5 * self._l2 * len(samples) * norm
        loss_sum = loss.item()
        if self._progress is not None:
            # In pieces nothing is final before the last; and a loss that is no number leaves no gradients to give away.
            self._progress.restart(is_told=self._pieces.limit is None and math.isfinite(loss_sum))
        loss.backward()  # type: ignore[no-untyped-call]  # adds in place to the views of the sums
        return loss_sum

    def _on_device(self, vector: Vector) -> torch.Tensor:
        """On a CPU the very same memory."""
        return torch.from_numpy(vector).to(self._device)

    def _bind(self) -> None:
        start = 0
        for parameter in self._module.parameters():
            end = start + parameter.numel()
            parameter.data = self._values[start:end].view(parameter.shape)
            parameter.grad = self._sums[start:end].view(parameter.shape)
            start = end


class Progress:
    """Which gradients of a backward pass are final: told whenever the part that ends with the last tensor has grown.

    Args:
        parameters: in the order of the flat vector.
        tell: gets the element from which on the vector is final.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], tell: TellFinal) -> None:
        self._tell, self._sizes = tell, [parameter.numel() for parameter in parameters]
        self.restart(is_told=False)
        for index, parameter in enumerate(parameters):
            parameter.register_post_accumulate_grad_hook(partial(self._note, index))  # type: ignore[no-untyped-call]

    def restart(self, *, is_told: bool) -> None:
        """A backward pass begins."""
        self._is_told, self._final = is_told, set[int]()
        self._first, self._begin = len(self._sizes), sum(self._sizes)

    def _note(self, index: int, _: torch.Tensor) -> None:
        self._final.add(index)
        before = self._begin
        while self._first - 1 in self._final:
            self._first -= 1
            self._begin -= self._sizes[self._first]
        if self._is_told and self._begin < before:
            self._tell(self._begin)


def check_fit(name: str, build: Callable[[], nn.Module], dataset: Dataset) -> None:
    """Raise ``SpecError`` unless samples of the data set go through the module; nothing is computed."""
    try:
        with torch.device("meta"), warnings.catch_warnings(action="ignore"):
            build()(torch.empty(1, *dataset.facts.shape))
    except (RuntimeError, ValueError, ZeroDivisionError) as error:
        shape = " x ".join(map(str, dataset.facts.shape))
        reason = str(error).partition("\n")[0]
        raise SpecError(
            "workload.dataset", dataset.name, f"samples that fit {name}: those of {shape} do not ({reason})"
        ) from None


def _init_tensor(name: str, shape: tuple[int, ...], seed: int, index: int) -> Vector:
    if len(shape) == 1:
        return np.full(shape, 1.0 if name.endswith("weight") else 0.0, dtype=np.float32)
    bound = 1.0 / math.sqrt(math.prod(shape[1:]))
    return np.random.default_rng([seed, index]).uniform(-bound, bound, shape).astype(np.float32)
