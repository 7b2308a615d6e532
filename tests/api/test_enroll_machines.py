"""``manage.py enroll_machines``: a token in a file for every machine that has not joined yet."""

import io
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from controlplane.fleet.models import Agent, EnrolmentToken
from controlplane.fleet.services import EnrolmentRefused, token_create, token_redeem
from controlplane.jobs.models import AuditEntry

pytestmark = pytest.mark.django_db


def enroll(folder: Path, *names: str) -> str:
    output = io.StringIO()
    call_command("enroll_machines", str(folder), *names, stdout=output)
    return output.getvalue().strip()


def test_each_machine_gets_a_token_of_its_own_that_only_its_owner_reads(tmp_path: Path) -> None:
    said = enroll(tmp_path, "fast", "slow")
    files = {path.name: path / "token" for path in tmp_path.iterdir()}
    assert said == f"2 tokens in {tmp_path}; already joined: none"
    assert sorted(files) == ["fast", "slow"]
    assert {path.stat().st_mode & 0o777 for path in files.values()} == {0o600}
    assert {path.parent.stat().st_mode & 0o777 for path in files.values()} == {0o700}
    assert files["fast"].read_text() != files["slow"].read_text()
    assert token_redeem(token=files["fast"].read_text(), name="fast").agent


def test_a_machine_that_has_joined_gets_no_other(tmp_path: Path) -> None:
    enroll(tmp_path, "fast", "slow")
    token_redeem(token=(tmp_path / "fast" / "token").read_text(), name="fast")
    before = {name: (tmp_path / name / "token").read_text() for name in ("fast", "slow")}
    said = enroll(tmp_path, "fast", "slow")
    assert said == f"1 token in {tmp_path}; already joined: fast"
    assert (tmp_path / "fast" / "token").read_text() == before["fast"]
    assert (tmp_path / "slow" / "token").read_text() != before["slow"]


def test_a_token_serves_once(tmp_path: Path) -> None:
    enroll(tmp_path, "fast")
    token = (tmp_path / "fast" / "token").read_text()
    token_redeem(token=token, name="fast")
    with pytest.raises(EnrolmentRefused, match="works once"):
        token_redeem(token=token, name="other")


def test_a_machine_that_joined_under_an_earlier_release_still_has_a_folder(tmp_path: Path) -> None:
    token = token_create(labels={}, name="fast")[0]
    (tmp_path / "fast").write_text(token)
    token_redeem(token=token, name="fast")
    assert enroll(tmp_path, "fast") == f"0 tokens in {tmp_path}; already joined: fast"
    assert list((tmp_path / "fast").iterdir()) == []


def test_a_machine_whose_credential_has_expired_gets_another_token_where_it_looks_for_one(tmp_path: Path) -> None:
    enroll(tmp_path, "fast", "slow")
    first = {name: (tmp_path / name / "token").read_text() for name in ("fast", "slow")}
    joined = {name: token_redeem(token=first[name], name=name).agent for name in first}
    Agent.objects.filter(name="fast").update(state=Agent.State.ONLINE)
    assert enroll(tmp_path, "fast", "slow", "--again") == f"1 token in {tmp_path}; skipped because online: fast"
    assert (tmp_path / "fast" / "token").read_text() == first["fast"]
    new = (tmp_path / "slow" / "token").read_text()
    assert new != first["slow"]
    assert token_redeem(token=new, name="slow").agent == joined["slow"], "the same machine, with its history"


def test_tokens_for_machines_are_in_the_audit_log(tmp_path: Path) -> None:
    enroll(tmp_path, "fast")
    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.action, entry.detail) == ("command line", "agent-invite", {"labels": {}, "name": "fast"})


@pytest.mark.parametrize(
    ("folder", "name", "sentence"),
    [
        ("nowhere", "fast", "is not a folder; create the folder from which machines read their tokens"),
        (".", "../fast", "found '../fast', expected a machine name that is a valid folder name"),
        (".", "", "found '', expected a machine name"),
        (".", "x" * 300, "no token was written to .*: File name too long"),
    ],
)
def test_what_cannot_be_written_is_named_and_leaves_no_token(
    tmp_path: Path, folder: str, name: str, sentence: str
) -> None:
    with pytest.raises(CommandError, match=sentence):
        enroll(tmp_path / folder, name)
    assert not EnrolmentToken.objects.exists()
