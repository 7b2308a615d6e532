"""Fits predictors in a task of their own: what the engine asks for by ``TrainPredictor``, answered by an event.

A task may be lost or run twice: the engine takes each round's answer once, and asks again by itself when the next
round is due. Shares follow the averages until then.
"""

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Final

import msgspec
import structlog
from celery import current_app

from controlplane.core import training
from controlplane.core.commands import AnyCommand, TrainPredictor
from controlplane.policies.registry import resolve
from controlplane.runtime import log

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
        log.append_event(job, training.fit(command, resolve))
    except log.LogClosed:
        logger.info("job was over before its predictor was trained", job=job, predictor=command.predictor.name)
