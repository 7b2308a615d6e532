"""Native jobs that no launcher of scripts can run, for agents that a scheduler has started, and what they must do."""

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.support.stack import Stack

STALENESS = 3
ROUNDS, LOCAL_STEPS, BATCH_SIZE = 8, 4, 16
UNEVEN = [{"samples_per_second": speed} for speed in (320.0, 80.0)]


class NativeJob(NamedTuple):
    """A job of two workers."""

    spec: dict[str, Any]
    check: Callable[[list[dict[str, Any]]], None]
    """Asserts on its reports, in the order in which the control plane received them."""


def keeps_its_bound(reports: list[dict[str, Any]]) -> None:
    """The fast worker goes ahead of the slow one, as far as the barrier lets it."""
    lead, last = 0, [-1, -1]
    for report in reports:
        last[report["rank"]] = max(last[report["rank"]], report["message"]["iteration"])
        lead = max(lead, last[0] - last[1])
    assert 1 < lead <= STALENESS + 1


def averages_rounds(reports: list[dict[str, Any]]) -> None:
    """Each round is so many local steps of both, with the larger batches on the fast client."""
    samples: list[dict[int, int]] = [{}, {}]
    for report in reports:
        samples[report["rank"]][report["message"]["iteration"]] = report["message"]["samples"]
    fast, slow = samples
    assert sorted(fast) == sorted(slow) == [*range(ROUNDS)]
    assert {fast[k] + slow[k] for k in range(ROUNDS)} == {2 * LOCAL_STEPS * BATCH_SIZE}
    assert fast[0] == slow[0]
    assert fast[ROUNDS - 1] > 1.2 * slow[ROUNDS - 1]


COMMON: dict[str, Any] = {
    "name": "digits",
    "workload": {"name": "softmax-regression", "dataset": "digits"},
    "workers": 2,
    "servers": 1,
    "batch_size": BATCH_SIZE,
    "emulate": UNEVEN,
    "seed": 7,
}

NATIVE_JOBS = {
    "asynchronous": NativeJob(
        COMMON
        | {
            "servers": 2,
            "stop": {"iterations": 30},
            "synchronization": {"barrier": {"name": "ssp", "staleness": STALENESS}},
        },
        keeps_its_bound,
    ),
    "federated": NativeJob(
        COMMON
        | {
            "stop": {"iterations": ROUNDS},
            "federated": {"local_steps": LOCAL_STEPS},
            "synchronization": {"batching": {"name": "lb-bsp-federated"}},
        },
        averages_rounds,
    ),
}


def reports_of(stack: Stack, job: int) -> list[dict[str, Any]]:
    """Every report of a job, in the order of its log; one that was sent again is there twice."""
    rows = stack.rows(f"/api/v1/jobs/{job}/events?kind=report&page_size=500")
    return [row["event"] for row in sorted(rows, key=lambda row: [*map(int, row["stream_id"].split("-"))])]
