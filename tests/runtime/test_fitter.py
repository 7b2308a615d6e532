"""Fits run in another process, which is started for them, given up where it fails, and ended when it is idle."""

import os
import sys

import psutil
import pytest

from controlplane.core.commands import TrainPredictor
from controlplane.core.events import PredictorTrained
from controlplane.policies.registry import resolve
from controlplane.protocol.spec import Choice
from controlplane.runtime.fitter import Fitter, request_of
from controlplane.runtime.subprocesses import NICENESS, Failed
from tests.policies.test_prediction_recurrent import busy_machines
from tests.support.waiting import eventually

HEARS_ONLY = "import sys; sys.stdin.readline(); sys.stdin.readline()"
ENDS = "import sys; sys.stdin.readline(); sys.exit(3)"
REFUSES = "import sys\nfor _ in sys.stdin: print('!ValueError: too short', flush=True)"


def a_command(predictor: str = "narx") -> TrainPredictor:
    choice = Choice(name="narx", parameters={"samples": 40})
    narx = resolve("prediction", choice)
    state = narx.start()
    for measured in busy_machines(40):
        state = narx.observe(measured, state)
    _, request = narx.request_lesson(state)
    asked = choice if predictor == "narx" else Choice(name=predictor)
    return TrainPredictor(cause="1-0", reason=request.reason, predictor=asked, round=1, seed=5, data=request.data)


def stand_in(program: str, *, idle_s: float = 600.0, most_s: float = 600.0) -> Fitter:
    return Fitter([sys.executable, "-c", program], idle_s=idle_s, most_s=most_s)


def test_a_fit_yields_to_all_else_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this one it would hold the interpreter that ingest needs, and leave torch behind."""

    def here(*_: object) -> PredictorTrained:
        raise AssertionError("fitted in this process")

    monkeypatch.setattr("controlplane.core.sharing.fit", here)
    fitter = Fitter()
    trained = fitter.fit(request_of(a_command()))
    assert (trained.predictor, trained.round, bool(trained.weights)) == ("narx", 1, True)
    assert fitter.pid is not None
    process = psutil.Process(fitter.pid)
    assert process.pid != os.getpid()
    assert process.nice() == min(19, psutil.Process().nice() + NICENESS)
    with pytest.raises(Failed, match="TypeError: predictor ema has nothing to fit"):
        fitter.fit(request_of(a_command("ema")))
    assert fitter.pid == process.pid  # one request that fails is of one job


def test_a_fit_that_takes_too_long_is_broken_off() -> None:
    fitter = stand_in(HEARS_ONLY, most_s=0.1)
    with pytest.raises(Failed, match="ended with exit code -9 without a result"):
        fitter.fit("line")
    assert fitter.pid is None


def test_a_process_that_ends_fails_its_fit_and_the_next_one_has_another() -> None:
    fitter = stand_in(ENDS)
    for _ in range(2):
        with pytest.raises(Failed, match="ended with exit code 3"):
            fitter.fit("line")


def test_an_idle_process_is_ended() -> None:
    fitter = stand_in(REFUSES, idle_s=0.0)
    with pytest.raises(Failed, match="ValueError: too short"):
        fitter.fit("line")
    eventually(lambda: fitter.pid is None, what="the end of the idle process")
