"""What the experiment with placements submits, and what it says."""

from typing import Any

import pytest

from benchmarks.training import psld
from benchmarks.training.jobs import Outcome
from controlplane.jobs.validation import validated_spec


@pytest.mark.parametrize("disturbance", ["lasting", "transient"])
@pytest.mark.parametrize("placement", psld.PLACEMENTS)
def test_every_job_can_be_submitted_and_has_one_thin_server(disturbance: str, placement: str) -> None:
    spec = validated_spec(psld.spec_of(disturbance, placement, 40, 0.002))
    assert spec.emulate_servers is not None
    assert [link.at(15) for link in spec.emulate_servers] == [psld.LINK] * 3 + [psld.THIN]
    assert (spec.emulate_servers[3].at(30) == psld.LINK) == (disturbance == "transient")


class Jobs:
    """Answers as if every job had run."""

    def run(self, document: dict[str, Any]) -> Outcome:
        adaptive = "psld" in document["name"]
        seconds = [1.0] * 10 + [0.25 if adaptive else 1.0] * 30
        moved = [{"kind": "move-blocks", "payload": {"moves": {"1": [3, 0], "2": [3, 1]}}}]
        measured = [{"kind": "measure-placement", "payload": {"paused_s": 0.5}}]
        job = {"created_at": "2026-03-02T09:30:00Z", "started_at": "2026-03-02T09:30:04Z", "loss": 0.5}
        return Outcome(job=job, iteration_s=seconds, decisions=[*moved, *measured] if adaptive else [])


def test_rows_tell_gain_moves_and_pause() -> None:
    base = psld._row(Jobs().run({"name": "mxnet"}), "lasting", "mxnet", None)
    row = psld._row(Jobs().run({"name": "psld"}), "lasting", "psld", base)
    assert (base.total_s, base.speedup, base.paused_s) == (40.0, 1.0, None)
    assert (row.total_s, row.speedup, row.changes, row.moved, row.paused_s) == (17.5, 2.29, 1, 2, 0.5)
    assert row.quarters_s == [1.0, 0.25, 0.25, 0.25]
    assert psld._failures([base, row], 4.0) == [
        "lasting psld: a change delayed a worker by 0.500 s, more than 10% of a restart from a checkpoint (4.00 s)"
    ]
    assert psld._failures([base, row], 5.0) == []
    assert psld.pause_line(row, 4.0) == (
        "2 blocks moved in 1 change of placement: workers were delayed by at most 500 ms; "
        "a restart from a checkpoint takes 4000 ms: 12% (target 10%)"
    )


class Checkpointed(Jobs):
    """Keeps what was submitted; the first iteration after a restart takes 3 s."""

    def __init__(self) -> None:
        self.submitted: list[dict[str, Any]] = []

    def run(self, document: dict[str, Any]) -> Outcome:
        self.submitted.append(document)
        outcome = super().run(document)
        job = outcome.job | {"id": len(self.submitted)}
        return Outcome(job=job, iteration_s=[3.0, 1.0, 1.0], decisions=[])


def test_a_restart_is_one_from_a_checkpoint_of_the_same_job() -> None:
    jobs = Checkpointed()
    assert psld.restart_from_checkpoint_s(jobs.run, 0.002) == 4.0 + 2.0
    first, second = (validated_spec(document) for document in jobs.submitted)
    assert first.checkpoint is not None
    assert first.stop.iterations == first.checkpoint.every
    assert second.start_from is not None
    assert second.start_from.job == 1
    assert second.stop.iterations == 2 * first.checkpoint.every
