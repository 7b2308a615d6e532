"""Jobs that a real Slurm starts, ends and starts again: attached ranks and Paceline's own agents."""

import json
import sys
from pathlib import Path

import pytest

from tests.support.native_jobs import NATIVE_JOBS, NativeJob, reports_of
from tests.support.slurm import Cluster, why_not
from tests.support.slurm_user import User
from tests.support.stack import Stack
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "Slurm is here"),
]

SCRIPT = [sys.executable, "-m", "tests.support.attached_script"]
NATIVE = """
name: digits
workload: {name: softmax-regression, dataset: digits}
workers: 2
servers: 1
batch_size: 16
stop: {iterations: ITERATIONS}
checkpoint: {every: 10}
seed: 7
"""


@pytest.fixture
def user(slurm_cluster: Cluster, stack: Stack, tmp_path: Path) -> User:
    return User(slurm_cluster, stack, tmp_path)


def test_ranks_that_srun_starts_are_governed_and_end_as_the_job(user: User, stack: Stack) -> None:
    sent = user.submit(
        "--nodes", "2", "--ntasks-per-node", "2", "--", *SCRIPT, iterations=25, speeds=[1000.0, 1000.0, 500.0, 250.0]
    )
    done = stack.await_job(sent.job, "succeeded", seconds=150)
    assert user.cluster.await_state(sent.slurm, "COMPLETED")["ExitCode"] == "0:0"
    assert (done["iteration"], done["workers"]) == (25, 4)
    first, *_, last = user.lines(0)[-2]["shares"]
    assert first > last
    processes = stack.ask("GET", f"/api/v1/jobs/{sent.job}/processes")["results"]
    assert {each["environment"]["launcher"] for each in processes} == {"slurm"}
    assert oct(sent.script.parent.stat().st_mode & 0o777) == "0o700"
    assert not sent.script.with_name("token").exists()  # it was of no use any more
    assert "plj_" not in sent.script.read_text()


def test_torchruns_of_two_nodes_meet_at_the_first(user: User, stack: Stack) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "-m", SCRIPT[-1]]
    sent = user.submit("--nodes", "2", "--", *torchrun, iterations=10)
    assert stack.await_job(sent.job, "succeeded", seconds=150)["iteration"] == 10
    assert {line["done"] for rank in range(2) for line in user.lines(rank) if "done" in line} == {10}


def test_a_cancelled_slurm_job_ends_the_job_with_that_reason(user: User, stack: Stack) -> None:
    sent = user.submit("--nodes", "2", "--", *SCRIPT, iterations=10_000, speeds=[500.0, 500.0])
    user.await_iteration(3)
    user.cluster.ask("scancel", str(sent.slurm))
    done = stack.await_job(sent.job, "cancelled", seconds=60)
    assert f"Slurm job {sent.slurm} was cancelled" in done["reason"]
    user.cluster.await_state(sent.slurm, "CANCELLED")


def test_a_job_that_is_cancelled_in_the_queue_on_either_side_ends_on_both(user: User, stack: Stack) -> None:
    """No script runs that could report it: a process that `submit` leaves behind notices."""
    here, there = (
        user.submit("--nodes", "2", "--sbatch=--begin=now+1hour", "--", *SCRIPT, watch=True, iterations=10)
        for _ in range(2)
    )
    user.cluster.await_state(here.slurm, "PENDING")
    user.cluster.ask("scancel", str(there.slurm))
    stack.stop(here.job)
    done = stack.await_job(there.job, "cancelled", seconds=150)
    assert f"Slurm job {there.slurm} was cancelled before it started" in done["reason"]
    user.cluster.await_state(here.slurm, "CANCELLED", seconds=150)
    tokens = [each.script.with_name("token") for each in (here, there)]
    eventually(lambda: not any(each.exists() for each in tokens), what="the end of the tokens", seconds=60)


def test_a_job_that_is_stopped_ends_its_ranks_and_the_slurm_job(user: User, stack: Stack) -> None:
    sent = user.submit("--nodes", "2", "--", *SCRIPT, iterations=10_000, speeds=[500.0, 500.0])
    user.await_iteration(3)
    assert "running" in user.run("status", str(sent.job)).stdout
    stack.stop(sent.job)
    user.cluster.await_state(sent.slurm, "COMPLETED", "FAILED")
    first, second = (user.lines(rank)[-1] for rank in range(2))
    assert first == second
    assert "the job was stopped before iteration" in first["stopped"]


def test_a_job_continues_after_its_time_limit_where_its_ranks_have_saved(user: User, stack: Stack) -> None:
    sent = user.submit(
        *("--nodes", "2", "--time", "10", "--requeue", "--", *SCRIPT), iterations=10_000, speeds=[400.0, 400.0]
    )
    user.await_iteration(5)
    # Less than two minutes are left: Slurm sends what --signal=B:USR1@120 asks for within half a minute.
    user.cluster.ask("scontrol", "update", f"job={sent.slurm}", "TimeLimit=2")
    user.cluster.await_state(sent.slurm, "PENDING")
    stopped = [line for line in user.lines(0) if "stopped" in line]
    assert [line["stopped"] for line in stopped] == [line["stopped"] for line in user.lines(1) if "stopped" in line]
    assert "will restart them" in stopped[0]["stopped"]
    assert not stack.job(sent.job)["is_over"]
    user.cluster.ask("scontrol", "update", f"job={sent.slurm}", "TimeLimit=10")
    user.cluster.start_again(sent.slurm)
    user.await_iteration(stopped[0]["k"] + 5)
    stack.stop(sent.job)
    user.cluster.await_state(sent.slurm, "COMPLETED", "FAILED")
    ran = [[line["k"] for line in user.lines(rank) if "shares" in line] for rank in range(2)]
    assert ran[0] == ran[1] == [*range(len(ran[0]))]  # none twice, none left out
    assert len({line["life"] for line in user.lines(0) if "life" in line}) == 2
    assert stack.job(sent.job)["generation"] > 1


def test_a_preempted_job_continues_after_the_urgent_one(user: User, stack: Stack) -> None:
    """In the grace time Slurm ends the ranks alone, and neither says why nor starts them again."""
    sent = user.submit("--nodes", "2", "--requeue", "--", *SCRIPT, iterations=40, speeds=[400.0, 400.0])
    user.await_iteration(3)
    urgent = user.cluster.ask(
        *("sbatch", "--parsable", "--output=/dev/null", "--partition=urgent", "--nodes=3", "--exclusive"),
        *("--wrap", "sleep 1"),
    )
    user.cluster.await_state(sent.slurm, "PENDING")
    user.cluster.await_state(int(urgent), "COMPLETED")
    assert not stack.job(sent.job)["is_over"]
    user.cluster.start_again(sent.slurm)
    assert stack.await_job(sent.job, "succeeded", seconds=150)["iteration"] == 40
    assert user.cluster.await_state(sent.slurm, "COMPLETED")["Restarts"] == "1"
    assert f"Slurm job {sent.slurm} was preempted" in sent.said


@pytest.mark.parametrize("native", NATIVE_JOBS.values(), ids=NATIVE_JOBS)
def test_agents_that_srun_starts_run_a_native_job_and_leave(native: NativeJob, user: User, stack: Stack) -> None:
    spec = user.folder / "job.yaml"
    spec.write_text(json.dumps(native.spec))
    sent = user.submit(str(spec), "--nodes", "2")
    stack.await_job(sent.job, "succeeded", seconds=150)
    user.cluster.await_state(sent.slurm, "COMPLETED", seconds=60)
    native.check(reports_of(stack, sent.job))
    processes = stack.ask("GET", f"/api/v1/jobs/{sent.job}/processes")["results"]
    assert {each["agent"] for each in processes} == {f"slurm-job{sent.job}-{rank}" for rank in range(2)}
    assert not agents(stack, sent.job, "online")


def test_a_native_job_continues_after_a_requeue_on_the_same_agents(user: User, stack: Stack) -> None:
    spec = user.folder / "job.yaml"
    spec.write_text(NATIVE.replace("ITERATIONS", "4000"))
    sent = user.submit(str(spec), "--nodes", "2", "--requeue")
    stack.await_iteration(sent.job, 30, seconds=150)
    before = agents(stack, sent.job, "online")
    user.cluster.ask("scancel", "--batch", "--signal=USR1", str(sent.slurm))
    user.cluster.await_state(sent.slurm, "PENDING", seconds=60)
    eventually(lambda: not agents(stack, sent.job, "online"), what="the agents' leaving", every=0.2)
    reached = stack.job(sent.job)["iteration"]
    user.cluster.start_again(sent.slurm)
    stack.await_iteration(sent.job, reached + 30, seconds=150)
    assert agents(stack, sent.job, "online") == before
    user.cluster.ask("scancel", str(sent.slurm))
    done = stack.await_job(sent.job, "cancelled", seconds=60)
    assert f"Slurm job {sent.slurm} was cancelled" in done["reason"]
    user.cluster.await_state(sent.slurm, "CANCELLED", seconds=60)


def test_a_drained_node_takes_nothing_new_and_the_status_reports_why(user: User, stack: Stack) -> None:
    sent = user.submit("--nodes", "2", "--", *SCRIPT, iterations=10_000, speeds=[500.0, 500.0])
    user.await_iteration(3)
    nodes = user.cluster.job(sent.slurm)["NodeList"]
    user.cluster.ask("scontrol", "update", f"node={nodes}", "state=drain", "reason=maintenance")
    try:
        reached = stack.job(sent.job)["iteration"]
        stack.await_iteration(sent.job, reached + 3)  # what runs there continues
        waiting = user.submit("--nodes", "2", "--", *SCRIPT, iterations=10)
        told = eventually(lambda: "DRAINED" in user.run("status").stdout, what="Slurm's reason", every=0.5)
        assert told
        done = user.run("cancel", str(waiting.job))
        assert done.returncode == 0, done.stderr
        stack.await_job(waiting.job, "cancelled")
        user.cluster.await_state(waiting.slurm, "CANCELLED")
        stack.stop(sent.job)
        user.cluster.await_state(sent.slurm, "COMPLETED", "FAILED")
    finally:
        user.cluster.resume(nodes)


def test_a_lost_node_leads_to_a_requeue_in_which_the_same_job_continues(user: User, stack: Stack) -> None:
    sent = user.submit(
        *("--nodes", "2", "--requeue", "--", *SCRIPT), iterations=10_000, speeds=[500.0, 500.0], saves=True
    )
    user.await_iteration(5)
    node = user.cluster.ask("scontrol", "show", "hostnames", user.cluster.job(sent.slurm)["NodeList"]).split()[-1]
    user.cluster.ask("scontrol", "update", f"node={node}", "state=down", "reason=lost")
    try:
        user.cluster.await_state(sent.slurm, "PENDING")
        reached = user.reached(0)
        user.cluster.start_again(sent.slurm)
        user.await_iteration(reached + 5)
        assert user.cluster.job(sent.slurm)["Restarts"] == "1"
        assert stack.job(sent.job)["generation"] > 1
        ran = [line["k"] for line in user.lines(0) if "k" in line]
        assert ran[: reached + 1] == [*range(reached + 1)]
        stack.stop(sent.job)
        user.cluster.await_state(sent.slurm, "COMPLETED", "FAILED")
    finally:
        user.cluster.resume(node)


def test_a_cancelled_step_of_ranks_ends_the_job_and_is_not_started_again(user: User, stack: Stack) -> None:
    sent = user.submit("--nodes", "2", "--requeue", "--", *SCRIPT, iterations=10_000, speeds=[500.0, 500.0])
    user.await_iteration(3)
    user.cluster.ask("scancel", f"{sent.slurm}.0")
    done = stack.await_job(sent.job, "failed")
    assert f"the ranks of Slurm job {sent.slurm} ended with 137, ended by SIGKILL" in done["reason"]
    assert user.cluster.await_state(sent.slurm, "FAILED")["Restarts"] == "0"


def test_a_cancelled_step_of_agents_ends_the_job_and_is_not_started_again(user: User, stack: Stack) -> None:
    spec = user.folder / "job.yaml"
    spec.write_text(NATIVE.replace("ITERATIONS", "100000"))
    sent = user.submit(str(spec), "--nodes", "2", "--requeue")
    stack.await_iteration(sent.job, 10, seconds=150)
    user.cluster.ask("scancel", f"{sent.slurm}.0")
    done = stack.await_job(sent.job, "cancelled")
    assert f"the agents of Slurm job {sent.slurm} ended with 137, ended by SIGKILL" in done["reason"]
    assert user.cluster.await_state(sent.slurm, "FAILED")["Restarts"] == "0"


def test_a_cancelled_step_counts_as_killed_also_where_srun_does_not_wait_for_its_end(user: User, stack: Stack) -> None:
    """Slurm's daemons of the step stand still until srun has given up, and exited with 0."""
    sent = user.submit("--nodes", "2", "--", "sleep", "300")
    daemons = eventually(
        lambda: len(found := user.cluster.daemons_of_step(sent.slurm)) == 2 and found, what="the step", every=0.2
    )
    for daemon in daemons:
        daemon.suspend()
    try:
        user.cluster.ask("scancel", f"{sent.slurm}.0")
        eventually(lambda: "Timed out waiting for job step" in sent.said, what="srun's end", every=0.2)
    finally:
        for daemon in daemons:
            daemon.resume()
    done = stack.await_job(sent.job, "failed")
    assert f"the ranks of Slurm job {sent.slurm} ended with 137, ended by SIGKILL" in done["reason"]


def test_refusals_name_what_was_found_and_leave_nothing_behind(user: User, stack: Stack) -> None:
    before = stack.ask("GET", "/api/v1/jobs")["count"]
    done = user.run("submit", "--partition", "nope", "--", "true")
    assert (done.returncode, done.stderr) == (
        2,
        "--partition: found 'nope', expected one of all, urgent\n",
    )
    done = user.run("submit", "--", "true", PATH=str(user.folder))
    assert (done.returncode, done.stderr.partition(";")[0]) == (
        2,
        "sinfo: found no such command on the PATH, expected Slurm's",
    )
    assert stack.ask("GET", "/api/v1/jobs")["count"] == before
    done = user.run("submit", "--sbatch=--nodelist=nowhere", "--", "true")
    assert done.returncode == 2
    assert done.stderr.startswith("sbatch refused: ")
    assert "Invalid node name specified" in done.stderr
    left = stack.await_job(stack.ask("GET", "/api/v1/jobs")["results"][0]["id"], "cancelled")
    assert "it was not submitted to Slurm" in left["reason"]


def agents(stack: Stack, job: int, state: str) -> dict[str, int]:
    """Those of the submission, by name."""
    rows = stack.ask("GET", "/api/v1/agents?page_size=100")["results"]
    return {
        row["name"]: row["id"] for row in rows if row["name"].startswith(f"slurm-job{job}-") and row["state"] == state
    }
