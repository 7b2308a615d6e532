"""``paceline slurm follow``: what it reports when either side ends a job, as Slurm's commands say."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from controlplane.jobs.models import Job
from paceline import Client
from tests.cli.conftest import Command
from tests.cli.slurm_commands import RUNS, calls, program

PREEMPTED = "PreemptTime=2026-11-27T10:05:00"


@pytest.fixture
def followed(
    paceline: Command, operator: str, slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Job, list[tuple[str, Any]]]:
    """A submitted job, what was asked for it, and the environment of a script of its."""
    paceline("slurm", "submit", "--", "python", "train.py")
    job = Job.objects.get()
    asked: list[tuple[str, Any]] = []
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("PACELINE_JOB", str(job.pk))

    def finish(self: Client, number: int, *, exit_code: int, reason: str = "") -> None:
        asked.append(("finish", (exit_code, reason)))

    def stop(self: Client, number: int, *, reason: str = "") -> None:
        asked.append(("stop", reason))

    monkeypatch.setattr(Client, "finish", finish)
    monkeypatch.setattr(Client, "stop", stop)
    return job, asked


Followed = tuple[Job, list[tuple[str, Any]]]
FOLLOW = ("slurm", "follow", "--token-file", "paceline-slurm/job-{}/token")


def follow(paceline: Command, job: Job, *options: str, script: str) -> int:
    known = [word.format(job.pk) for word in FOLLOW]
    return paceline(*known, *options, "--", sys.executable, "-c", script)[0]


STEPS_ENDED = "raise SystemExit(143)"
ENDED = "import os, signal, time; os.kill(os.getppid(), signal.SIGTERM); time.sleep(30)"


@pytest.mark.parametrize(
    ("facts", "requeue", "expected"),
    [
        (
            "JobState=COMPLETING Reason=None Restarts=0",
            False,
            [("stop", "Slurm job 77 was cancelled"), ("finish", (143, "Slurm job 77 was cancelled"))],
        ),
        (
            "JobState=COMPLETING Reason=TimeLimit TimeLimit=00:10:00 Restarts=0",
            False,
            [("finish", (143, "Slurm job 77 reached its time limit of 00:10:00"))],
        ),
        ("JobState=COMPLETING Reason=None Restarts=1", True, []),
        (
            f"{RUNS.replace('RUNNING', 'COMPLETING').replace('=None', '=NodeDown', 1)}",
            False,
            [("finish", (143, "Slurm job 77 lost a node"))],
        ),
        (
            f"JobState=COMPLETING {RUNS.partition(' ')[2].replace('PreemptTime=None', PREEMPTED)}",
            False,
            [("finish", (143, "Slurm job 77 was preempted"))],
        ),
        (
            RUNS,
            False,
            [("stop", "Slurm job 77 was ended by SIGTERM"), ("finish", (143, "Slurm job 77 was ended by SIGTERM"))],
        ),
    ],
    ids=["cancelled", "time limit", "requeued", "lost node", "preempted", "signalled by hand"],
)
def test_what_ended_the_slurm_job_ends_the_job_with_that_reason(
    paceline: Command, followed: Followed, slurm: Path, facts: str, requeue: bool, expected: list[tuple[str, Any]]
) -> None:
    job, asked = followed
    program(slurm, "scontrol", f"echo '{facts}'")
    assert follow(paceline, job, *(["--requeue"] if requeue else []), script=ENDED) == 143
    assert asked == expected


def test_behind_its_time_limit_a_job_is_requeued(
    paceline: Command, followed: Followed, slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.cli.slurm.follow.STOP_S", 0.1)
    job, asked = followed
    program(slurm, "scontrol", "echo 'Reason=TimeLimit TimeLimit=00:10:00 Restarts=0'")
    assert follow(paceline, job, "--requeue", script=ENDED) == 143
    assert (asked, calls(slurm)[-1]) == ([], "scontrol requeue 77")


@pytest.mark.parametrize("facts", [RUNS.replace("PreemptTime=None", PREEMPTED), "Reason=TimeLimit TimeLimit=00:10:00"])
def test_a_job_whose_steps_are_ended_before_its_script_is_requeued(
    paceline: Command, followed: Followed, slurm: Path, monkeypatch: pytest.MonkeyPatch, facts: str
) -> None:
    """As Slurm does in the grace time of a preemption."""
    monkeypatch.setattr("paceline.cli.slurm.follow.STOP_S", 0.1)
    job, asked = followed
    program(slurm, "scontrol", f"echo '{facts}'")
    assert follow(paceline, job, "--requeue", script=STEPS_ENDED) == 143
    assert (asked, calls(slurm)[-1]) == ([], "scontrol requeue 77")


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (RUNS.replace("PreemptTime=None", PREEMPTED), "Slurm job 77 was preempted"),
        (RUNS.replace("RUNNING", "COMPLETING"), "Slurm job 77 was cancelled"),
        (RUNS, "the ranks of Slurm job 77 ended with 143, ended by SIGTERM"),
        (
            RUNS.replace("PreemptTime=None", "PreemptTime=2026-11-27T09:59:00"),
            "the ranks of Slurm job 77 ended with 143, ended by SIGTERM",
        ),
    ],
    ids=["preempted", "cancelled", "a step alone", "preempted in an earlier start"],
)
def test_what_ended_the_steps_before_the_script_is_the_reason(
    paceline: Command, followed: Followed, slurm: Path, facts: str, reason: str
) -> None:
    job, asked = followed
    program(slurm, "scontrol", f"echo '{facts}'")
    assert follow(paceline, job, script=STEPS_ENDED) == 143
    stopped = [("stop", reason)] if "cancelled" in reason else []
    assert asked == [*stopped, ("finish", (143, reason))]


def test_steps_that_end_as_their_job_is_requeued_leave_it_to_slurm(
    paceline: Command, followed: Followed, slurm: Path
) -> None:
    job, asked = followed
    program(slurm, "scontrol", "echo 'JobState=COMPLETING Restarts=1'")
    assert follow(paceline, job, "--requeue", script=STEPS_ENDED) == 143
    assert asked == []
    assert Path(f"paceline-slurm/job-{job.pk}/token").exists()


def test_ranks_that_leave_at_the_notice_are_requeued(
    paceline: Command, followed: Followed, slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.cli.slurm.follow.STOP_S", 0.1)
    job, asked = followed
    noticed = "import os, signal, time; os.kill(os.getppid(), signal.SIGUSR1); time.sleep(1)"
    assert follow(paceline, job, "--requeue", script=noticed) == 0
    assert (asked, calls(slurm)[-1]) == ([], "scontrol requeue 77")
    assert "scancel --signal=USR1 77" in calls(slurm)


def test_a_command_that_ends_by_itself_ends_the_job_and_its_tokens_file(
    paceline: Command, followed: Followed, slurm: Path
) -> None:
    job, asked = followed
    output = Path(f"paceline-slurm/job-{job.pk}/output-77.txt")
    output.touch()
    told = "import os, sys; sys.exit(5 if os.environ['PACELINE_LAUNCHER'] == 'slurm' else 6)"
    assert follow(paceline, job, script=told) == 5
    assert asked == [("finish", (5, f"the ranks of Slurm job 77 ended with 5; {output} has what they printed"))]
    assert not Path(f"paceline-slurm/job-{job.pk}/token").exists()


@pytest.mark.parametrize(("options", "has_token"), [((), True), (("--agents",), False)], ids=["ranks", "agents"])
def test_what_slurm_starts_gets_the_jobs_token_at_most_and_never_the_submitters(
    paceline: Command, followed: Followed, slurm: Path, tmp_path: Path, options: tuple[str, ...], has_token: bool
) -> None:
    job, _ = followed
    token = Path(f"paceline-slurm/job-{job.pk}/token").read_text().strip()
    seen = tmp_path / "seen"
    known = f"import json, os; open({str(seen)!r}, 'w').write(json.dumps(dict(os.environ)))"
    assert follow(paceline, job, *options, script=known) == 0
    environment = json.loads(seen.read_text())
    assert "PACELINE_API_TOKEN" not in environment
    assert environment.get("PACELINE_TOKEN") == (token if has_token else None)


KILLED = (137, "the ranks of Slurm job 77 ended with 137, ended by SIGKILL")
GAVE_UP = (1, "the ranks of Slurm job 77 ended with 1")


@pytest.mark.parametrize(
    ("before", "after", "remains", "expected"),
    [
        ("0:0", "0:9", False, KILLED),
        ("0:0", "0:0", True, GAVE_UP),
        ("0:0", "0:0", False, (0, "")),
        ("0:9", "0:9", False, (0, "")),
    ],
    ids=["killed later", "never ends", "ends by itself", "an earlier step was killed"],
)
def test_a_step_whose_srun_did_not_wait_for_its_end_counts_as_slurm_says_later(
    paceline: Command,
    followed: Followed,
    slurm: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    after: str,
    remains: bool,
    expected: tuple[int, str],
) -> None:
    """Then srun exits with 0, as for a step that has succeeded."""
    monkeypatch.setattr("paceline.cli.slurm.follow.LOOK_S", 0.05)
    monkeypatch.setattr("paceline.cli.slurm.follow.STEP_S", 0.1 if remains else 60.0)
    job, asked = followed
    over = slurm / "over"
    lasts = "" if remains else f'touch "{over}"; '
    program(slurm, "squeue", f'test -e "{over}" || {{ {lasts}echo 77.0; }}; echo 77.batch')
    known = f'test -e "{over}" && code={after} || code={before}'
    program(slurm, "scontrol", f'{known}; echo "{RUNS} DerivedExitCode=$code"')
    assert follow(paceline, job, script="pass") == expected[0]
    assert asked == [("finish", expected)]


def test_nothing_is_started_for_a_job_that_is_over(paceline: Command, followed: Followed, slurm: Path) -> None:
    job, asked = followed
    Job.objects.filter(pk=job.pk).update(state="cancelled")
    assert follow(paceline, job, script="raise SystemExit(9)") == 0
    assert asked == []


def test_outside_of_a_script_nothing_is_followed(paceline: Command, operator: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("plj_x")
    code, _, err = paceline("slurm", "follow", "--token-file", str(tmp_path / "token"), "--", "true")
    assert (code, err.startswith("SLURM_JOB_ID: found '', expected the number of a job")) == (2, True)
