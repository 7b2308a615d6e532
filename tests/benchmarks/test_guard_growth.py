"""``bench guard-growth``: what it counts, and when it fails."""

import io

import pytest

from benchmarks.training import guard_growth
from benchmarks.training.guard_growth import Drawn, Row
from controlplane.core.choices import Judgement

HARM = Judgement(verdict="harmful", batches=24, reason="")
NONE = Judgement(verdict="harmless", batches=48, reason="")


@pytest.mark.parametrize(
    ("harmful", "harmless", "code", "counted"),
    [
        ([(4.0, HARM), (0.2, NONE)], [NONE, HARM], 0, "1 of 1 found that double the loss, 0 of 1 other harms, 1 false"),
        ([(4.0, NONE), (0.2, HARM)], [NONE, NONE], 1, "0 of 1 found that double the loss, 1 of 1 other harms, 0 false"),
        ([(4.0, HARM), (0.2, HARM)], [HARM, HARM], 1, "1 of 1 found that double the loss, 1 of 1 other harms, 2 false"),
    ],
)
def test_a_missed_doubling_of_the_loss_and_a_second_false_alarm_fail(
    harmful: list[tuple[float, Judgement]],
    harmless: list[Judgement],
    code: int,
    counted: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = (
        [Row(title="a", excess=excess, judgement=judgement) for excess, judgement in harmful],
        [Row(title="b", excess=0.0, judgement=judgement) for judgement in harmless],
    )
    monkeypatch.setattr(guard_growth, "rows", lambda seed, count: found)
    out = io.StringIO()
    assert guard_growth.main(["--seed", "1"], out) == code
    assert counted in out.getvalue()


def test_a_batch_whose_learning_rate_becomes_too_high_is_found() -> None:
    job = Drawn(number=1, model="mlp", batch=256, lr=1.29, momentum=0.0, rule="linear", change_after=100)
    plain, none = guard_growth.trained(job, grows=False)
    changed, judgement = guard_growth.trained(job, grows=True)
    assert none is None
    assert judgement is not None
    assert (changed > 2 * plain, judgement.verdict) == (True, "harmful")
