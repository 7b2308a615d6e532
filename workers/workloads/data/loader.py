"""Prefetches samples on a separate thread while the trainer computes, like a ``DataLoader`` with workers.

Batches are matched by their samples' indices, not only by their order. Prefetched samples that are not requested (newer
orders changed the range) are dropped, so an update has the same values either way.
"""

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from workers.workloads.data.examples import Bag, Examples, Inputs
from workers.workloads.shape import Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Inputs and targets on the device; ``ready``: the event of an asynchronous copy."""

    inputs: Inputs
    targets: torch.Tensor
    ready: torch.cuda.Event | None = None


WORTH_S = 0.0005
"""Faster batches are not prefetched: passing them between threads costs 0.1 ms of the trainer's time."""


class Loader:
    """Loads batches of ``examples`` to ``device``.

    Args:
        examples: the source of batches.
        device: their destination.
        worth_s: only batches that are likely to take this long are prefetched, judged by the last ones.
    """

    def __init__(self, examples: Examples, device: torch.device, *, worth_s: float | None = None) -> None:
        self._examples, self._device = examples, device
        self._worth_s = WORTH_S if worth_s is None else worth_s
        self._sample_s = 0.0
        self.waited_s = 0.0
        """Total time that callers have waited in ``take``."""
        self._ahead: deque[tuple[Samples, Future[Batch]]] = deque()
        self._thread: ThreadPoolExecutor | None = None
        self._stream: torch.cuda.Stream | None = None

    def expect(self, batches: Sequence[Samples]) -> None:
        """Start loading these batches, which will be requested in this order; others in progress are dropped.

        The first is requested immediately: if it is not in progress already, the caller loads it.
        """
        known, self._ahead = self._ahead, deque()
        for at, samples in enumerate(batches):
            if (found := _found(known, samples)) is not None:
                self._ahead.append((samples, found))
            elif at and self._sample_s * len(samples) >= self._worth_s:
                self._ahead.append((samples, self._begin(samples)))
        for _, dropped in known:
            dropped.cancel()

    def take(self, samples: Samples) -> tuple[Inputs, torch.Tensor]:
        """Inputs and targets of ``samples``: prefetched if possible, else loaded now."""
        began = time.monotonic()
        try:
            found = _found(self._ahead, samples)
            if found is None or found.cancel() or found.exception() is not None:
                return self._timed(samples, self._device)
            return self._received(found.result())
        finally:
            self.waited_s += time.monotonic() - began

    def _begin(self, samples: Samples) -> Future[Batch]:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="loader")
        return self._thread.submit(self._fetch, samples)

    def _timed(self, samples: Samples, device: torch.device) -> tuple[Inputs, torch.Tensor]:
        began = time.monotonic()
        taken = self._examples.take(samples, device)
        self._sample_s = (time.monotonic() - began) / max(1, len(samples))
        return taken

    def _fetch(self, samples: Samples) -> Batch:
        if self._device.type != "cuda":
            inputs, targets = self._timed(samples, self._device)
            return Batch(inputs=inputs, targets=targets)
        inputs, targets = self._timed(samples, torch.device("cpu"))
        self._stream = self._stream or torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._stream):
            inputs, targets = self._copied(inputs), self._copied_tensor(targets)
            ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            ready.record(self._stream)
        return Batch(inputs=inputs, targets=targets, ready=ready)

    def _copied(self, inputs: Inputs) -> Inputs:
        if isinstance(inputs, torch.Tensor):
            return self._copied_tensor(inputs)
        offsets, columns, values = map(self._copied_tensor, (inputs.offsets, inputs.columns, inputs.values))
        return Bag(offsets=offsets, columns=columns, values=values)

    def _copied_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.pin_memory().to(self._device, non_blocking=True)

    def _received(self, batch: Batch) -> tuple[Inputs, torch.Tensor]:
        """The batch for the trainer's own stream, which waits for the copy and keeps the memory until it is done."""
        if batch.ready is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(batch.ready)
            for tensor in (*_tensors(batch.inputs), batch.targets):
                tensor.record_stream(stream)
        return batch.inputs, batch.targets


def _tensors(inputs: Inputs) -> tuple[torch.Tensor, ...]:
    return (inputs,) if isinstance(inputs, torch.Tensor) else (inputs.offsets, inputs.columns, inputs.values)


def _found(ahead: deque[tuple[Samples, Future[Batch]]], samples: Samples) -> Future[Batch] | None:
    """The batch of exactly these samples; skipped batches before it are dropped."""
    at = next((n for n, (known, _) in enumerate(ahead) if np.array_equal(known, samples)), None)
    if at is None:
        return None
    for _ in range(at):
        ahead.popleft()[1].cancel()
    return ahead.popleft()[1]
