"""The command line: what it accepts, and the one sentence that every mistake gets. Real processes where it matters."""

import json
import os
import signal
import subprocess
import sys
from http import HTTPStatus
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controlplane.protocol.messages import AgentHello, SlotOffer
from controlplane.protocol.orders import Rejection
from controlplane.protocol.spec import Emulation
from tests.workers.agent.front import front
from tests.workers.agent.peer import ControlPeer
from tests.workers.agent.values import agent_orders
from tests.workers.agent.web import web
from workers.cli import app, parse_labels
from workers.state import AgentState, Credential

ENROLLED = (201, {"agent": 3, "credential": "s3cret"})


def join(*arguments: str, state: Path, **environment: str) -> "subprocess.Popen[str]":
    """A real agent."""
    return subprocess.Popen(
        [sys.executable, "-m", "workers", "join", *arguments, "--state-dir", str(state)],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def refused(*arguments: str) -> str:
    """What is said when the command refuses; it exits with 1 before anything is started."""
    result = CliRunner().invoke(app, ["join", *arguments])
    assert result.exit_code == 1, result.output
    assert result.stderr.count("\n") == 1
    return result.stderr.removeprefix("error: ").strip()


@pytest.mark.integration
def test_a_machine_joins_with_a_token_and_reconnects_without_one(tmp_path: Path) -> None:
    options = ("--name", "box", "--emulate", "500,250", "--server-slots", "2", "--label", "gpu=none")
    with web(ENROLLED) as served, ControlPeer() as peer, front(peer.url, served.url) as url:
        for nth, token in enumerate([{"PACELINE_TOKEN": "t0ken"}, {}], start=1):
            agent = join(url, *options, state=tmp_path, **token)
            session = peer.await_session("/ws/agent", nth=nth)
            hello = session.await_one(AgentHello)
            session.send(agent_orders(1, durable=1))
            assert agent.stdout is not None
            line = agent.stdout.readline()
            agent.send_signal(signal.SIGTERM)
            _, errors = agent.communicate(timeout=60.0)
            assert agent.returncode == 0
            assert line == f"agent box is connected to {url} with 2 worker slots and 2 server slots\n"
            assert session.headers["Authorization"] == "Bearer s3cret"
            assert hello.slots == [SlotOffer(emulate=Emulation(samples_per_second=speed)) for speed in (500.0, 250.0)]
            assert (hello.name, hello.labels, hello.server_slots) == ("box", {"gpu": "none"}, 2)
            assert "s3cret" not in errors
            assert "t0ken" not in errors
    assert [json.loads(body) for *_, body in served.requests] == [{"token": "t0ken", "name": "box"}]


@pytest.mark.integration
def test_scripts_read_json(tmp_path: Path) -> None:
    with web(ENROLLED) as served, ControlPeer() as peer, front(peer.url, served.url) as url:
        agent = join(url, "t0ken", "--name", "box", "--json", state=tmp_path)
        peer.await_session("/ws/agent").send(agent_orders(1))
        assert agent.stdout is not None
        assert json.loads(agent.stdout.readline()) == {
            "event": "connected",
            "agent": 3,
            "name": "box",
            "url": url,
            "slots": 1,
            "server_slots": 1,
        }
        agent.send_signal(signal.SIGINT)
        agent.communicate(timeout=60.0)
        assert agent.returncode == 0


@pytest.mark.integration
def test_a_refused_credential_is_replaced_with_the_token(tmp_path: Path) -> None:
    with web(ENROLLED) as served, ControlPeer() as peer, front(peer.url, served.url) as url:
        keep(tmp_path, url)
        agent = join(url, "t0ken", "--name", "box", state=tmp_path)
        first = peer.await_session("/ws/agent")
        assert first.headers["Authorization"] == "Bearer outdated"
        first.close(4401)
        second = peer.await_session("/ws/agent", nth=2)
        assert second.headers["Authorization"] == "Bearer s3cret"
        agent.terminate()
        agent.communicate(timeout=60.0)


@pytest.mark.integration
def test_a_refused_credential_without_a_token_is_one_sentence(tmp_path: Path) -> None:
    with ControlPeer(refuse_with=HTTPStatus.FORBIDDEN) as peer:
        keep(tmp_path, peer.url)
        agent = join(peer.url, "--name", "box", state=tmp_path)
        _, errors = agent.communicate(timeout=60.0)
    assert agent.returncode == 1
    assert errors.splitlines()[-1] == (
        f"error: this machine has no good credential for {peer.url} as box, and no token was given: "
        "make one with: python manage.py enroll"
    )


@pytest.mark.integration
def test_an_agent_whose_credential_is_over_ends_with_why_and_the_cure(tmp_path: Path) -> None:
    why = "the credential of agent 'box' expired: let it join again with a token, from: manage.py enroll --name box"
    with web(ENROLLED) as served, ControlPeer() as peer, front(peer.url, served.url) as url:
        agent = join(url, "t0ken", "--name", "box", state=tmp_path)
        session = peer.await_session("/ws/agent")
        session.send(Rejection(code="unauthorised", detail=why))
        session.close(4401)
        _, errors = agent.communicate(timeout=60.0)
    assert agent.returncode == 1
    assert errors.splitlines()[-1] == f"error: {url} ended this agent: {why}"
    assert "message None" not in errors


@pytest.mark.integration
def test_an_offer_that_is_refused_ends_the_agent_with_why(tmp_path: Path) -> None:
    with ControlPeer() as peer:
        keep(tmp_path, peer.url)
        agent = join(peer.url, "--name", "box", state=tmp_path)
        peer.await_session("/ws/agent").send(Rejection(code="malformed", detail="at most 1,024 slots"))
        _, errors = agent.communicate(timeout=60.0)
    assert agent.returncode == 1
    assert "it does not take what this machine offers: at most 1,024 slots" in errors.splitlines()[-1]


@pytest.mark.parametrize("option", ["--slots", "--server-slots"])
def test_more_slots_than_a_machine_may_offer_are_refused(option: str) -> None:
    result = CliRunner().invoke(app, ["join", "http://127.0.0.1:1", option, "1025"])
    assert result.exit_code == 2
    assert "1024" in result.stderr


def test_scripts_are_refused_on_a_machine_that_encrypts(tmp_path: Path) -> None:
    said = refused("https://paceline.example.org", "--host", "10.0.0.5", "--allow-scripts", str(tmp_path))
    assert said.startswith(f"--allow-scripts {tmp_path}: found the address 10.0.0.5 without --insecure")


def keep(root: Path, url: str) -> None:
    """Leave the credential of an earlier enrolment."""
    state = AgentState(root, url=url, name="box")
    state.open()
    state.keep_credential(Credential(agent=2, name="box", url=url, secret="outdated"))
    state.close()


def test_without_token_or_credential_the_error_reports_how_to_get_one(tmp_path: Path) -> None:
    said = refused("http://127.0.0.1:1", "--name", "box", "--state-dir", str(tmp_path))
    assert said == (
        "this machine has no good credential for http://127.0.0.1:1 as box, and no token was given: "
        "make one with: python manage.py enroll"
    )


def test_a_wrong_token_is_one_sentence_and_leaves_no_credential(tmp_path: Path) -> None:
    with web((403, {"detail": "this token was used already"})) as served:
        said = refused(served.url, "t0ken", "--name", "box", "--state-dir", str(tmp_path))
    assert said == (
        "the control plane refused the enrolment (this token was used already): make one with: python manage.py enroll"
    )
    assert not list(tmp_path.rglob("credential.json"))


def test_a_state_folder_that_cannot_be_used_spends_no_token(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with web(ENROLLED) as served:
        said = refused(served.url, "t0ken", "--name", "box", "--state-dir", str(tmp_path / "file"))
    assert said.endswith("make it writable or choose another with --state-dir")
    assert served.requests == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("http://10.0.0.5:8000",), "http://10.0.0.5:8000 is not encrypted and not on this machine: give its"),
        (("nonsense",), "'nonsense' is not an address of a control plane"),
        (("http://127.0.0.1:1", "--host", "0.0.0.0"), "--host '0.0.0.0' is not an address that workers can connect to"),
        (("http://127.0.0.1:1", "--announce", "::"), "--announce '::' is not an address that workers can connect to"),
        (
            ("http://127.0.0.1:1", "--label", "gpu"),
            "--label 'gpu': expected KEY=VALUE on one line, like --label gpu=a100",
        ),
        (
            ("http://127.0.0.1:1", "--emulate", "fast"),
            "--emulate 'fast': expected samples/s like 1000, x3 or @trace.csv",
        ),
        (
            ("http://127.0.0.1:1", "--data-dir", "/no/such/folder"),
            "--data-dir '/no/such/folder': there is no such folder",
        ),
        (("http://127.0.0.1:1", "@/no/such/file"), "no token could be read from /no/such/file"),
    ],
)
def test_every_mistake_is_one_sentence(arguments: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    assert refused(*arguments, "--state-dir", str(tmp_path)).startswith(sentence)


def test_labels_may_hold_equals_signs() -> None:
    assert parse_labels(["gpu=a100", "note=a=b"]) == {"gpu": "a100", "note": "a=b"}
