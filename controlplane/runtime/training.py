"""Fits predictors in a separate task: requested by the engine with ``TrainPredictor``, answered by an event.

A task may be lost or run twice: the engine accepts one answer per round, requests no other meanwhile, and repeats a
lost request. Until then shares follow the previous fit. Fits run in a separate process (``fitter``).
"""

from collections.abc import Sequence
from typing import Final

import structlog
from celery import current_app

from controlplane.core.commands import AnyCommand, TrainPredictor
from controlplane.runtime import log
from controlplane.runtime.fitter import Fitter, request_of

TRAIN: Final = "controlplane.runtime.tasks.train_predictor"

logger = structlog.get_logger(__name__)

_fitter: Final = Fitter()


def request_fits(job: int, commands: Sequence[AnyCommand]) -> None:
    """Queue a task for every requested fit; call it after the commit of the commands."""
    for command in commands:
        if isinstance(command, TrainPredictor):
            current_app.send_task(TRAIN, args=(job, request_of(command)))


def fit(job: int, request: str) -> None:
    """Run one fit, and append the result to the job's log.

    Raises:
        Failed: if it failed; the engine requests it again.
    """
    trained = _fitter.fit(request)
    try:
        log.append_event(job, trained)
    except log.LogClosed:
        logger.info("job was over before its predictor was trained", job=job, predictor=trained.predictor)
