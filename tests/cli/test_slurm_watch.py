"""A job that ends in Slurm's queue ends here, and one that ends here leaves the queue, though no script runs."""

from pathlib import Path
from typing import Any

import pytest

from controlplane.jobs.models import Job
from paceline.cli.slurm import watch
from paceline.client.sync import Client
from tests.cli.conftest import Command
from tests.cli.slurm_commands import RUNS, calls, program

pytestmark = [pytest.mark.django_db(transaction=True)]

CANCELLED = "JobState=CANCELLED Reason=None RunTime=00:00:00 StartTime=None EndTime=2026-11-27T10:00:00"
LOST = "JobState=NODE_FAIL Reason=NodeDown RunTime=00:10:00 StartTime=2026-11-27T10:00:00"
FORGOTTEN = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"


class Watched:
    """A job that waits in both queues, and looks at it."""

    def __init__(self, slurm: Path, url: str) -> None:
        self.slurm, self.url, self.row = slurm, url, Job.objects.get()
        self.folder = Path("paceline-slurm").absolute()
        self.missing: set[int] = set()
        self.stopped: list[str] = []

    def queue(self, state: str = "", number: int = 77) -> None:
        line = f"{number}|{state}|1|None|paceline-{self.row.pk}|{self.url}/jobs/{self.row.pk}/"
        program(self.slurm, "squeue", f"echo '{line}'" if state else ":")

    def look(self) -> list[str]:
        """Why the job was stopped so far."""
        with Client(self.url) as client:
            self.missing = watch.look(client, self.folder, self.missing)
        return self.stopped

    @property
    def left(self) -> int:
        return len(watch.records(self.folder, self.url))

    @property
    def has_token(self) -> bool:
        return (self.folder / f"job-{self.row.pk}" / "token").exists()


@pytest.fixture
def watched(paceline: Command, operator: str, slurm: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    assert paceline("slurm", "submit", "--", "python", "train.py")[0] == 0
    found = Watched(slurm, operator)
    monkeypatch.setattr(Client, "stop", lambda self, number, *, reason="": found.stopped.append(reason))
    return found


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_a_job_in_the_queue_stays_as_it_is(watched: Watched, state: str) -> None:
    watched.queue(state)
    assert [watched.look() for _ in range(3)] == [[]] * 3
    assert (watched.left, watched.has_token) == (1, True)


def test_one_that_was_cancelled_in_the_queue_ends_at_the_next_look(watched: Watched) -> None:
    watched.queue()
    program(watched.slurm, "scontrol", f"echo '{CANCELLED}'")
    assert watched.look() == ["Slurm job 77 was cancelled before it started"]
    assert (watched.left, watched.has_token) == (0, False)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (f"echo '{LOST}'", "Slurm job 77 ended (NODE_FAIL), and its script did not report it"),
        (FORGOTTEN, "Slurm job 77 has left the queue, and its script did not report how it ended"),
    ],
)
def test_a_script_has_the_time_of_one_look_to_report_the_end(watched: Watched, answer: str, reason: str) -> None:
    watched.queue()
    program(watched.slurm, "scontrol", answer)
    assert watched.look() == []
    assert watched.look() == [reason]


def test_a_job_that_returns_to_the_queue_between_two_looks_goes_on(watched: Watched) -> None:
    watched.queue()
    program(watched.slurm, "scontrol", f"echo '{RUNS}'")
    watched.look()
    watched.queue("PENDING")
    watched.look()
    watched.queue()
    assert (watched.look(), watched.missing) == ([], {77})


def test_a_script_that_was_submitted_again_counts(watched: Watched) -> None:
    watched.queue("PENDING", number=78)
    program(watched.slurm, "scontrol", f"echo '{CANCELLED}'")
    assert [watched.look() for _ in range(3)] == [[]] * 3


def test_one_that_was_stopped_here_leaves_slurms_queue(watched: Watched) -> None:
    watched.queue("PENDING")
    Job.objects.update(state="cancelled")
    watched.look()
    assert "scancel --state=PENDING 77" in calls(watched.slurm)
    assert (watched.left, watched.has_token) == (0, False)


def test_the_command_ends_with_the_last_job(watched: Watched, paceline: Command) -> None:
    watched.queue()
    program(watched.slurm, "scontrol", f"echo '{CANCELLED}'")
    code, _, err = paceline("slurm", "watch", "--every", "1")
    assert (code, "was cancelled before it started" in err) == (0, True)
    assert paceline("slurm", "watch") == (0, "", "")


def test_a_second_watcher_leaves_it_to_the_first(watched: Watched, paceline: Command) -> None:
    with watch._alone(watched.folder, watched.url) as alone:
        assert alone
        code, _, err = paceline("slurm", "watch")
    assert (code, "another process watches" in err) == (0, True)
    assert watched.left == 1


def test_jobs_of_another_control_plane_are_left_alone(watched: Watched, paceline: Command) -> None:
    [file] = watched.folder.glob("job-*/slurm-job")
    file.write_text("77 https://elsewhere\n")
    assert paceline("slurm", "watch") == (0, "", "")


def test_submit_starts_it_unless_told_not_to(
    paceline: Command, operator: str, slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(watch, "start", lambda *given: started.append(given))
    paceline("slurm", "submit", "--", "python", "train.py")
    paceline("slurm", "submit", "--no-watch", "--", "python", "train.py")
    assert started == [(Path("paceline-slurm").absolute(), operator, None)]


def test_it_runs_in_a_session_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it outlives the terminal."""
    started: list[tuple[list[str], dict[str, Any]]] = []
    monkeypatch.setattr("subprocess.Popen", lambda command, **options: started.append((command, options)))
    watch.start(tmp_path, "https://here", Path("token"))
    [(command, options)] = started
    assert command[1:5] == ["-m", "paceline", "slurm", "watch"]
    assert command[5:] == [
        "--folder",
        str(tmp_path),
        "--url",
        "https://here",
        "--token-file",
        str(Path("token").absolute()),
    ]
    assert options["start_new_session"]
