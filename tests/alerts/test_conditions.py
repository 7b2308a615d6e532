"""Conditions: where a rule holds."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from controlplane.alerts.conditions import findings
from controlplane.alerts.rules import Rule
from controlplane.alerts.view import JobNow, PlaneNow, View

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
STALLED = Rule(name="one", kind="job-stalled", parameters={"after_s": 120.0})


def stalled(silent_s: float, behind_s: float | None) -> list[float | None]:
    last_report_at = NOON - timedelta(seconds=silent_s)
    job = JobNow(name="nightly", user="ada", state="running", iteration=40, last_report_at=last_report_at)
    view = View(now=NOON, jobs={7: job}, plane=PlaneNow(ingest_lag_s=behind_s))
    return [each.value for each in findings(STALLED, view)]


def test_a_job_is_not_stalled_because_ingest_is_behind() -> None:
    assert stalled(200, None) == [200]
    assert stalled(200, 190) == []
    assert stalled(400, 190) == [210]


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_a_job_that_was_unresponsive_for_less_than_after_s_before_the_lag_is_not_stalled(
    silent: int, behind: int
) -> None:
    assert bool(stalled(silent, behind)) == (silent - behind >= 120)
