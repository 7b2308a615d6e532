"""What the benchmark of stalled jobs reads from a job."""

from typing import Any

import pytest

from benchmarks.faults import standstill
from benchmarks.faults.standstill import Eye, Stalled, line


class Plane:
    """A control plane on whose job iterations come at these seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, iterations_at: list[float], over_at: float = 1e9) -> None:
        self.now_s, self._at, self._over_at = 0.0, iterations_at, over_at
        monkeypatch.setattr(standstill.time, "monotonic", lambda: self.now_s)

    def job(self, number: int) -> dict[str, Any]:
        done = sum(at <= self.now_s for at in self._at)
        is_over = self.now_s >= self._over_at
        reason = "the ranks ended with 137" if is_over else ""
        return {"iteration": done, "is_over": is_over, "reason": reason, "waiting": None}

    def ask(self, method: str, path: str) -> Any:
        said = "its control connection ended" if self.now_s > 3.0 else ""
        return {"results": [{"role": "worker", "index": 1, "reason": said}]}


def test_the_longest_time_without_an_iteration_counts_and_each_message_is_listed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plane = Plane(monkeypatch, iterations_at=[1.0, 2.0, 6.5, 7.0])
    eye = Eye(plane, 1)  # type: ignore[arg-type]
    for tenths in range(1, 81):
        plane.now_s = tenths / 10
        eye.look()
    found = eye.until("a node is lost", lambda job: job["iteration"] == 4)
    assert (found.stalled_s, found.whole_s) == (4.5, 8.0)
    assert found.messages == ["worker 1: its control connection ended"]


def test_a_job_that_ends_stalls_for_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    plane = Plane(monkeypatch, iterations_at=[1.0], over_at=2.0)
    eye = Eye(plane, 1)  # type: ignore[arg-type]
    plane.now_s = 2.0
    found = eye.until("scancel", lambda job: job["is_over"])
    assert (found.stalled_s, found.messages) == (None, ["job: the ranks ended with 137"])
    assert line(Stalled(what="x", stalled_s=None, whole_s=2.0, messages=["why"])).split() == [
        "x",
        "ended",
        "2.0",
        "s",
        "why",
    ]
