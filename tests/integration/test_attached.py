"""Attached jobs on a running control plane: ranks of a launcher of Paceline's speak over their own client's sockets."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from paceline.ranks import RemoteRank
from tests.integration.test_jobs import reports
from tests.support.stack import Stack
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

SPEEDS = (1000.0, 1000.0, 250.0)


class Launched:
    """The ranks of one attached job, which take as long as their speeds say by the clock of their reports."""

    def __init__(self, stack: Stack, speeds: Sequence[float] = SPEEDS, **spec: Any) -> None:
        document: dict[str, Any] = {"name": "mine", "launch": "attached", "workers": len(speeds), "batch_size": 64}
        answer = stack.ask(
            "POST", "/api/v1/jobs", json=document | {"synchronization": {"batching": "lb-bsp-cpu"}} | spec
        )
        self.stack, self.speeds = stack, speeds
        self.number: int = answer["id"]
        self.token: str = answer["token"]
        self.ranks = [self.rank(each, len(speeds)) for each in range(len(speeds))]
        for rank in self.ranks:
            assert rank.await_orders(20.0)

    def rank(self, rank: int, world: int) -> RemoteRank:
        return RemoteRank(
            self.stack.url, self.number, self.token, rank=rank, world=world, batch_size=64, samples=10_000
        )

    def iterate(self, iterations: int, *, pause_s: float = 0.01) -> None:
        """So many, each with the shares that rank 0 has heard, as ranks that agree have them."""
        for _ in range(iterations):
            shares = self.ranks[0].shares
            taken = [share / speed for share, speed in zip(shares, self.speeds, strict=True)]
            for rank, share, compute_s in zip(self.ranks, shares, taken, strict=True):
                rank.report(samples=share, loss=1.0, compute_s=compute_s, waiting_s=max(taken) - compute_s)
            time.sleep(pause_s)

    def finish(self, exit_code: int = 0) -> dict[str, Any]:
        for rank in self.ranks:
            rank.close()
        headers = {"Authorization": f"Bearer {self.token}"}
        path = f"/api/v1/jobs/{self.number}/actions/finish"
        reply = self.stack.client.post(path, json={"exit_code": exit_code}, headers=headers)
        assert reply.status_code == 202, reply.text
        return self.stack.await_job(self.number, "succeeded" if exit_code == 0 else "failed")


@contextmanager
def launched(stack: Stack, **spec: Any) -> Iterator[Launched]:
    job = Launched(stack, **spec)
    try:
        yield job
    finally:
        for rank in job.ranks:
            rank.close()


def test_uneven_ranks_get_uneven_shares_and_every_report_is_a_row(stack: Stack) -> None:
    with launched(stack) as job:
        job.iterate(30)
        eventually(lambda: job.ranks[0].shares[2] < 40, what="shares that follow the speeds")
        job.iterate(30)
        done = job.finish()
    assert (done["launch"], done["iteration"], done["generation"]) == ("attached", 60, 1)
    assert done["reason"] == "its launcher ended with status 0; 60 iterations were done"
    assert reports(stack, job.number) == Counter({(rank, k): 1 for rank in range(3) for k in range(60)})
    shares = stack.rows(f"/api/v1/jobs/{job.number}/decisions?kind=set-shares")
    assert len(shares) >= 2
    rows = stack.rows(f"/api/v1/jobs/{job.number}/processes")
    assert [(row["index"], row["agent"], row["state"]) for row in rows] == [(r, None, "stopped") for r in range(3)]
    assert {"machine", "pid", "launcher", "paceline"} <= rows[0]["environment"].keys()


def test_a_control_plane_that_was_away_has_every_report_once_when_it_is_back(stack: Stack) -> None:
    with launched(stack) as job:
        job.iterate(20)
        stack.await_iteration(job.number, 20)
        for service in ("web", "decisions"):
            stack.kill(service)
        job.iterate(40)
        stack.make_whole()
        job.iterate(20)
        stack.await_iteration(job.number, 80)
        done = job.finish()
    # The log may hold what was said again; rows, of which the sums are made, are one for each report.
    assert set(reports(stack, job.number)) == {(rank, k) for rank in range(3) for k in range(80)}
    assert (done["iteration"], done["samples"]) == (80, 80 * 192)


def test_ranks_that_come_again_continue_where_the_job_is(stack: Stack) -> None:
    with launched(stack) as job:
        job.iterate(10)
        stack.await_iteration(job.number, 10)
        before, job.ranks = job.ranks, [job.rank(rank, 3) for rank in range(3)]
        for rank in job.ranks:
            assert rank.await_orders(20.0)
        assert [rank.iteration for rank in job.ranks] == [10, 10, 10]
        job.iterate(10)
        assert job.finish()["iteration"] == 20
        for rank in before:
            rank.close()


def test_a_stop_reaches_the_ranks_and_the_job_is_cancelled_when_they_have_stopped(stack: Stack) -> None:
    with launched(stack) as job:
        job.iterate(5)
        stack.await_iteration(job.number, 5)
        stack.ask("POST", f"/api/v1/jobs/{job.number}/actions/stop")
        for rank in job.ranks:
            eventually(partial(getattr, rank, "stopped"), what="the order to stop")
            rank.close()
        done = stack.await_job(job.number, "cancelled")
    assert done["reason"].startswith("stopped by tester")


def test_a_pause_holds_the_ranks_until_someone_resumes(stack: Stack) -> None:
    with launched(stack) as job:
        job.iterate(5)
        stack.await_iteration(job.number, 5)
        stack.ask("POST", f"/api/v1/jobs/{job.number}/actions/pause")
        for rank in job.ranks:
            eventually(partial(getattr, rank, "held"), what="the order to stand")
        eventually(
            lambda: "every worker has stopped" in stack.job(job.number)["reason"], what="the word that all stand"
        )
        stack.ask("POST", f"/api/v1/jobs/{job.number}/actions/resume")
        for rank in job.ranks:
            eventually(lambda: not rank.held, what="the order to go on")  # noqa: B023
        job.finish()


def test_its_exit_code_is_its_end(stack: Stack) -> None:
    with launched(stack) as job:
        job.iterate(5)
        done = job.finish(exit_code=3)
    assert done["reason"] == "its launcher ended with status 3"


def test_its_pages_and_exports_have_what_a_native_job_has(stack: Stack) -> None:
    with launched(stack) as job:
        job.iterate(60)
        job.finish()
    for path in ("report", "trace", "measurements", "metrics?metric=loss", "figures/batch-size", "figures/timeline"):
        reply = stack.client.get(f"/api/v1/jobs/{job.number}/{path}")
        assert reply.status_code == 200, f"{path}: {reply.status_code} {reply.text[:300]}"
