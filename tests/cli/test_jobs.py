"""``paceline submit``, ``jobs``, ``job``, ``stop``: jobs of a control plane from a command line."""

import json
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from controlplane.jobs.models import Job
from controlplane.people.teams import member_set, team_create
from tests.cli.conftest import Command
from tests.support.rows import SPEC


@pytest.fixture
def spec(tmp_path: Path) -> str:
    (tmp_path / "spec.json").write_text(json.dumps(SPEC))
    return str(tmp_path / "spec.json")


def test_a_job_is_submitted_listed_shown_and_stopped(paceline: Command, operator: str, spec: str) -> None:
    assert paceline("jobs") == (0, "job  name  state\n", "")
    code, out, _ = paceline("submit", spec)
    number = Job.objects.get().pk
    assert (code, out) == (0, f"job {number} (digits) is submitted: {operator}/jobs/{number}/\n")
    code, out, _ = paceline("jobs", "--state", "submitted")
    assert out.splitlines()[1].startswith(f"{number}")
    assert "digits  submitted  " in out
    code, out, _ = paceline("job", str(number))
    assert out.splitlines()[1:] == [
        "  2 x 64 samples, batching lb-bsp-cpu, barrier bsp, placement round-robin, data shared",
        f"  {operator}/jobs/{number}/",
    ]
    assert paceline("stop", str(number))[:2] == (0, f"job {number} (digits): stop requested; its state is submitted\n")
    assert json.loads(paceline("job", str(number), "--json")[1])["name"] == "digits"


def test_a_job_is_submitted_for_a_team_and_listed_by_it(paceline: Command, operator: str, spec: str) -> None:
    vision = team_create(name="vision", actor="root")
    code, _, told = paceline("submit", spec, "--team", "vision")
    name = User.objects.get().username
    assert (code, told.startswith(f"user '{name}' is in no team 'vision' (teams: none): ")) == (2, True)
    assert told.endswith(f"python manage.py teams member vision {name} --role operator\n")
    member_set(team=vision, user=User.objects.get(), role="operator", actor="root")
    assert paceline("submit", spec, "--team", "vision")[0] == 0
    assert Job.objects.get().team == vision
    rows = [paceline("jobs", "--team", name)[1].splitlines()[1:] for name in ("vision", "speech")]
    assert [len(each) for each in rows] == [1, 0]


def test_watching_ends_with_the_job(
    paceline: Command, operator: str, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.client.sync.time.sleep", lambda _: Job.objects.update(state="failed", reason="why"))
    code, out, _ = paceline("submit", spec, "--watch")
    assert code == 1
    assert out.splitlines()[-1] == f"job {Job.objects.get().pk} failed: why"


def test_what_is_refused_is_exit_code_2_with_field_and_cure(paceline: Command, operator: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(json.dumps(SPEC | {"workers": 0}))
    assert paceline("submit", str(tmp_path / "bad.json")) == (2, "", "workers: found 0, expected `int` >= 1\n")
    code, _, err = paceline("submit", "/nowhere.yaml")
    assert (code, err.partition(" (")[0]) == (2, "/nowhere.yaml: cannot be read")
    assert paceline("pause", "99")[0] == 2


def test_no_one_there_is_exit_code_3_with_the_cure(paceline: Command, operator: str) -> None:
    code, _, err = paceline("jobs", "--url", "http://127.0.0.1:1")
    assert code == 3
    assert err.startswith("http://127.0.0.1:1: does not answer (")
    assert err.endswith("start one with `paceline up`, or name another with --url or PACELINE_URL\n")


def test_without_a_token_the_command_reports_how_to_get_one(
    paceline: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PACELINE_API_TOKEN", raising=False)
    monkeypatch.setenv("PACELINE_DATA_DIR", str(tmp_path))
    code, _, err = paceline("jobs", "--url", "http://127.0.0.1:1")
    assert (code, "paceline access NAME" in err) == (2, True)
    assert "none of your control planes runs" not in err
    monkeypatch.delenv("PACELINE_URL", raising=False)
    code, _, err = paceline("jobs")
    assert code == 2
    assert err.endswith(
        "none of your control planes runs: start one with `python manage.py up`, or name one with --url\n"
    )
    code, _, err = paceline("jobs", "--token-file", str(tmp_path / "none"))
    assert (code, "cannot be read" in err) == (2, True)
