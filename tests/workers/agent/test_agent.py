"""An agent's life: real processes against a real websocket peer."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from controlplane.protocol.keys import secret_digest
from controlplane.protocol.measurements import OF_MACHINES, known_of
from controlplane.protocol.messages import (
    AgentHello,
    CredentialKept,
    ProcessEnded,
    ProcessName,
    ProcessStarted,
    SlotOffer,
)
from controlplane.protocol.orders import CredentialIssued, ProcessOrder
from tests.support.waiting import eventually
from tests.workers.agent.peer import ControlPeer, Session
from tests.workers.agent.test_spawner import gone
from tests.workers.agent.values import agent_orders, behaving, process_order
from workers.environment import environment
from workers.rates import machine_counts
from workers.table import name_of

pytestmark = pytest.mark.integration
PATH = "/ws/agent"


class Machine:
    """Agents started one after the other on one state folder, and all that must be gone at the end."""

    def __init__(self, peer: ControlPeer, folder: Path) -> None:
        self.peer, self.folder = peer, folder
        self._agents: list[subprocess.Popen[bytes]] = []

    def start(self, **environment: str) -> Session:
        """Start an agent; its next connection."""
        before = sum(session.path == PATH for session in self.peer.sessions)
        self._agents.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.workers.agent.daemon", self.peer.url, str(self.folder / "state")],
                env=os.environ | {"TEST_FOLDER": str(self.folder)} | environment,
            )
        )
        return self.peer.await_session(PATH, nth=before + 1)

    @property
    def agent(self) -> subprocess.Popen[bytes]:
        return self._agents[-1]

    def pid_of(self, order: ProcessOrder) -> int:
        """The pid of a process that runs and has its signals set."""
        file = self.folder / f"{order.role}-{order.index}-{order.instance}"
        return int(eventually(lambda: file.exists() and file.read_text(), what=f"the start of {file.name}"))

    def end(self) -> None:
        for agent in self._agents:
            agent.kill()
            agent.wait()


@pytest.fixture
def peer() -> Iterator[ControlPeer]:
    with ControlPeer() as peer:
        yield peer


@pytest.fixture
def machine(peer: ControlPeer, tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(peer, tmp_path)
    yield machine
    machine.end()


def ordered(behaviour: str, index: int = 0, life: int = 1) -> ProcessOrder:
    return process_order(index, instance=f"w{index}.0.{life}", spec=behaving(behaviour))


def ended(session: Session, process: ProcessName) -> tuple[int, str]:
    message = session.await_one(ProcessEnded, process=process)
    return message.status, message.tail


def test_an_agent_reports_what_it_offers(machine: Machine) -> None:
    session = machine.start()
    [hello] = session.await_heard(1)
    assert session.headers["Authorization"] == "Bearer agent-secret"
    assert hello == AgentHello(
        number=1,
        name="box",
        version="0.1.0",
        host="127.0.0.1",
        slots=[SlotOffer(), SlotOffer()],
        server_slots=1,
        labels={"gpu": "none"},
        cpu_count=hello.cpu_count,
        memory_bytes=hello.memory_bytes,
        environment=environment("auto", network="not encrypted: on this machine alone"),
        running=[],
        rotates=True,
        tests=True,
    )
    told = {"cpu", "memory", *machine_counts()}
    assert all(known_of(beat, (each.name for each in OF_MACHINES)).keys() == told for beat in session.await_beats(2))


def test_ordered_processes_are_started_and_reported(machine: Machine) -> None:
    session = machine.start()
    orders = [ordered("wait", 0), ordered("wait", 1)]
    session.send(agent_orders(1, *orders, durable=1))
    for order in orders:
        assert session.await_one(ProcessStarted, process=name_of(order)).pid == machine.pid_of(order)


def test_what_is_not_ordered_any_more_is_ended(machine: Machine) -> None:
    session = machine.start()
    polite, stubborn = ordered("polite", 0), ordered("stubborn", 1)
    session.send(agent_orders(1, polite, stubborn))
    pids = [machine.pid_of(polite), machine.pid_of(stubborn)]
    session.send(agent_orders(2))
    assert ended(session, name_of(polite)) == (0, "")
    assert ended(session, name_of(stubborn)) == (-9, "")
    assert all(gone(pid) for pid in pids)


def test_a_crash_is_reported_with_its_last_output_and_not_repeated(machine: Machine) -> None:
    session = machine.start()
    crashing = ordered("fail")
    session.send(agent_orders(1, crashing))
    status, tail = ended(session, name_of(crashing))
    assert (status, tail.rpartition("\n")[2]) == (1, "ValueError: no such data set")
    marker = ordered("wait", 1)
    session.send(agent_orders(2, crashing, marker))
    session.await_one(ProcessStarted, process=name_of(marker))
    assert sum(isinstance(message, ProcessStarted) for message in session.heard) == 2


def test_a_killed_process_is_reported_at_once(machine: Machine) -> None:
    session = machine.start()
    order = ordered("wait")
    session.send(agent_orders(1, order))
    os.kill(machine.pid_of(order), signal.SIGKILL)
    assert ended(session, name_of(order)) == (-9, "")


def test_late_and_repeated_orders_change_nothing(machine: Machine) -> None:
    session = machine.start()
    order, other = ordered("wait", 0), ordered("wait", 1)
    session.send(agent_orders(5, order))
    pid = machine.pid_of(order)
    for late in (agent_orders(5, order), agent_orders(4), agent_orders(3, order, other)):
        session.send(late)
    session.send(agent_orders(6, order, marker := ordered("end", 2)))
    ended(session, name_of(marker))
    assert not gone(pid)
    assert [each.process for each in session.heard if isinstance(each, ProcessStarted)] == [
        name_of(order),
        name_of(marker),
    ]


def test_processes_continue_during_an_outage_and_report_afterwards(machine: Machine) -> None:
    session = machine.start()
    lasting, ending = ordered("wait", 0), ordered("wait", 1)
    session.send(agent_orders(1, lasting, ending))
    pids = [machine.pid_of(lasting), machine.pid_of(ending)]
    session.await_heard(3)
    session.send(agent_orders(2, lasting, ending, durable=3))
    machine.peer.stop()
    session.await_over()
    os.kill(pids[1], signal.SIGKILL)
    eventually(lambda: gone(pids[1]), what="the end of one process")
    with ControlPeer(machine.peer.port) as back:
        again = back.await_session(PATH)
        assert ended(again, name_of(ending)) == (-9, "")
        hello = again.heard[0]
        assert isinstance(hello, AgentHello)
        assert hello.running == [name_of(lasting), name_of(ending)]  # its end is told next: it has not vanished
        assert not gone(pids[0])


def test_unacknowledged_messages_are_resent_after_the_hello(machine: Machine) -> None:
    first = machine.start()
    order = ordered("end")
    first.send(agent_orders(1, order))
    ended(first, name_of(order))
    first.close()
    second = machine.peer.await_session(PATH, nth=2)
    assert [type(message) for message in second.await_heard(3)] == [AgentHello, ProcessStarted, ProcessEnded]
    numbers = [message.number for message in second.heard]
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]
    second.send(agent_orders(1, order, durable=numbers[-1]))
    second.send(agent_orders(2, order, marker := ordered("end", 1)))
    ended(second, name_of(marker))
    second.close()
    third = machine.peer.await_session(PATH, nth=3)
    assert [message.process for message in third.await_heard(3)[1:]] == [name_of(marker)] * 2


def test_processes_end_with_a_killed_agent_and_its_next_instance_reports_it(machine: Machine) -> None:
    session = machine.start()
    order = ordered("stubborn")
    session.send(agent_orders(1, order))
    pid = machine.pid_of(order)
    descendants = psutil.Process(machine.agent.pid).children(recursive=True)
    machine.agent.kill()
    eventually(lambda: gone(pid), what="the end of the process")
    eventually(lambda: all(gone(each.pid) for each in descendants), what="the end of the spawner")
    machine.agent.wait()
    again = machine.start()
    again.await_one(AgentHello, running=[])
    again.send(agent_orders(9, order, successor := ordered("wait", 0, life=2)))
    assert ended(again, name_of(order)) == (-9, "it ended before its agent restarted")
    assert not gone(machine.pid_of(successor))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_agent_ends_its_processes_on_request_reports_it_and_exits_with_0(
    machine: Machine, number: signal.Signals
) -> None:
    session = machine.start()
    polite, stubborn = ordered("polite", 0), ordered("stubborn", 1)
    session.send(agent_orders(1, polite, stubborn))
    pids = [machine.pid_of(polite), machine.pid_of(stubborn)]
    machine.agent.send_signal(number)
    assert machine.agent.wait(20.0) == 0
    assert all(gone(pid) for pid in pids)
    assert ended(session, name_of(polite)) == (0, "")
    assert ended(session, name_of(stubborn)) == (-9, "")


def test_an_agent_survives_its_spawner(machine: Machine) -> None:
    session = machine.start()
    order = ordered("wait")
    session.send(agent_orders(1, order))
    machine.pid_of(order)
    [spawner] = psutil.Process(machine.agent.pid).children()
    spawner.kill()
    assert ended(session, name_of(order)) == (-9, "the spawner of its agent ended with status -9")
    successor = ordered("wait", 0, life=2)
    session.send(agent_orders(2, successor))
    assert not gone(machine.pid_of(successor))


def test_an_agent_whose_place_was_taken_ends_with_its_processes(machine: Machine) -> None:
    session = machine.start()
    order = ordered("polite")
    session.send(agent_orders(1, order))
    pid = machine.pid_of(order)
    session.close(4409, "another agent uses this credential")
    assert machine.agent.wait(20.0) == 1
    assert gone(pid)


NEW = "a-new-secret-of-forty-and-three-characters!"


def credential_file(machine: Machine) -> Path:
    (file,) = (machine.folder / "state").glob("agent-*/credential.json")
    return file


def test_a_new_credential_is_kept_reported_and_used_while_what_runs_continues(machine: Machine) -> None:
    session = machine.start()
    order = ordered("wait")
    session.send(agent_orders(1, order, durable=1))
    pid = machine.pid_of(order)
    session.send(CredentialIssued(secret=NEW))
    session.await_one(CredentialKept, digest=secret_digest(NEW), failure="")
    assert credential_file(machine).stat().st_mode & 0o777 == 0o600
    session.close()
    again = machine.peer.await_session(PATH, nth=2)
    assert again.headers["Authorization"] == f"Bearer {NEW}"
    assert again.await_one(AgentHello).running == [name_of(order)]
    assert not gone(pid)


def test_an_agent_that_dies_between_storing_and_reporting_it_comes_back_with_the_new_one(machine: Machine) -> None:
    session = machine.start(TEST_DIES_ON_KEEPING="yes")
    session.await_heard(1)
    session.send(CredentialIssued(secret=NEW))
    assert machine.agent.wait(60) == -signal.SIGKILL
    session.await_over()
    assert not [message for message in session.heard if isinstance(message, CredentialKept)]
    assert machine.start().headers["Authorization"] == f"Bearer {NEW}"


def test_a_credential_that_cannot_be_kept_is_reported_and_the_old_one_stays(machine: Machine) -> None:
    session = machine.start()
    session.await_heard(1)
    (folder,) = (machine.folder / "state").glob("agent-*")
    (folder / "credential.json").mkdir()  # nothing can take its place, not even for someone who may write anywhere
    session.send(CredentialIssued(secret=NEW))
    failure = session.await_one(CredentialKept, digest=secret_digest(NEW)).failure
    assert "credential.json cannot be written" in failure
    session.close()
    assert machine.peer.await_session(PATH, nth=2).headers["Authorization"] == "Bearer agent-secret"
