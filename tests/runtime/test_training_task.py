import os
import sys
import threading
from typing import Any

import pytest

from controlplane.core.commands import ReleaseSlots, TrainPredictor
from controlplane.core.events import Event, PredictorTrained
from controlplane.policies.registry import resolve
from controlplane.protocol.spec import Choice
from controlplane.runtime import log, training
from tests.policies.test_prediction_recurrent import busy_machines


def a_command() -> TrainPredictor:
    choice = Choice(name="narx", parameters={"samples": 40})
    narx = resolve("prediction", choice)
    state = narx.start()
    for measured in busy_machines(40):
        state = narx.observe(measured, state)
    _, lesson = narx.request_lesson(state)
    return TrainPredictor(cause="1-0", reason=lesson.reason, predictor=choice, round=1, seed=5, data=lesson.data)


def test_a_fit_that_is_asked_for_is_queued_and_its_answer_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    queued: list[tuple[str, Any]] = []
    appended: list[tuple[int, Event]] = []
    monkeypatch.setattr(
        "controlplane.runtime.training.current_app.send_task", lambda name, args: queued.append((name, args))
    )
    monkeypatch.setattr(log, "append_event", lambda job, event: appended.append((job, event)))
    training.request_fits(7, [ReleaseSlots(cause="1-0", reason="over"), a_command()])
    ((name, (job, lesson)),) = queued
    assert (name, job) == ("controlplane.runtime.tasks.train_predictor", 7)
    training.fit(job, lesson)
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


@pytest.mark.skipif(sys.platform != "linux", reason="priorities of threads are Linux's")
def test_a_fit_yields_to_all_else_and_the_thread_that_asked_for_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    priorities: list[int] = []

    def fit(command: TrainPredictor, resolve: Any) -> PredictorTrained:
        priorities.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return PredictorTrained(predictor="narx", round=1, weights=b"")

    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    monkeypatch.setattr("controlplane.core.sharing.fit", fit)
    monkeypatch.setattr(log, "append_event", lambda job, event: None)
    queued: list[Any] = []
    monkeypatch.setattr("controlplane.runtime.training.current_app.send_task", lambda name, args: queued.append(args))
    training.request_fits(7, [a_command()])
    training.fit(*queued[0])
    assert priorities == [max(before, 15)]
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before
