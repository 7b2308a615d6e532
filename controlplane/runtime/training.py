"""Fits predictors in a separate task: requested by the engine with ``TrainPredictor``, answered by an event.

A task may be lost or run twice: the engine accepts one answer per round, requests no other meanwhile, and repeats a
lost request. Until then shares follow the previous fit. Fits run with low priority.
"""

import os
import sys
import threading
from base64 import b64decode, b64encode
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
import structlog
from celery import current_app

from controlplane.core import sharing
from controlplane.core.commands import AnyCommand, TrainPredictor
from controlplane.core.events import PredictorTrained
from controlplane.policies.registry import resolve
from controlplane.runtime import log
from controlplane.runtime.subprocesses import NICENESS

TRAIN: Final = "controlplane.runtime.tasks.train_predictor"

logger = structlog.get_logger(__name__)

_decoder: msgspec.msgpack.Decoder[TrainPredictor] = msgspec.msgpack.Decoder(TrainPredictor)


def request_fits(job: int, commands: Sequence[AnyCommand]) -> None:
    """Queue a task for every fit that was just asked for; call it once the commands are committed."""
    for command in commands:
        if isinstance(command, TrainPredictor):
            lesson = b64encode(msgspec.msgpack.encode(command)).decode()
            current_app.send_task(TRAIN, args=(job, lesson))


def fit(job: int, lesson: str) -> None:
    """Do one of them, and append what came out to the job's log."""
    command = _decoder.decode(b64decode(lesson))
    try:
        log.append_event(job, _fitted(command))
    except log.LogClosed:
        logger.info("job was over before its predictor was trained", job=job, predictor=command.predictor.name)


def _fitted(command: TrainPredictor) -> PredictorTrained:
    """What the command asks for, in its own thread: a thread that has once yielded cannot take that back."""
    with ThreadPoolExecutor(1, initializer=_yield_to_others) as thread:
        return thread.submit(sharing.fit, command, resolve).result()


def _yield_to_others() -> None:
    # Where a thread is known to the system's scheduler by its own number.
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
