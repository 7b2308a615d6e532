"""A training loop in the thread of Ray Train that runs it, without a cluster: what a control plane learns of its end.

In the adapters' environment: ``ray_loop.py v1|v2 ends|fails`` prints what was heard, and the limit that was learned.
"""

import json
import os
import queue
import sys
import tempfile
import threading
from types import SimpleNamespace
from typing import Any

import ray.train
import torch
from ray.air._internal.util import RunnerThread
from ray.train.v2._internal.execution.context import set_train_context
from ray.train.v2._internal.execution.worker_group.thread_runner import ThreadRunner

import paceline
from controlplane.protocol.messages import IterationReport, RankHello, WorkerFinished
from paceline.ceilings import Ceiling
from paceline.variables import JOB, TOKEN, URL, target
from tests.paceline.plane import Plane

assert ray.train
ITERATIONS = 3


def main(version: str, end: str) -> None:
    """Run one loop, and print what was learned of it."""
    closing: queue.Queue[threading.Thread] = queue.Queue()
    with Plane() as plane:
        os.environ |= {URL: plane.url, JOB: "1", TOKEN: "plj_x", "RANK": "0", "WORLD_SIZE": "1"}

        def loop() -> None:
            pacer = paceline.attach()
            closing.put(next(each for each in threading.enumerate() if each.name == "paceline-end"))
            batches = iter(pacer.loader(range(64), 8, seed=1))
            for _ in range(ITERATIONS):
                next(batches)
                pacer.step(1.0)
            if end == "fails":
                next(batches)
                raise torch.OutOfMemoryError("out of memory")

        run(version, loop)
        closing.get(timeout=60.0).join(60.0)
        heard = {kind.__name__: len(plane.said(kind)) for kind in (RankHello, IterationReport, WorkerFinished)}
        sys.stdout.write(json.dumps([heard, Ceiling(target(), 0).samples]))


def run(version: str, loop: Any) -> None:
    """As a worker of Ray Train does."""
    if version == "v1":
        RunnerThread(target=loop, daemon=True, error_queue=queue.Queue(1)).start()
        return
    runner = ThreadRunner()
    set_train_context(SimpleNamespace(execution_context=SimpleNamespace(training_thread_runner=runner)))
    runner.run(loop)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        main(*sys.argv[1:])
