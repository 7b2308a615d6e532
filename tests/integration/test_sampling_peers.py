"""A job whose workers sample their peers continues while its control plane is stopped or killed."""

import signal
import time
from itertools import pairwise
from typing import Any

import pytest

from tests.integration.test_jobs import answers
from tests.support.stack import Stack
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

PARTS = ("web", "decisions", "history")
AWAY_S = 8.0
SAMPLE, STALENESS = 2, 1
PEERS = {"name": "pssp", "sampling": "peers", "sample": SAMPLE, "staleness": STALENESS}
UNEVEN = [{"samples_per_second": speed} for speed in (320.0, 320.0, 160.0, 160.0)]
"""0.05 and 0.1 s an iteration."""
AT_ONCE_MS = 300
MADE_MEANWHILE = 15
"""More than can be made within ``AT_ONCE_MS``."""


def said(stack: Stack, job: int) -> dict[int, list[tuple[int, dict[str, Any]]]]:
    """Each worker's own reports in its order, each with when it reached the log, in milliseconds."""
    by_rank: dict[int, list[tuple[int, dict[str, Any]]]] = {}
    for row in stack.rows(f"/api/v1/jobs/{job}/events?kind=report&page_size=500"):
        at_ms, message = int(row["stream_id"].partition("-")[0]), row["event"]["message"]
        by_rank.setdefault(row["event"]["rank"], []).append((at_ms, message))
    return {rank: sorted(each, key=lambda one: one[1]["iteration"]) for rank, each in by_rank.items()}


def held_back(reports: list[tuple[int, dict[str, Any]]]) -> int:
    """How many reports came at once after the longest silence: those of iterations that were made within it."""
    times = [at_ms for at_ms, _ in reports]
    _, back_ms = max((after - before, after) for before, after in pairwise(times))
    return sum(back_ms <= at_ms <= back_ms + AT_ONCE_MS for at_ms in times)


@pytest.mark.parametrize("stopped", ["SIGSTOP", "SIGKILL"])
def test_workers_continue_and_keep_the_bound_while_the_control_plane_is_away(stack: Stack, stopped: str) -> None:
    choices = {"barrier": PEERS}
    job = stack.submit(synchronization=choices, stop={"iterations": 100_000}, emulate=UNEVEN, servers=1)["id"]
    stack.await_iteration(job, 40)
    for part in PARTS:
        stack.service(part).process.send_signal(signal.Signals[stopped])
    away_until = time.monotonic() + AWAY_S
    eventually(lambda: time.monotonic() > away_until, what="some time without a control plane", every=0.2)
    for part in PARTS:
        if stopped == "SIGSTOP":
            stack.service(part).process.send_signal(signal.SIGCONT)
        else:
            stack.service(part).process.wait()
            stack.restart(part)
    eventually(lambda: answers(stack), what="the control plane's return", seconds=60)
    stack.await_iteration(job, 100)
    stack.stop(job)
    reports = said(stack, job)
    for each in reports.values():
        assert held_back(each) > MADE_MEANWHILE
        for _, report in each:
            assert all(known >= report["iteration"] - STALENESS for known in report["sampled"].values())
            assert not report["sampled"] or len(report["sampled"]) == SAMPLE
        assert sum(bool(report["sampled"]) for _, report in each) > len(each) // 2
    assert sorted(reports) == [0, 1, 2, 3]
