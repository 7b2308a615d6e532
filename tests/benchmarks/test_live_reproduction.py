"""What a real job recorded becomes what the simulator would have recorded; runs that were made are not made again."""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from benchmarks.reproduction import playing
from benchmarks.reproduction.playing import overrun
from benchmarks.reproduction.reading import Records, played_of, report_of, score_of
from controlplane.simulator.reproduction.claims import Run
from controlplane.simulator.reproduction.live.results import FailedRun, LiveRun, run_digest
from controlplane.simulator.reproduction.runs import play_run
from controlplane.simulator.scenarios import find

FAST_S, SLOW_S = 64 / 192, 64 / 64


def row(at_s: float, rank: int, iteration: int, samples: int, compute_s: float, waiting_s: float) -> dict[str, Any]:
    message = {
        "iteration": iteration,
        "samples": samples,
        "compute_s": compute_s,
        "push_s": 0.01,
        "pull_s": 0.01,
        "waiting_s": waiting_s,
        "coordination_s": 0.0,
        "moving_s": 0.5,
    }
    return {"stream_id": f"{int(at_s * 1000)}-0", "event": {"rank": rank, "message": message}}


def records(rows: Sequence[dict[str, Any]], scores: Sequence[tuple[int, float, float]] = ()) -> Records:
    messages = [{"iteration": k, "loss": loss, "accuracy": accuracy} for k, loss, accuracy in scores]
    return Records(
        reports=sorted(map(report_of, rows), key=lambda report: report.at_s),
        scores=[score_of({"event": {"message": message}}) for message in messages],
        decisions=[
            {"kind": "move-blocks", "payload": {"moves": {"3": [0, 1], "4": [0, 2]}}},
            {"kind": "move-splits", "payload": {"iteration": 9, "moves": [{"split": 1}, {"split": 2}]}},
        ],
        servers=3,
        block_bytes={3: 100},
    )


def in_step(iterations: int = 12) -> list[dict[str, Any]]:
    """Four workers, of which one is three times as slow."""
    waits = [SLOW_S - FAST_S, SLOW_S - FAST_S, SLOW_S - 64 / 96, 0.0]
    return [
        row(1.02 * (k + 1), rank, k, 64, SLOW_S - wait, wait)
        for k in range(iterations)
        for rank, wait in enumerate(waits)
    ]


def test_iterations_in_step_are_as_long_as_the_workers_report() -> None:
    scores = [(0, 2.3, 0.1), (6, 0.9, 0.8), (8, 0.7, 0.86)]
    played = played_of(find("live-lb-bsp-cpus"), "bsp", 0, records(in_step(), scores))
    outcome = played.outcome
    assert outcome.iteration_s == pytest.approx(1.02)
    assert outcome.seconds == pytest.approx(12 * 1.02)
    assert (outcome.iterations, outcome.updates, outcome.samples) == (12, 48, 48 * 64)
    assert outcome.shares == [64] * 4
    assert outcome.compute + outcome.waiting + outcome.communication == pytest.approx(1.0)
    lead_s = SLOW_S - FAST_S + 0.01  # an evaluation is of what came after the wait for the slowest
    assert outcome.time_to_target_s == pytest.approx(8 * 1.02 + lead_s)
    assert outcome.updates_to_target == 32
    assert played.losses[1] == (pytest.approx(6 * 1.02 + lead_s), 24, 0.9)
    assert (played.added_servers, played.moved_splits, outcome.moved_bytes) == (2, 2, 101)
    assert outcome.moving_s == pytest.approx(12 * 0.5)


def test_workers_that_go_ahead_have_iterations_of_their_own() -> None:
    fast = [row(0.353 * (k + 1), 0, k, 64, FAST_S, 0.0) for k in range(6)]
    others = [row(1.02 * (k + 1), rank, k, 64, SLOW_S, 0.0) for k in range(2) for rank in (1, 2, 3)]
    played = played_of(find("live-lb-bsp-cpus"), "asp", 0, records([*fast, *others], [(4, 0.9, 0.86)]))
    assert played.spans == []
    assert played.outcome.progress == [6, 2, 2, 2]
    assert played.outcome.iteration_s == pytest.approx((6 * (FAST_S + 0.02) + 6 * 1.02) / 12)
    assert played.outcome.inconsistency > 0.0
    # When worker 0 began its iteration 4, it had reported four of its own and each of the others one.
    assert played.outcome.updates_to_target == 7


def test_a_job_that_recorded_nothing_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="live-lb-bsp-cpus under bsp: no worker reported an iteration"):
        played_of(find("live-lb-bsp-cpus"), "bsp", 0, records([]))


def test_computing_beyond_the_emulated_machines_time_is_an_overrun() -> None:
    late = in_step(2)
    late[0]["event"]["message"]["compute_s"] += 0.5
    whole = sum(each["event"]["message"]["compute_s"] for each in late)
    assert overrun(find("live-lb-bsp-cpus"), records(late)) == pytest.approx(0.5 / whole)
    gpus = find("live-lb-bsp-gpus")
    due = [machine.machine.launch_s + 32 * machine.machine.seconds_per_sample for machine in gpus.machines]  # type: ignore[union-attr]
    kept = [row(2.0, rank, 0, 32, seconds, 0.0) for rank, seconds in enumerate(due)]
    assert overrun(gpus, records(kept)) == pytest.approx(0.0)


def made(run: Run, seed: int) -> LiveRun:
    return LiveRun(
        digest=run_digest(run, seed),
        scenario=run.scenario,
        policy=run.policy,
        seed=seed,
        live=play_run(run, seed),
        at="2026-01-02 03:04",
        load=1.0,
        cores=2,
        overran=0.0,
        code="0123456789ab",
    )


def test_an_interrupted_command_continues_behind_the_runs_that_it_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []

    def play_all(keys: Sequence[tuple[Run, int]]) -> Iterator[LiveRun]:
        for run, seed in keys:
            asked.append((run.policy, seed))
            if len(asked) == 2:
                raise KeyboardInterrupt
            yield made(run, seed)

    monkeypatch.setattr(playing, "play_all", play_all)
    out = tmp_path / "live.md"

    def reproduce() -> str:
        output = io.StringIO()
        options = {"output": out, "keep": tmp_path / "runs", "first_seed": 5, "only": ["lb-bsp-federation"]}
        call_command("reproduce", live=True, stdout=output, stderr=io.StringIO(), **options)
        return output.getvalue()

    with pytest.raises(CommandError, match="interrupted"):
        reproduce()
    assert "lb-bsp-federation: live 0.76, twin 0.76, paper 0.73: reproduced" in reproduce()
    assert asked == [("lb-bsp-federated", 5), ("bsp", 5), ("bsp", 5)]
    assert "seed 5" in out.read_text()
    reproduce()
    assert len(asked) == 3


def test_rows_that_are_none_are_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="only: found 'lb-bsp', expected one of lb-bsp-gpu-target, "):
        call_command("reproduce", live=True, only=["lb-bsp"], stdout=io.StringIO(), stderr=io.StringIO())
    with pytest.raises(CommandError, match="live: found --only or --list without it"):
        call_command("reproduce", list=True, stdout=io.StringIO(), stderr=io.StringIO())
    (tmp_path / "runs").write_text("nothing\n")
    with pytest.raises(CommandError, match="has a line that is not a run"):
        call_command(
            "reproduce",
            live=True,
            keep=tmp_path / "runs",
            output=tmp_path / "live.md",
            stdout=io.StringIO(),
            stderr=io.StringIO(),
        )


def test_rows_are_listed_with_the_runs_that_each_needs() -> None:
    out = io.StringIO()
    call_command("reproduce", "psp", live=True, list=True, stdout=out, stderr=io.StringIO())
    assert "psp-grouped: Fig. 13, sample of 2: accuracy of grouped sampling" in out.getvalue()
    assert "(live-psp-strategies grouped-2, live-psp-strategies fixed-2)" in out.getvalue()
    assert "lb-bsp-" not in out.getvalue()


def test_a_run_that_fails_does_not_keep_others_from_being_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def play_all(keys: Sequence[tuple[Run, int]]) -> Iterator[LiveRun | FailedRun]:
        for run, seed in keys:
            if run.policy == "bsp":
                yield FailedRun(scenario=run.scenario, policy=run.policy, seed=seed, why="job 1 failed: no reason")
            else:
                yield made(run, seed)

    monkeypatch.setattr(playing, "play_all", play_all)
    out, only = tmp_path / "live.md", ["lb-bsp-federation", "lb-bsp-shares"]
    with pytest.raises(CommandError, match=r"these runs did not succeed:\n  live-lb-bsp-federation bsp seed 0: job 1"):
        call_command(
            "reproduce",
            live=True,
            output=out,
            keep=tmp_path / "runs",
            only=only,
            stdout=io.StringIO(),
            stderr=io.StringIO(),
        )
    assert "| lb-bsp-shares (11) |" in out.read_text()
    assert "- lb-bsp-federation: section 5.5" in out.read_text()
