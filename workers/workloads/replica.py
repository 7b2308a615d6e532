"""One copy of a torch module on flat memory, for evaluation and for computing updates."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import nn

from workers.workloads.arithmetic import Arithmetic, Scaled
from workers.workloads.data.examples import Dataset
from workers.workloads.data.loader import Loader
from workers.workloads.layout import Layout
from workers.workloads.memory import Pieces, returned
from workers.workloads.module import Tail, normalise_lone_samples, seeded, untie
from workers.workloads.objectives import Objective
from workers.workloads.shape import OnFinal, Samples, Score, Update, Vector
from workers.workloads.tensors import finish, numbers

SCORED_AT_ONCE = 1024


class NetworkScorer:
    """``Scorer`` whose parameters are views of one flat vector: on a CPU, pulled values are used in place.

    Args:
        build: creates the module; its values are overwritten before they are used.
        layout: of the flat vector.
    """

    def __init__(
        self,
        build: Callable[[], nn.Module],
        layout: Layout,
        dataset: Dataset,
        objective: Objective,
        device: torch.device,
    ) -> None:
        self._layout, self._data, self._objective, self._device = layout, dataset.split, objective, device
        self.parameters: Vector = np.zeros(layout.size, dtype=np.float32)
        self._is_resident = False
        self._values = self._on_device(self.parameters)
        with returned():
            with seeded(0), torch.device(device):
                self._module = build()
            named = dict(self._module.named_parameters())
            self._trained = [(entry, named[entry.name]) for entry in layout.entries if entry.kind == "parameter"]
            for entry, parameter in self._trained:
                parameter.data = self._values[entry.start : entry.stop].view(entry.shape)
        self._tail = Tail(self._module, layout)

    @property
    def values(self) -> torch.Tensor:
        """The parameters on the computing device: on a CPU the memory of ``parameters``."""
        return self._values

    def reside(self) -> None:
        """Use ``values`` as the parameters from now on, without copies from ``parameters``."""
        self._is_resident = True

    @torch.no_grad()
    def evaluate(self) -> Score:
        """Mean loss, and accuracy if it is defined, on the held-out split; in ``eval()``."""
        self._take_parameters()
        self._tail.load(self._values)
        self._module.eval()
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
        if self._device.type != "cpu" and not self._is_resident:
            self._values.copy_(torch.from_numpy(self.parameters))

    def _on_device(self, vector: Vector) -> torch.Tensor:
        """On a CPU the same memory."""
        return torch.from_numpy(vector).to(self._device)


class NetworkReplica(NetworkScorer):
    """``Replica``: the gradients are views of a flat vector as well."""

    def __init__(
        self,
        build: Callable[[], nn.Module],
        layout: Layout,
        dataset: Dataset,
        objective: Objective,
        device: torch.device,
        *,
        l2: float = 0.0,
        arithmetic: Arithmetic | None = None,
    ) -> None:
        super().__init__(build, layout, dataset, objective, device)
        self._l2, self._arithmetic = l2, arithmetic or Arithmetic()
        normalise_lone_samples(self._module)
        self.gradient: Vector = np.zeros(layout.size, dtype=np.float32)
        self._sums = self._on_device(self.gradient)
        for entry, parameter in self._trained:
            parameter.grad = self._sums[entry.start : entry.stop].view(entry.shape)
        twins = untie(self._module)
        self._leaves = [[parameter, *twins.get(id(parameter), ())] for _, parameter in self._trained]
        self._progress: Progress | None = None
        self._pieces = Pieces(release=torch.cuda.empty_cache)
        self._loader = Loader(self._data.train, device)
        with seeded(0):
            self._module.train()
            self._tail.check_counters(self._try)

    @property
    def sums(self) -> torch.Tensor:
        """The gradient sums on the computing device: on a CPU the memory of ``gradient``."""
        return self._sums

    @property
    def ceiling(self) -> int | None:
        """The largest number of samples that was found to fit into memory; None: it never ran short."""
        return self._pieces.limit

    @property
    def loading_s(self) -> float:
        """How long its updates have waited for samples."""
        return self._loader.waited_s

    def update(self, samples: Samples) -> Update:
        """Sum the gradients of the loss over ``samples``; in pieces if they do not fit into memory at once.

        Changes of buffers are summed as well, each weighted by the samples of its pass.
        """
        self._take_parameters()
        self._module.train()
        loss_sum = self._arithmetic.run(lambda: self._pieces.run(samples, self._begin, self._add), self._sums)
        if self._is_resident:
            finish(self._sums)  # wait, so that this time counts for the update
        elif self._device.type != "cpu":
            torch.from_numpy(self.gradient).copy_(self._sums)
        return Update(loss_sum=loss_sum, samples=len(samples))

    def prefetch(self, batches: Sequence[Samples]) -> None:
        """Prefetch the samples of the next updates, in the pieces that fit into memory."""
        self._loader.expect([piece for batch in batches for piece in self._pieces.cut(batch)])

    def report_progress(self, on_final: OnFinal) -> None:
        """Call ``on_final`` while ``sums`` are computed; never if gradients may have to be computed again.

        On an accelerator a backward pass has only been queued at that time; later work in the same stream follows it.
        """
        if not isinstance(self._arithmetic, Scaled):
            self._progress = Progress(self._leaves, on_final)

    def _try(self, samples: int) -> None:
        inputs, _ = self._data.train.take(np.arange(samples) % len(self._data.train), self._device)
        self._module(inputs)

    def _begin(self) -> None:
        self._sums.zero_()

    def _add(self, samples: Samples) -> float:
        inputs, targets = self._loader.take(samples)
        self._tail.load(self._values)
        with self._arithmetic.forward():
            outputs = self._module(inputs)
        loss = self._objective.loss_sum(self._arithmetic.outputs(outputs), targets)
        if self._l2:
            norm = torch.stack([parameter.square().sum() for _, parameter in self._trained]).sum()
            loss = loss + 0.5 * self._l2 * len(samples) * norm
        # Before the backward pass: after it the end of the vector is final, and the tail is behind that.
        is_sound = self._tail.add_changes(self._values, self._sums, len(samples))
        loss_sum = numbers([loss])[0] if is_sound else math.nan
        if self._progress is not None:
            # In pieces nothing is final before the last; and a loss that is not a number leaves no gradients to send.
            self._progress.restart(is_reported=self._pieces.limit is None and math.isfinite(loss_sum))
        self._arithmetic.scaled(loss).backward()  # type: ignore[no-untyped-call]  # adds in place to the views of the sums
        return loss_sum


class Progress:
    """Tracks which gradients of a backward pass are final: reports each growth of the final part at the end of the
    vector.

    Args:
        leaves: for each tensor in the order of the flat vector, the parameters that its gradients come from.
        tell: receives the element from which on the vector is final.
    """

    def __init__(self, leaves: Sequence[Sequence[nn.Parameter]], on_final: OnFinal) -> None:
        self._on_final, self._sizes = on_final, [parameters[0].numel() for parameters in leaves]
        self._due = [len(parameters) for parameters in leaves]
        self.restart(is_reported=False)
        for index, parameters in enumerate(leaves):
            for parameter in parameters:
                parameter.register_post_accumulate_grad_hook(partial(self._note, index))  # type: ignore[no-untyped-call]

    def restart(self, *, is_reported: bool) -> None:
        """A backward pass starts."""
        self._is_reported, self._final, self._left = is_reported, set[int](), list(self._due)
        self._first, self._begin = len(self._sizes), sum(self._sizes)

    def _note(self, index: int, _: torch.Tensor) -> None:
        self._left[index] -= 1
        if not self._left[index]:
            self._final.add(index)
        before = self._begin
        while self._first - 1 in self._final:
            self._first -= 1
            self._begin -= self._sizes[self._first]
        if self._is_reported and self._begin < before:
            self._on_final(self._begin)
