"""``paceline run``: a job around a command."""

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest

from controlplane.jobs.models import Job
from controlplane.protocol.autopilot import Autopilot
from controlplane.protocol.filling import Fill
from controlplane.protocol.guard import Guard
from controlplane.protocol.spec import parse_spec
from paceline import Client, PacelineError, Refused, Unreachable
from paceline.cli import run
from paceline.errors import Problem
from tests.cli.conftest import Command

TELL = "import json, os, sys; print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('PACELINE_')}))"


@pytest.fixture
def finished(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """How jobs were ended; that of the row is as the engine would make it."""
    noted: list[tuple[int, str]] = []

    def finish(self: Client, number: int, *, exit_code: int, reason: str = "") -> None:
        noted.append((exit_code, reason))
        Job.objects.filter(pk=number).update(state="failed" if exit_code else "succeeded")

    monkeypatch.setattr(Client, "finish", finish)
    return noted


def test_a_command_runs_with_the_jobs_address_number_and_token(
    paceline: Command, operator: str, finished: list[tuple[int, str]]
) -> None:
    options = ["--name", "digits", "--batching", "lb-bsp-cpu,predictor=ema", "--multiple", "8", "--most", "48"]
    options += ["--fill", "2.5", "--learning-rate", "linear", "--guard", "suggest", "--policy", "suggest"]
    code, out, err = paceline("run", *options, "--workers", "3", "--label", "gpu=t4", "--", sys.executable, "-c", TELL)
    job = Job.objects.get()
    told = json.loads(out)
    assert code == 0
    assert (told["PACELINE_URL"], told["PACELINE_JOB"], told["PACELINE_LAUNCHER"]) == (operator, str(job.pk), "python")
    assert told["PACELINE_TOKEN"].startswith("plj_")
    spec = parse_spec(job.spec)
    assert (spec.name, spec.launch, spec.workers, spec.batch_size, spec.sample_multiple) == (
        "digits",
        "attached",
        3,
        32,
        8,
    )
    assert spec.synchronization.batching.flat == {"name": "lb-bsp-cpu", "predictor": "ema"}
    assert (spec.limits.maximum, spec.labels) == (48, {"gpu": "t4"})
    assert spec.fill == Fill(limit=2.5, learning_rate="linear")
    assert spec.guard == Guard(mode="suggest")
    assert spec.autopilot == Autopilot(mode="suggest")
    assert finished == [(0, "")]
    assert err.splitlines() == [
        f"paceline: job {job.pk} (digits): {operator}/jobs/{job.pk}/",
        f"paceline: No iteration was reported by all ranks; see {operator}/jobs/{job.pk}/ for the reports received.",
    ]


@pytest.mark.parametrize(("options", "batching"), [([], "lb-bsp-linear"), (["--policy", "auto"], "uniform")])
def test_a_job_with_an_autopilot_begins_with_equal_shares(options: list[str], batching: str) -> None:
    parser = ArgumentParser()
    run.add_command(parser.add_subparsers())
    parsed = parser.parse_args(["run", *options])
    document = run.spec(parsed, ["python", "train.py"])
    assert document["synchronization"]["batching"] == {"name": batching}
    assert document.get("policy") == (options[-1] if options else None)


def test_the_lease_is_renewed_while_the_command_runs(
    paceline: Command, operator: str, finished: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    renewed: list[int] = []

    def renew(self: Client, number: int) -> None:
        renewed.append(number)
        if len(renewed) == 2:
            raise Unreachable("nobody answers")
        if len(renewed) == 3:
            (tmp_path / "renewed").touch()

    monkeypatch.setattr("paceline.cli.lease.RENEWALS", 1000)
    monkeypatch.setattr(Client, "renew_lease", renew)
    awaits = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)"
    code, _, _ = paceline("run", "--lease", "10", "--", sys.executable, "-c", awaits, str(tmp_path / "renewed"))
    job = Job.objects.get()
    assert (code, parse_spec(job.spec).lease_s) == (0, 10.0)
    assert len(renewed) >= 3
    assert {*renewed} == {job.pk}


@pytest.mark.parametrize(("own", "expected"), [(None, "1"), ("0", "0")])
def test_each_restart_by_torchrun_gets_a_store_of_its_own_unless_the_user_sets_one(
    paceline: Command,
    operator: str,
    finished: list[tuple[int, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own: str | None,
    expected: str,
) -> None:
    torchrun = tmp_path / "torchrun"
    torchrun.write_text('#!/bin/sh\nprintf %s "$TORCH_DISABLE_SHARE_RDZV_TCP_STORE"\n')
    torchrun.chmod(0o755)
    monkeypatch.delenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", raising=False)
    if own is not None:
        monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", own)
    assert paceline("run", "--", str(torchrun))[:2] == (0, expected)


def test_the_exit_code_is_the_commands_and_ends_the_job(
    paceline: Command, operator: str, finished: list[tuple[int, str]]
) -> None:
    code, _, _ = paceline("run", "--", sys.executable, "-c", "raise SystemExit(5)")
    assert code == 5
    ((told, reason),) = finished
    assert told == 5
    assert reason.endswith("'raise SystemExit(5)' ended with 5")


def test_a_command_that_cannot_be_started_submits_no_job(
    paceline: Command, operator: str, finished: list[tuple[int, str]], tmp_path: Path
) -> None:
    (tmp_path / "plain").write_text("")
    for command, code, sentence in (
        ("/nowhere", 127, "/nowhere: there is no such command"),
        ("nothing-called-so", 127, "nothing-called-so: there is no such command"),
        (str(tmp_path / "plain"), 126, f"{tmp_path}/plain: cannot be run (Permission denied)"),
    ):
        found, _, err = paceline("run", "--", command)
        assert (found, sentence in err) == (code, True)
    assert (finished, Job.objects.count()) == ([], 0)


def test_a_command_that_cannot_be_run_after_all_ends_the_job(
    paceline: Command, operator: str, finished: list[tuple[int, str]], tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/nowhere/interpreter\n")
    broken.chmod(0o755)
    assert paceline("run", "--", str(broken))[0] == 127
    assert finished == [(127, f"{broken}: there is no such command")]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Unreachable("nobody answers"), ["its end could not be reported (nobody answers)"]),
        (Refused(Problem(status=409, detail="it is over")), []),
    ],
)
def test_a_job_whose_end_cannot_be_reported_prints_why_unless_it_is_over(
    paceline: Command, operator: str, monkeypatch: pytest.MonkeyPatch, error: PacelineError, words: list[str]
) -> None:
    def finish(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("paceline.cli.run.HISTORY_S", 0.0)
    monkeypatch.setattr(Client, "finish", finish)
    code, _, err = paceline("run", "--", sys.executable, "-c", "")
    assert code == 0
    assert [word for word in words if word in err] == words
    assert ("could not be reported" in err) is bool(words)


def test_without_a_control_plane_the_command_runs_only_with_anyway(
    paceline: Command, operator: str, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    command = ["--", sys.executable, "-c", f"open({str(mark)!r}, 'w')"]
    code, _, err = paceline("run", "--url", "http://127.0.0.1:1", *command)
    assert (code, mark.exists()) == (3, False)
    code, _, err = paceline("run", "--anyway", "--url", "http://127.0.0.1:1", *command)
    assert (code, mark.exists()) == (0, True)
    assert err.endswith("The command runs anyway, with equal shares.\n")


def test_a_refused_job_is_one_line_per_field(paceline: Command, operator: str) -> None:
    code, _, err = paceline("run", "--batching", "deadline", "--", "true")
    assert code == 2
    assert err.startswith("synchronization.batching.name: found 'deadline', expected a policy that sets shares")
    code, _, err = paceline("run", "--fill", "4", "--", "true")
    assert (code, err.startswith("fill.learning_rate: found None, expected a value")) == (2, True)
    code, _, err = paceline("run", "--guard", "revert", "--", "true")
    assert (code, err.startswith("guard: found 'revert', expected none with launch attached, unless")) == (2, True)
    assert paceline("run")[0] == 2
    assert "expected key=value" in paceline("run", "--label", "x", "--", "true")[2]
