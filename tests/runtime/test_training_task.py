from typing import Any

import pytest

from controlplane.core.commands import ReleaseSlots
from controlplane.core.events import Event, PredictorTrained
from controlplane.policies.registry import resolve
from controlplane.protocol.spec import Choice
from controlplane.runtime import log, training
from tests.runtime.test_fitter import a_command


def test_a_fit_that_is_requested_is_queued_and_its_answer_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    queued: list[tuple[str, Any]] = []
    appended: list[tuple[int, Event]] = []
    monkeypatch.setattr(
        "controlplane.runtime.training.current_app.send_task", lambda name, args: queued.append((name, args))
    )
    monkeypatch.setattr(log, "append_event", lambda job, event: appended.append((job, event)))
    training.request_fits(7, [ReleaseSlots(cause="1-0", reason="over"), a_command()])
    ((name, (job, request)),) = queued
    assert (name, job) == ("controlplane.runtime.tasks.train_predictor", 7)
    training.fit(job, request)
    ((job, event),) = appended
    assert isinstance(event, PredictorTrained)
    assert (job, event.predictor, event.round) == (7, "narx", 1)
    learnt, _ = resolve("prediction", Choice(name="narx")).learn(
        resolve("prediction", Choice(name="narx")).start(),
        PredictorTrained(predictor="narx", round=0, weights=event.weights),
    )
    assert learnt.weights == event.weights


def test_a_job_that_is_over_by_then_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(job: int, event: Event) -> None:
        raise log.LogClosed(f"job {job}: is over")

    queued: list[Any] = []
    monkeypatch.setattr("controlplane.runtime.training.current_app.send_task", lambda name, args: queued.append(args))
    monkeypatch.setattr(log, "append_event", closed)
    training.request_fits(7, [a_command()])
    training.fit(*queued[0])
