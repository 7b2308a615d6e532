"""``submit`` and ``enroll``, against a real web server."""

import io
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from knox.models import AuthToken
from msgspec.structs import replace

from controlplane.api.problems import HOW_TO_BE_LET_IN
from controlplane.fleet.models import EnrolmentToken
from controlplane.fleet.services import EnrolmentRefused, token_redeem
from controlplane.jobs.models import AuditEntry, Job
from controlplane.protocol.spec import parse_spec
from paceline.client.types import Job as JobOfClient
from paceline.client.wording import in_one_line
from tests.support.rows import SPEC

Submit = Callable[..., str]


@pytest.fixture
def submit(live_server: Any, redis_url: str, tmp_path: Path) -> Submit:
    """Runs the command on a spec; what it printed."""

    def run(document: object = SPEC, **options: Any) -> str:
        file, output = tmp_path / "spec.yaml", io.StringIO()
        file.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
        call_command("submit", str(file), stdout=output, **{"url": live_server.url, **options})
        return output.getvalue()

    return run


def steps(monkeypatch: pytest.MonkeyPatch, *moves: dict[str, Any]) -> None:
    """Between two looks at the job, the next of ``moves`` happens to it."""
    left = list(moves)
    monkeypatch.setattr("paceline.client.sync.time.sleep", lambda _: Job.objects.update(**left.pop(0)))


def failure(run: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(CommandError) as caught:
        run()
    return caught.value.returncode, str(caught.value)


def test_a_job_is_submitted_by_the_service_user(submit: Submit, live_server: Any) -> None:
    printed = submit()
    job = Job.objects.get()
    assert printed == f"job {job.pk} (digits) submitted: {live_server.url}/jobs/{job.pk}/\n"
    assert (parse_spec(job.spec), job.submitted_by) == (parse_spec(SPEC), User.objects.get(username="command-line"))
    assert not AuthToken.objects.exists()


def test_a_priority_may_be_given_in_place_of_the_specs(submit: Submit) -> None:
    submit(SPEC | {"priority": 3}, priority=-20)
    submit()
    assert list(Job.objects.order_by("id").values_list("priority", "spec__priority")) == [(-20, -20), (0, 0)]


def test_scripts_get_the_job_as_json(submit: Submit) -> None:
    assert json.loads(submit(json=True))["id"] == Job.objects.get().pk


def test_a_token_may_be_given(submit: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = User.objects.create_superuser("root")
    token = AuthToken.objects.create(user=user)[1]
    (tmp_path / "token").write_text(f"{token}\n")
    submit(token_file=tmp_path / "token")
    monkeypatch.setenv("PACELINE_API_TOKEN", token)
    submit()
    assert list(Job.objects.values_list("submitted_by__username", flat=True)) == ["root", "root"]


def test_watching_follows_a_job_to_its_end(submit: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    steps(
        monkeypatch,
        {"state": "running", "iteration": 50, "loss": 0.5},
        {},
        {"state": "succeeded", "iteration": 100, "loss": 0.25, "accuracy": 0.9375, "reason": "reached 100 iterations"},
    )
    seen = [json.loads(line) for line in submit(watch=True, json=True).splitlines()]
    assert [(job["state"], job["iteration"], job["accuracy"]) for job in seen] == [
        ("submitted", 0, None),
        ("running", 50, None),
        ("succeeded", 100, 0.9375),
    ]


def test_watching_reports_how_it_ended(submit: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    steps(monkeypatch, {"state": "succeeded", "iteration": 100, "accuracy": 0.9375, "reason": "reached 100 iterations"})
    last = submit(watch=True).splitlines()[-1]
    assert last == f"job {Job.objects.get().pk} succeeded: reached 100 iterations"


def test_watching_counts_coordination_as_lost() -> None:
    job = JobOfClient(id=1, name="a", state="running", is_over=False, iteration=7)
    lost = replace(job, waiting_share=0.03, coordination_share=0.108)
    assert in_one_line(lost) == "iteration 7, 14% lost"


def test_a_job_that_failed_is_exit_code_1(submit: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    steps(monkeypatch, {"state": "failed", "reason": "worker 1 died three times"})
    with pytest.raises(SystemExit) as caught:
        submit(watch=True)
    assert caught.value.code == 1


def test_a_refused_spec_is_exit_code_2_and_names_the_field(submit: Submit) -> None:
    assert failure(lambda: submit(SPEC | {"workers": 0})) == (2, "workers: found 0, expected `int` >= 1")
    code, sentence = failure(lambda: submit("a: ["))
    assert (code, sentence.partition(":")[0]) == (2, "the body is not YAML")


def test_a_refused_token_is_exit_code_2(submit: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_API_TOKEN", "made-up")
    assert failure(submit) == (2, f"Invalid token. {HOW_TO_BE_LET_IN}")


def test_a_file_that_is_not_there_is_exit_code_2(db: None) -> None:
    code, sentence = failure(lambda: call_command("submit", "/nowhere/spec.yaml"))
    assert (code, sentence.partition(" (")[0]) == (2, "/nowhere/spec.yaml: cannot be read")


def test_no_one_there_is_exit_code_3_with_the_cure(submit: Submit) -> None:
    code, sentence = failure(lambda: submit(url="http://127.0.0.1:1"))
    assert code == 3
    assert sentence.startswith("http://127.0.0.1:1: does not answer (")
    assert sentence.endswith("start it with: python manage.py up, or set --url")


@pytest.mark.parametrize("found", ["clé", "two words", "two\nlines"])
def test_what_is_no_token_is_one_sentence(submit: Submit, monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    monkeypatch.setenv("PACELINE_API_TOKEN", found)
    code, sentence = failure(lambda: submit())
    assert (code, sentence.partition(":")[0], sentence.count("\n")) == (2, "PACELINE_API_TOKEN", 0)


def test_a_token_file_that_is_not_there_is_one_sentence(submit: Submit) -> None:
    code, sentence = failure(lambda: submit(token_file=Path("/nope")))
    assert (code, sentence.startswith("/nope: cannot be read"), sentence.count("\n")) == (2, True, 0)


@pytest.mark.django_db
def test_enroll_prints_what_to_run(settings: Any) -> None:
    settings.PACELINE_URL = "https://paceline.example.org"
    output = io.StringIO()
    call_command("enroll", "--label", "gpu=a100", "--label", "zone=b", stdout=output)
    lines = [line.strip() for line in output.getvalue().splitlines()]
    command, token = lines[2], lines[6]
    assert command == "python -m workers join https://paceline.example.org - --slots 1"
    assert token_redeem(token=token, name="m1").labels == {"gpu": "a100", "zone": "b"}
    assert list(AuditEntry.objects.values_list("actor", "action")) == [("command line", "agent-invite")]


@pytest.mark.django_db
def test_enroll_can_be_for_one_machine() -> None:
    output = io.StringIO()
    call_command("enroll", "--name", "m1", "--json", stdout=output)
    made = json.loads(output.getvalue())
    assert made["command"].endswith(" - --slots 1 --name m1")
    with pytest.raises(EnrolmentRefused, match="for machine 'm1'"):
        token_redeem(token=made["token"], name="m2")
    _, sentence = failure(lambda: call_command("enroll", "--name", "m\x1b[2J"))
    assert sentence.startswith("Error: argument --name: found 'm\\x1b[2J', expected 1 to 100 characters")


@pytest.mark.django_db
def test_enroll_makes_a_token_for_a_fleet() -> None:
    output = io.StringIO()
    options = ("--uses", "64", "--expires", "2h", "--label", "pool=a100", "--remove-after", "1h")
    call_command("enroll", *options, stdout=output)
    row = EnrolmentToken.objects.get()
    assert (row.uses, row.labels, row.remove_after) == (64, {"pool": "a100"}, timedelta(hours=1))
    assert round((row.expires_at - row.created_at).total_seconds()) == 7200
    assert "Run this on up to 64 machines before" in output.getvalue()
    assert "valid 64 times" in output.getvalue()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--uses", "0"), "found '0', expected an integer from 1 to 10,000"),
        (("--expires", "2 h"), "found '2 h', expected a number with s, m, h, d or w, such as 2h, at most 366d"),
        (
            ("--uses", "2", "--name", "m1"),
            "--name m1 is for one machine, but --uses is 2: omit one of them",
        ),
    ],
)
def test_enroll_reports_what_it_cannot_do(options: tuple[str, ...], sentence: str) -> None:
    assert sentence in failure(lambda: call_command("enroll", *options))[1]


@pytest.mark.django_db
def test_enroll_prints_json() -> None:
    output = io.StringIO()
    call_command("enroll", "--json", stdout=output)
    document = json.loads(output.getvalue())
    assert (set(document), document["labels"]) == ({"id", "uses", "token", "expires_at", "labels", "command"}, {})
    assert EnrolmentToken.objects.get().expires_at.isoformat() == document["expires_at"]


@pytest.mark.django_db
def test_a_label_without_a_value_is_refused() -> None:
    _, sentence = failure(lambda: call_command("enroll", "--label", "gpu"))
    assert sentence == "Error: argument --label: found 'gpu', expected key=value, such as gpu=a100"
