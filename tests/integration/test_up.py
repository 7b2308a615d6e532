"""``manage.py up``: starts everything or says why not, and leaves nothing behind."""

import os
import signal
import socket
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from controlplane.runtime.embedded.ground import free_port
from controlplane.runtime.embedded.interruption import Interruption
from controlplane.runtime.embedded.joining import let_in, start_agent
from controlplane.runtime.embedded.supervisor import Supervisor
from paceline import Client, PacelineError
from tests.support.commands import run, running
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

SPEC = {
    "name": "digits",
    "workload": {"name": "softmax-regression", "dataset": "digits"},
    "workers": 2,
    "servers": 1,
    "batch_size": 16,
    "stop": {"iterations": 100},
    "seed": 7,
}


def test_it_serves_alone_in_its_folder_until_it_is_requested_to_end(tmp_path: Path) -> None:
    port = free_port()
    with running(tmp_path, "up", "--port", str(port)) as command:
        command.await_word(f"Paceline runs at http://127.0.0.1:{port}")
        assert httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
        assert len(command.family()) == 7
        assert (tmp_path / "var" / "address").read_text() == f"http://127.0.0.1:{port}\n"
        assert run(tmp_path, "up", "--port", str(free_port())) == (
            1,
            f"The data folder {tmp_path / 'var'} is in use by a running control plane "
            f"(process {command.process.pid}): stop it, or set PACELINE_DATA_DIR to another folder.\n",
        )
        assert command.interrupt() == 0
        assert command.said().endswith("Stopped. All processes have ended.\n")
        command.assert_gone(port)
    assert not (tmp_path / "var" / "redis").exists()
    assert not (tmp_path / "var" / "address").exists()


def test_jobs_continue_when_a_service_or_the_parent_of_all_is_killed_and_sigterm_ends_all(tmp_path: Path) -> None:
    settings = {"PACELINE_DATA_DIR": str(tmp_path / "var")}
    with running(tmp_path, "up", "--port", "0") as command, ExitStack() as stack:
        command.await_word("To sign in")
        url = command.said().partition("Paceline runs at ")[2].split()[0]
        access = let_in("tester", role="admin", environment={**os.environ, **settings})
        client = stack.enter_context(Client(url, access.token))
        supervisor = stack.enter_context(Supervisor(Interruption()))
        folder, log = tmp_path / "agent", tmp_path / "agent.log"
        token = client.invite().token
        supervisor.add(
            start_agent(url, token, name="machines", folder=folder, speeds=[400.0] * 2, server_slots=1, log=log)
        )
        for service, name in (("decisions", "paceline decisi"), ("fork server", "fork server")):
            job = client.submit(SPEC).id
            eventually(lambda job=job: client.job(job).iteration >= 10, what="iteration 10", seconds=60, every=0.1)
            (victim,) = (process for process in command.family() if process.name() == name)
            victim.kill()
            command.await_word(f"{service} was ended by SIGKILL; restarting now.")
            eventually(lambda job=job: is_over(client, job), what="the job's end", seconds=120, every=0.2)
            done = client.job(job)
            assert (done.state, done.iteration, done.samples) == ("succeeded", 100, 100 * 2 * 16)
        assert command.interrupt(signal.SIGTERM) == 0
        assert command.said().endswith("Stopped. All processes have ended.\n")


def is_over(client: Client, job: int) -> bool:
    """Whether it is; not known while web is away."""
    try:
        return client.job(job).is_over
    except PacelineError:
        return False


def test_killing_it_takes_everything_with_it(tmp_path: Path) -> None:
    port = free_port()
    with running(tmp_path, "up", "--port", str(port)) as command:
        command.await_word("Paceline runs at")
        command.interrupt(signal.SIGKILL)
        command.assert_gone(port)


def test_a_busy_port_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, said = run(tmp_path, "up", "--port", str(port))
    assert (code, said) == (
        1,
        f"Port {port} on 127.0.0.1 cannot be used (Address already in use): "
        "stop the program that listens on it, or choose another port with --port.\n",
    )


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, said = run(tmp_path, "up", environment={"PACELINE_DATA_DIR": str(tmp_path / "file" / "var")})
    assert code == 1
    assert said.startswith(f"PACELINE_DATA_DIR: found '{tmp_path}/file/var', expected a folder that can be created")
    assert said.count("\n") == 1


def test_a_redis_that_does_not_answer_is_one_sentence(tmp_path: Path) -> None:
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    code, said = run(tmp_path, "up", "--port", str(free_port()), environment={"REDIS_URL": nowhere})
    assert (code, said) == (1, "The Redis at REDIS_URL does not answer: start it, or unset REDIS_URL.\n")


@pytest.mark.parametrize("command", [("enroll",), ("access", "ada"), ("submit", "/dev/null")])
def test_a_command_before_the_first_start_names_the_command_up(tmp_path: Path, command: tuple[str, ...]) -> None:
    assert run(tmp_path, *command) == (
        1,
        "The database has no tables yet: start the control plane once with: python manage.py up\n",
    )


def test_a_damaged_database_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "var" / "paceline.sqlite3"
    file.parent.mkdir()
    file.write_text("no database " * 500)
    assert run(tmp_path, "enroll") == (
        1,
        f"The database {file} is damaged (file is not a database): move it away, or restore a backup.\n",
    )


@pytest.mark.parametrize("port", ["99999", "-1"])
def test_a_port_that_there_is_not_is_one_sentence(tmp_path: Path, port: str) -> None:
    expected = f"Port {port} cannot be used: found {port}, expected 1 to 65535, or 0 for any free port.\n"
    assert run(tmp_path, "up", "--port", port) == (1, expected)


def test_listening_beyond_this_machine_in_clear_has_to_be_allowed(tmp_path: Path) -> None:
    code, said = run(tmp_path, "up", "--host", "0.0.0.0", "--port", "0")
    assert (code, said.count("\n"), "--insecure" in said) == (1, 1, True)


def test_logs_that_are_a_file_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    (tmp_path / "var" / "logs").touch()
    code, said = run(tmp_path, "up", "--port", "0")
    assert (code, said.startswith("Cannot create the log folder ")) == (1, True)
