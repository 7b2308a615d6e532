"""Training scripts that are attached to a whole control plane, on good days and bad ones, with real gloo processes."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from paceline.cli.launchers import NEEDED
from tests.architecture.sources import ROOT
from tests.integration.test_jobs import answers, reports
from tests.paceline.ranks import free_port
from tests.support.attached_script import STOPPED
from tests.support.forked import Rank
from tests.support.stack import Stack
from tests.support.waiting import eventually, slowness

pytestmark = pytest.mark.integration
SCRIPT = "tests.support.attached_script"
Process = Rank | subprocess.Popen[str]


class Launch:
    """The processes of a script, and what they wrote."""

    def __init__(self, folder: Path, processes: Sequence[Process]) -> None:
        self.folder, self.processes = folder, processes

    def lines(self, rank: int) -> list[dict[str, Any]]:
        file = self.folder / f"rank-{rank}.jsonl"
        text = file.read_text() if file.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def iterations(self, rank: int) -> list[dict[str, Any]]:
        return [line for line in self.lines(rank) if "shares" in line]

    def await_iteration(self, iteration: int, seconds: float = 60.0) -> None:
        eventually(lambda: len(self.iterations(0)) > iteration, what=f"iteration {iteration}", seconds=seconds)

    def wait(self, seconds: float = 90.0) -> list[int]:
        return [process.wait(seconds * slowness()) for process in self.processes]

    def output(self) -> str:
        return "".join((self.folder / f"output-{place}.txt").read_text() for place in range(len(self.processes)))


@contextmanager
def launched(
    folder: Path, world: int, job: dict[str, Any] | None, url: str, *, torchrun: int | None = None, **options: Any
) -> Iterator[Launch]:
    """The script on ``world`` ranks, forked here or started by torchrun with so many restarts."""
    port = free_port()
    environment = os.environ | {
        "SCRIPT": json.dumps({"folder": str(folder)} | options),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(world),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(folder),
    }
    if job is not None:
        environment |= {"PACELINE_URL": url, "PACELINE_JOB": str(job["id"]), "PACELINE_TOKEN": job["token"]}
    outputs = [folder / f"output-{place}.txt" for place in range(world if torchrun is None else 1)]
    with ExitStack() as started:
        processes: list[Process] = []
        for rank, output in enumerate(outputs):
            process: Process
            if torchrun is None:
                process = Rank(SCRIPT, environment | {"RANK": str(rank)}, output)
                started.callback(process.end)
            else:
                process = by_torchrun(world, torchrun, environment, output)
                started.callback(end_group, process)
            processes.append(process)
        yield Launch(folder, processes)


def by_torchrun(world: int, restarts: int, environment: dict[str, str], output: Path) -> subprocess.Popen[str]:
    command = [
        *(sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={world}", "--monitor-interval=0.2"),
        *(f"--max-restarts={restarts}", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "-m", SCRIPT),
    ]
    with output.open("w") as file:
        return subprocess.Popen(
            command,
            env=environment | NEEDED["torchrun"],
            cwd=ROOT,
            stdout=file,
            stderr=file,
            text=True,
            start_new_session=True,
        )


def end_group(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def submitted(stack: Stack, workers: int, **spec: Any) -> dict[str, Any]:
    """An attached job with its token."""
    document = {"name": "script", "launch": "attached", "workers": workers, "batch_size": 32, "seed": 7}
    found: dict[str, Any] = stack.ask("POST", "/api/v1/jobs", json=document | spec)
    return found


def finish(stack: Stack, job: dict[str, Any], exit_code: int = 0) -> dict[str, Any]:
    """What `paceline run` says when its command has ended."""
    stack.ask("POST", f"/api/v1/jobs/{job['id']}/actions/finish", json={"exit_code": exit_code})
    return stack.await_job(job["id"], "succeeded" if exit_code == 0 else "failed")


SPEEDS = [1000.0, 1000.0, 500.0, 250.0]


def test_shares_follow_speeds_and_iterations_shorten(stack: Stack, tmp_path: Path) -> None:
    job = submitted(stack, 4, synchronization={"batching": {"name": "lb-bsp-gpu"}})
    with launched(tmp_path, 4, job, stack.url, iterations=60, speeds=SPEEDS) as launch:
        assert launch.wait() == [0] * 4, launch.output()
    done = finish(stack, job)
    lengths = [line["s"] for line in launch.iterations(0)]
    shares = launch.iterations(0)[-1]["shares"]
    assert shares[0] > shares[2] > shares[3]
    assert sum(shares) == 128
    assert median(lengths[-15:]) < 0.75 * median(lengths[1:4]), lengths  # shares change at iteration 4 first
    assert done["iteration"] == 60
    assert set(reports(stack, job["id"])) == {(rank, k) for rank in range(4) for k in range(60)}
    assert len({line["sum"] for rank in range(4) for line in launch.lines(rank) if "done" in line}) == 1


def test_a_batch_that_may_fill_memory_grows_with_the_passes_and_no_sample_is_taken_twice(
    stack: Stack, tmp_path: Path
) -> None:
    fill = {"limit": 2.0, "learning_rate": "linear"}
    job = submitted(stack, 2, fill=fill, synchronization={"batching": {"name": "lb-bsp-linear"}})
    speeds = {"speeds": [1000.0, 500.0], "samples": 1280, "scales_lr": True}
    with launched(tmp_path, 2, job, stack.url, iterations=45, **speeds) as launch:
        assert launch.wait() == [0] * 2, launch.output()
    assert finish(stack, job)["iteration"] == 45
    lines = [launch.iterations(rank) for rank in range(2)]
    assert [line["lr"] for line in lines[0]] == [line["lr"] for line in lines[1]]
    assert {line["lr"] for line in lines[0][:20]} == {1.0}
    grown = [line for line in lines[0] if line["lr"] > 1.0]
    assert grown[-1]["lr"] == sum(grown[-1]["shares"]) / 64 <= 2.0
    passes: list[list[float]] = [[]]
    for pair in zip(*lines, strict=True):
        passes[-1] += [sample for line in pair for sample in line["samples"]]
        if len(passes[-1]) == 1280:
            passes.append([])
    assert all(sorted(each) == list(range(1280)) for each in passes[:2])
    sentences = [row["reason"] for row in stack.ask("GET", f"/api/v1/jobs/{job['id']}/decisions")["results"]]
    assert any("samples per iteration from iteration" in sentence for sentence in sentences), sentences


def test_a_job_that_is_stopped_ends_all_ranks_at_one_iteration(stack: Stack, tmp_path: Path) -> None:
    job = submitted(stack, 2)
    with launched(tmp_path, 2, job, stack.url, iterations=10_000, speeds=[1000.0, 1000.0]) as launch:
        launch.await_iteration(5)
        stack.stop(job["id"])
        assert launch.wait() == [STOPPED] * 2, launch.output()
    first, second = (launch.lines(rank)[-1] for rank in range(2))
    assert first == second
    assert first["stopped"] == f"the job was stopped before iteration {first['k']}"


def test_a_pause_blocks_the_script_and_a_resume_continues_it(stack: Stack, tmp_path: Path) -> None:
    job = submitted(stack, 2)
    with launched(tmp_path, 2, job, stack.url, iterations=10_000, speeds=[1000.0, 1000.0]) as launch:
        launch.await_iteration(3)
        stack.await_job(job["id"], "running")  # a script may be ahead of what is stored
        stack.ask("POST", f"/api/v1/jobs/{job['id']}/actions/pause")
        stack.await_job(job["id"], "paused")
        eventually(
            lambda: len(launch.iterations(0)) == len(launch.iterations(1)),
            what="the same last iteration at both ranks",
            seconds=60,
        )
        stood = len(launch.iterations(0))
        stack.ask("POST", f"/api/v1/jobs/{job['id']}/actions/resume")
        launch.await_iteration(stood + 5)
        stack.stop(job["id"])
        launch.wait()


@pytest.mark.parametrize("crashed", ["web", pytest.param("decisions", marks=pytest.mark.thorough)])
def test_a_control_plane_that_dies_and_returns_delays_nothing_and_loses_no_report(
    stack: Stack, tmp_path: Path, crashed: str
) -> None:
    """An outage of some seconds; ``bench attached --part outage`` has one of a minute."""
    job = submitted(stack, 2)
    with launched(tmp_path, 2, job, stack.url, iterations=10_000, speeds=[500.0, 500.0]) as launch:
        launch.await_iteration(10)
        stack.kill(crashed)
        launch.await_iteration(50)
        stack.restart(crashed)
        eventually(lambda: answers(stack), what="the control plane's return", seconds=60)
        stack.await_iteration(job["id"], 60)
        stack.stop(job["id"])
        assert launch.wait() == [STOPPED] * 2, launch.output()
    during = [line["s"] for line in launch.iterations(0)][12:50]
    assert max(during) < 10 * median(during), during
    done = stack.job(job["id"])
    last = launch.lines(0)[-1]["k"]
    assert done["iteration"] == last
    assert set(reports(stack, job["id"])) == {(rank, k) for rank in range(2) for k in range(last)}


def test_a_killed_rank_is_started_again_by_torchrun_and_no_sample_is_taken_twice(stack: Stack, tmp_path: Path) -> None:
    job = submitted(stack, 2, synchronization={"batching": {"name": "lb-bsp-gpu"}})
    options = {"samples": 1000, "iterations": 32, "saves": True, "faults": {"1": {"kind": "kill", "at": 9}}}
    with launched(tmp_path, 2, job, stack.url, torchrun=1, speeds=[1000.0, 400.0], **options) as launch:
        assert launch.wait() == [0], launch.output()
    done = finish(stack, job)
    assert done["iteration"] == 32
    for rank in range(2):
        assert {line["k"] for line in launch.iterations(rank)} == {*range(32)}
        assert len({line["life"] for line in launch.iterations(rank)}) == 2
    taken: Counter[float] = Counter()
    for rank in range(2):
        last = {line["k"]: line["samples"] for line in launch.iterations(rank)}
        taken.update(sample for samples in last.values() for sample in samples)
    assert taken == dict.fromkeys(map(float, range(1000)), 2)
    fast, slow = launch.iterations(0)[-1]["shares"]
    assert fast > slow


@pytest.mark.flaky(reruns=2)  # gloo may give up a connection to a rank that has just ended
def test_a_rank_that_hangs_ends_with_the_scripts_own_timeout_and_its_reports_are_kept(
    stack: Stack, tmp_path: Path
) -> None:
    job = submitted(stack, 2)
    faults = {"1": {"kind": "hang", "at": 8, "s": 60}}
    with launched(
        tmp_path, 2, job, stack.url, iterations=20, speeds=[1000.0, 1000.0], faults=faults, timeout_s=3
    ) as launch:
        assert launch.processes[0].wait(60) == 1
        assert re.search(r"time(d )?[ -]?out", launch.output(), re.IGNORECASE)
    done = finish(stack, job, exit_code=1)
    assert "1" in done["reason"]
    assert {(0, k) for k in range(7)} <= set(reports(stack, job["id"]))


def test_a_rank_that_runs_out_of_memory_is_given_half_and_never_more(stack: Stack, tmp_path: Path) -> None:
    job = submitted(stack, 2)
    faults = {"1": {"kind": "memory", "at": 4}}
    with launched(
        tmp_path, 2, job, stack.url, torchrun=1, iterations=20, saves=True, speeds=[1000.0, 1000.0], faults=faults
    ) as launch:
        assert launch.wait() == [0], launch.output()
    assert "rank 1 ran out of memory with 32 samples per iteration: its share is at most 16" in launch.output()
    assert launch.iterations(0)[-1]["shares"] == [48, 16]
    finish(stack, job)


ENDS = """
import paceline
pacer = paceline.attach()
for _ in pacer.loader(range(32), 4):
    pacer.step(1.0)
    if pacer.iteration == 3:
        {}
"""


@pytest.mark.parametrize(
    ("end", "status", "state"),
    [
        ("raise SystemExit", 0, "succeeded"),
        ("raise SystemExit(3)", 3, "failed"),
        pytest.param("raise ValueError", 1, "failed", marks=pytest.mark.thorough),
    ],
)
def test_the_exit_code_of_a_script_is_that_of_paceline_run_and_decides_how_its_job_ends(
    stack: Stack, end: str, status: int, state: str
) -> None:
    name = f"ends-by-{end.partition('(')[0]}-{status}".replace(" ", "-").replace(".", "-")
    run = [sys.executable, "-m", "paceline", "run", "--url", stack.url, "--name", name, "--"]
    done = subprocess.run(
        [*run, sys.executable, "-c", ENDS.format(end)],
        env=os.environ | {"PACELINE_API_TOKEN": stack.token, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120 * slowness(),
        check=False,
    )
    assert done.returncode == status, done.stderr
    (job,) = [each for each in stack.rows("/api/v1/jobs?page_size=100") if each["name"] == name]
    assert (job["state"], job["iteration"]) == (state, 3)


def test_with_a_wrong_token_the_script_trains_without_the_control_plane(stack: Stack, tmp_path: Path) -> None:
    job = submitted(stack, 2)
    with launched(tmp_path, 2, job | {"token": f"plj_{'x' * 43}"}, stack.url, iterations=12) as launch:
        assert launch.wait() == [0, 0], launch.output()
    assert launch.output().count("continues without the control plane") == 2
    assert len(launch.iterations(0)) == 12
    stack.stop(job["id"])


def test_where_nobody_answers_the_script_trains_on_equal_shares(tmp_path: Path) -> None:
    job = {"id": 1, "token": f"plj_{'x' * 43}"}
    url = f"http://127.0.0.1:{free_port()}"
    with launched(tmp_path, 2, job, url, iterations=12, speeds=[1000.0, 500.0]) as launch:
        assert launch.wait() == [0, 0], launch.output()
    assert [line["shares"] for line in launch.iterations(0)] == [[32, 32]] * 12
    assert launch.output().count("training continues with its shares") == 2


def test_two_runs_with_one_token_both_train_and_the_later_one_is_shown(stack: Stack, tmp_path: Path) -> None:
    job = submitted(stack, 2)
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    with (
        launched(folders[0], 2, job, stack.url, iterations=60, speeds=[500.0, 500.0]) as first,
        launched(folders[1], 2, job, stack.url, iterations=60, speeds=[500.0, 500.0]) as second,
    ):
        assert (first.wait(), second.wait()) == ([0, 0], [0, 0]), first.output() + second.output()
    finish(stack, job)
    messages = [
        row["event"].get("message") or {} for row in stack.rows(f"/api/v1/jobs/{job['id']}/events?page_size=500")
    ]
    for rank in range(2):
        shown = next(message["pid"] for message in messages if "pid" in message and message["rank"] == rank)
        runs = {run.processes[rank].pid: (run.folder / f"output-{rank}.txt").read_text() for run in (first, second)}
        refused = {pid for pid, text in runs.items() if "continues without the control plane" in text}
        assert refused == set(runs) - {shown}, runs
    assert {(rank, 59) for rank in range(2)} <= set(reports(stack, job["id"]))


@pytest.mark.parametrize(
    ("options", "sentence", "shares"),
    [
        ({"batch_size": [24, 32]}, "the ranks differ in batch_size: w0 24, w1 32", [24, 32]),
        ({"samples": [4096, 2048]}, "the ranks differ in sample_count: w0 4096, w1 2048", [32, 32]),
    ],
)
def test_ranks_that_differ_train_on_and_are_reported(
    stack: Stack, tmp_path: Path, options: dict[str, Any], sentence: str, shares: list[int]
) -> None:
    job = submitted(stack, 2)
    with launched(tmp_path, 2, job, stack.url, iterations=12, speeds=[1000.0, 500.0], **options) as launch:
        assert launch.wait() == [0, 0], launch.output()
    assert launch.iterations(0)[-1]["shares"] == shares
    assert sentence in launch.output()
    (flag,) = stack.rows(f"/api/v1/jobs/{job['id']}/flags")
    assert sentence in json.dumps(flag)
    assert "its ranks differed" in finish(stack, job)["reason"]
    assert set(reports(stack, job["id"])) == {(rank, k) for rank in range(2) for k in range(12)}
