"""Evaluates versions of the parameters on the held-out split, in a thread beside training; not part of its times."""

import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic

import torch

from controlplane.protocol.messages import Evaluation, WorkerMessage
from workers.workloads.shape import Scorer, Workload, scorer_of
from workers.workloads.tensors import values_of

Say = Callable[[Callable[[int], WorkerMessage]], None]


class Evaluator:
    """A thread with its own memory, allocated for the first evaluated version: most workers evaluate none.

    An error in it is raised by the next ``offer`` or ``finish``.
    """

    def __init__(self, workload: Workload, say: Say) -> None:
        self._workload, self._say = workload, say
        self._scorer: Scorer | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="evaluation")
        self._running: Future[None] | None = None

    def __enter__(self) -> "Evaluator":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def offer(self, version: int, parameters: torch.Tensor) -> None:
        """Evaluate a copy of ``parameters``; skipped if the previous evaluation is still running."""
        if self._running is None or self._running.done():
            self._start(version, parameters)

    def finish(self, version: int, parameters: torch.Tensor) -> None:
        """Evaluate the final ``parameters`` and wait for the result."""
        self._settle()
        self._start(version, parameters)
        self._settle()

    def _start(self, version: int, parameters: torch.Tensor) -> None:
        self._settle()
        if self._scorer is None:
            self._scorer = scorer_of(self._workload)
        values_of(self._scorer).copy_(parameters)
        self._running = self._pool.submit(self._score, self._scorer, version)

    def _settle(self) -> None:
        if self._running is not None:
            self._running.result()
            self._running = None

    def _score(self, scorer: Scorer, version: int) -> None:
        began = monotonic()
        score = scorer.evaluate()
        seconds = monotonic() - began
        self._say(
            lambda number: Evaluation(
                number=number,
                iteration=version,
                loss=score.loss if math.isfinite(score.loss) else None,
                accuracy=score.accuracy,
                samples=score.samples,
                seconds=seconds,
            )
        )
