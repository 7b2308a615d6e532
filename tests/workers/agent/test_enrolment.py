"""How a machine joins: where tokens come from, and what is said when one is refused."""

import io
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.workers.agent.web import web
from workers.addresses import control_plane
from workers.enrolment import EnrolmentError, enrol, read_token
from workers.state import Credential

CURE = "make one with: python manage.py enroll"


def test_a_token_becomes_a_credential() -> None:
    with web((201, {"agent": 3, "credential": "s3cret"})) as served:
        credential = enrol(control_plane(served.url), "tok", "box")
    [(method, path, _, body)] = served.requests
    assert (method, path, json.loads(body)) == ("POST", "/api/v1/agents/enrol", {"token": "tok", "name": "box"})
    assert credential == Credential(agent=3, name="box", url=served.url, secret="s3cret")


@pytest.mark.parametrize(
    ("status", "answer", "sentence"),
    [
        (403, {"detail": "it expired"}, "the control plane refused the enrolment (it expired): " + CURE),
        (400, {"title": "Unknown token"}, "the control plane refused the enrolment (Unknown token): " + CURE),
        (409, {"detail": "box exists"}, "the name box cannot be had (box exists): join under another --name"),
        (404, b"<html>", "{url} has no enrolment: is it the address of a Paceline control plane?"),
        (503, b"", "{url} cannot enrol anybody now (HTTP 503): try again"),
        (201, {"agent": "x"}, "{url} did not answer as a control plane does: is the address right?"),
        (201, [1], "{url} did not answer as a control plane does: is the address right?"),
    ],
)  # fmt: skip
def test_a_refusal_is_one_sentence_with_its_cure(status: int, answer: Any, sentence: str) -> None:
    with web((status, answer)) as served, pytest.raises(EnrolmentError) as caught:
        enrol(control_plane(served.url), "tok-3n", "box")
    assert str(caught.value) == sentence.format(url=served.url)


def test_a_refused_service_account_is_not_advised_to_use_an_enrolment_token() -> None:
    with web((403, {"detail": "the account may not join: add it"})) as served, pytest.raises(EnrolmentError) as caught:
        enrol(control_plane(served.url), "head.claims.signature", "box")
    assert str(caught.value) == "the control plane refused the enrolment (the account may not join: add it)"


def test_a_control_plane_that_is_not_there_is_named() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(EnrolmentError, match=f"no control plane answers at {url}"):
            enrol(control_plane(url), "tok", "box")


def test_a_token_is_literal_or_from_a_file_or_standard_input_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("from-file\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("from-stdin\n"))
    assert read_token("literal", {"PACELINE_TOKEN": "no"}) == "literal"
    assert read_token(f"@{tmp_path}/token", {}) == "from-file"
    assert read_token("-", {}) == "from-stdin"
    assert read_token(None, {"PACELINE_TOKEN": "from-environment"}) == "from-environment"
    assert read_token(None, {}) is None


def test_a_token_that_is_not_where_it_should_be_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(EnrolmentError, match=f"no token could be read from {tmp_path}/none"):
        read_token(f"@{tmp_path}/none", {})
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(EnrolmentError, match=f"there is no token in {tmp_path}/empty"):
        read_token(f"@{tmp_path}/empty", {})
