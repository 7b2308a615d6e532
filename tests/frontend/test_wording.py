"""Commands of the engine in words."""

from typing import Any, get_args

import msgspec
import pytest

from controlplane.core import commands as core
from controlplane.core.choices import PredictorScore, SplitMove
from controlplane.jobs.projections import CARRIERS
from controlplane.protocol.spec import Choice, Synchronization
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


JUDGED = {"look": 1, "iteration": 9, "present": "bsp", "chosen": "", "switches": False}


@pytest.mark.parametrize(
    ("words", "kind", "fields"),
    [
        ("generation 4 with 1 worker", core.SetRoster, {"generation": 4, "first_iteration": 9, "ranks": [2]}),
        ("generation 1 with 2 workers", core.SetRoster, {"generation": 1, "first_iteration": 0, "ranks": [0, 1]}),
        ("iterations 40 to 57 are repeated", core.RollBack, {"to_iteration": 40, "completed": 57}),
        ("iteration 40 is repeated", core.RollBack, {"to_iteration": 40, "completed": 40}),
        ("restart before iteration 0", core.RollBack, {"to_iteration": 0, "completed": -1}),
        (
            "s1 and s2 restored from workers, from version 41 on",
            core.RefillBlocks,
            {"servers": [1, 2], "blocks": 9, "ranks": [0], "version": 41, "took_s": 1.2},
        ),
        (
            "w2 left in iteration 17; 5 late updates dropped so far",
            core.NoteUpdates,
            {"late": {1: 2, 3: 3}, "missing": [(17, 2)]},
        ),
        ("w3: compute finding closed", core.CloseFlag, {"flag": "compute-w3-0.1"}),
        ("s0: communication finding closed", core.CloseFlag, {"flag": "communication-s0-0.2"}),
        ("w3: compute becomes a persistent finding", core.CloseFlag, {"flag": "compute-w3-0.1", "escalated": True}),
        ("the job: shares finding closed", core.CloseFlag, {"flag": "shares-j0-0.3"}),
        (
            "3 blocks to move: 2 from s1 to s0, 1 from s1 to s2",
            core.MoveBlocks,
            {"version": 2, "policy": "psld", "freeze_at": 9, "moves": {4: [1, 0], 5: [1, 2], 6: [1, 0]}},
        ),
        (
            "placement 3: exchanges 4.00 times as fast as before, workers paused for at most 12 ms",
            core.MeasurePlacement,
            {"version": 3, "before_s": 0.4, "predicted_s": 0.12, "after_s": 0.1, "paused_s": 0.012, "took_s": 0.5},
        ),
        ("slot requested for s3", core.RequestSlot, {"role": "server", "index": 3}),
        ("slot of s3 released", core.ReleaseSlot, {"role": "server", "index": 3}),
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
            "iteration 7 ends early, after 200 of 256 samples",
            core.CutIteration,
            {"iteration": 7, "processed": 200, "total": 256},
        ),
        (
            "w2 computes its share in micro-batches of 16 of 128 samples, 7% slower",
            core.NoteMicroBatch,
            {"rank": 2, "samples": 16, "whole": 128, "overhead": 0.07},
        ),
        ("1,437 samples partitioned among w0 w1", core.PartitionData, {"samples": 1437, "ranks": [0, 1]}),
        (
            "from iteration 40: split 3 (359 samples) from w1 to w0",
            core.MoveSplits,
            {"iteration": 40, "moves": [SplitMove(split=3, giver=1, taker=0, start=718, stop=1077)]},
        ),
        ("quorum of iteration 7: w0 w1 w2", core.NameQuorum, {"iteration": 7, "ranks": [0, 1, 2]}),
        (
            "quorum of iteration 7: w0 w1 w2 w3 w4 w5 w6 w7 and 2 more",
            core.NameQuorum,
            {"iteration": 7, "ranks": list(range(10))},
        ),
        (
            "lstm trained, round 2",
            core.TrainPredictor,
            {"predictor": Choice(name="lstm"), "round": 2, "seed": 7, "data": b""},
        ),
        (
            "prediction error: ema 4.1%; lstm 6.0%, active",
            core.ScorePredictors,
            {"iteration": 50, "acting": "lstm", "scores": {"lstm": score(0.06), "ema": score(0.041)}},
        ),
        ("active predictor: lstm", core.AdoptPredictor, {"acting": "lstm"}),
        (
            "autopilot: simulation 2 of 1 variant",
            core.PlayAlternatives,
            {"look": 2, "present": "asp", "alternatives": {"asp": Synchronization()}, "since": 3},
        ),
        ("autopilot switches to asp", core.JudgeAlternatives, JUDGED | {"chosen": "asp", "switches": True}),
        ("autopilot proposes to switch to asp", core.JudgeAlternatives, JUDGED | {"chosen": "asp"}),
        ("autopilot: kept bsp", core.JudgeAlternatives, JUDGED),
        (
            "autopilot: asp saves -10.0% (measured), 15% predicted; reverted",
            core.MeasureSwitch,
            {"iteration": 9, "name": "asp", "came_from": "bsp", "before_s": 1.0, "after_s": 1.1, "predicted": 0.15}
            | {"error": 0.01, "kept": False, "goes_back": True},
        ),
        (
            "the larger global batch harms convergence; back to 64 samples per iteration",
            core.JudgeConvergence,
            {"iteration": 90, "verdict": "harmful", "batches": 24, "grown_from": 64, "reverts": True},
        ),
        (
            "the larger global batch harms convergence; proposed: 64 samples per iteration",
            core.JudgeConvergence,
            {"iteration": 90, "verdict": "harmful", "batches": 24, "grown_from": 64},
        ),
        (
            "the larger global batch does not harm convergence",
            core.JudgeConvergence,
            {"iteration": 90, "verdict": "harmless", "batches": 48, "grown_from": 64},
        ),
        ("autopilot set to suggest", core.SetAutopilot, {"mode": "suggest"}),
    ],
)
def test_a_command_as_text(words: str, kind: type[core.Command], fields: dict[str, Any]) -> None:
    assert said(kind, **fields) == words
