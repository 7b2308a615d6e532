"""``manage.py enroll_machines``: a token in a file for every machine that has not joined yet."""

import io
from pathlib import Path

import pytest
from django.core.management import call_command

from controlplane.fleet.services import EnrolmentRefused, token_redeem

pytestmark = pytest.mark.django_db


def enroll(folder: Path, *names: str) -> str:
    output = io.StringIO()
    call_command("enroll_machines", str(folder), *names, stdout=output)
    return output.getvalue().strip()


def test_each_machine_gets_a_token_of_its_own_that_only_its_owner_reads(tmp_path: Path) -> None:
    said = enroll(tmp_path, "fast", "slow")
    files = {path.name: path for path in tmp_path.iterdir()}
    assert said == f"2 tokens in {tmp_path}; joined already: none"
    assert sorted(files) == ["fast", "slow"]
    assert {path.stat().st_mode & 0o777 for path in files.values()} == {0o600}
    assert files["fast"].read_text() != files["slow"].read_text()
    assert token_redeem(token=files["fast"].read_text(), name="fast").agent


def test_a_machine_that_has_joined_gets_no_other(tmp_path: Path) -> None:
    enroll(tmp_path, "fast", "slow")
    token_redeem(token=(tmp_path / "fast").read_text(), name="fast")
    before = {name: (tmp_path / name).read_text() for name in ("fast", "slow")}
    said = enroll(tmp_path, "fast", "slow")
    assert said == f"1 tokens in {tmp_path}; joined already: fast"
    assert (tmp_path / "fast").read_text() == before["fast"]
    assert (tmp_path / "slow").read_text() != before["slow"]


def test_a_token_serves_once(tmp_path: Path) -> None:
    enroll(tmp_path, "fast")
    token = (tmp_path / "fast").read_text()
    token_redeem(token=token, name="fast")
    with pytest.raises(EnrolmentRefused, match="works once"):
        token_redeem(token=token, name="other")
