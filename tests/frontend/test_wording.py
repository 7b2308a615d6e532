"""Commands of the engine in words."""

from typing import Any, get_args

import msgspec
import pytest

from controlplane.core import commands as core
from controlplane.core.choices import PredictorScore
from controlplane.jobs.projections import CARRIERS
from controlplane.protocol.spec import Choice
from frontend.queries.wording import PHRASES, describe

NOTHING: dict[str, str] = {"cause": "1-0", "reason": ""}


def said(kind: type[core.Command], **fields: Any) -> str:
    payload = msgspec.to_builtins(kind(**NOTHING, **fields), str_keys=True)
    return describe(payload["type"], payload)


def score(relative: float) -> PredictorScore:
    return PredictorScore(iterations=50, rmse=9.0, relative=relative, slowdown=1.02)


def test_every_decision_has_words() -> None:
    kinds = set(get_args(core.AnyCommand)) - set(CARRIERS)
    assert {kind.__struct_config__.tag for kind in kinds} == {*PHRASES, "set-shares"}


@pytest.mark.parametrize(
    ("words", "kind", "fields"),
    [
        ("generation 4: 1 worker counts", core.SetRoster, {"generation": 4, "first_iteration": 9, "ranks": [2]}),
        ("generation 1: 2 workers count", core.SetRoster, {"generation": 1, "first_iteration": 0, "ranks": [0, 1]}),
        ("w3 is flagged no longer: compute", core.CloseFlag, {"flag": "compute-w3-0.1"}),
        ("flag closed", core.CloseFlag, {"flag": "another"}),
        (
            "from iteration 40 on: barrier bsp, batching lb-bsp-cpu (predictor narx)",
            core.ChangePolicies,
            {
                "generation": 1,
                "first_iteration": 40,
                "choices": {
                    "batching": Choice(name="lb-bsp-cpu", parameters={"predictor": {"name": "narx", "width": 5}}),
                    "barrier": Choice(name="bsp"),
                },
            },
        ),
        ("w1 waits before iteration 7 for w0 w3", core.HoldWorker, {"rank": 1, "iteration": 7, "waits_for": [3, 0]}),
        (
            "iteration 7 is cut after 200 of 256 samples",
            core.CutIteration,
            {"iteration": 7, "processed": 200, "total": 256},
        ),
        ("w0 w1 w2 make iteration 7", core.NameQuorum, {"iteration": 7, "ranks": [0, 1, 2]}),
        (
            "w0 w1 w2 w3 w4 w5 w6 w7 and 2 more make iteration 7",
            core.NameQuorum,
            {"iteration": 7, "ranks": list(range(10))},
        ),
        (
            "lstm is trained, round 2",
            core.TrainPredictor,
            {"predictor": Choice(name="lstm"), "round": 2, "seed": 7, "data": b""},
        ),
        (
            "predicted speeds: ema 4.1% off; lstm 6.0% off, acting",
            core.ScorePredictors,
            {"iteration": 50, "acting": "lstm", "scores": {"lstm": score(0.06), "ema": score(0.041)}},
        ),
        ("shares are decided with lstm", core.AdoptPredictor, {"acting": "lstm"}),
    ],
)
def test_a_command_in_words(words: str, kind: type[core.Command], fields: dict[str, Any]) -> None:
    assert said(kind, **fields) == words
