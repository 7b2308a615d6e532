"""The process of a test as its agent keeps it: started once, ended in time, and its end told in any case."""

import queue
import sys
from typing import Any

import pytest

from controlplane.protocol.machine_tests import Listening, ListenOrder, MachineTested, MachineTestOrder
from workers.preflight import running
from workers.preflight.running import Preflight
from workers.setup import Setup

SETUP = Setup(url="http://127.0.0.1:1")
HANGS = (sys.executable, "-c", "import threading; threading.Event().wait()")


def preflight(answers: "queue.Queue[Any]", *program: str, limit_s: float = 60.0) -> Preflight:
    command = {"command": (sys.executable, "-c", *program)} if program else {}
    return Preflight(SETUP, answers.put, limits_s=(limit_s, limit_s), **command)


def order(test: int = 1) -> MachineTestOrder:
    return MachineTestOrder(test=test, instance="w0.0.1", key="00" * 32)


def listen(test: int) -> ListenOrder:
    return ListenOrder(test=test, index=0, instance="s0.0.1", key="00" * 32)


@pytest.fixture
def answers() -> "queue.Queue[Any]":
    return queue.Queue()


@pytest.mark.integration
def test_a_machine_is_measured_by_torch_in_a_process_of_its_own(answers: "queue.Queue[Any]") -> None:
    test = preflight(answers)
    test.begin(order(7))
    found = answers.get(timeout=60)
    assert isinstance(found, MachineTested)
    assert (found.test, found.failure, found.gpus, found.links) == (7, "", 0, [])
    assert 1e8 < found.cpu_flops < 1e14
    assert 1e8 < found.memory_bytes_per_s < 1e13
    assert 2.5 < found.seconds < 60


def test_the_far_end_reports_where_it_listens(answers: "queue.Queue[Any]") -> None:
    test = preflight(answers)
    test.begin(listen(3))
    found = answers.get(timeout=30)
    assert isinstance(found, Listening)
    assert (found.test, found.failure) == (3, "")
    assert found.port
    test.close()


def test_one_that_takes_too_long_is_ended_and_reported(answers: "queue.Queue[Any]") -> None:
    test = preflight(answers, HANGS[2], limit_s=0.2)
    test.begin(order())
    found = answers.get(timeout=30)
    assert (found.test, found.failure) == (1, "it was ended after 0.2 s")


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("import os; os.kill(os.getpid(), 9)", "its process was killed: the machine may lack memory"),
        ("raise SystemExit(3)", "its process ended with status 3: see the agent's log"),
        ("print('no message')", "its process ended with status 0: see the agent's log"),
    ],
)
def test_a_process_that_sends_nothing_is_a_failure_with_a_reason(
    answers: "queue.Queue[Any]", program: str, says: str
) -> None:
    preflight(answers, program).begin(order())
    assert answers.get(timeout=30).failure == says


def test_a_program_that_cannot_be_started_is_a_failure(answers: "queue.Queue[Any]") -> None:
    Preflight(SETUP, answers.put, command=("/nowhere",)).begin(order())
    assert answers.get(timeout=30).failure.startswith("its process cannot be started: ")


def test_a_repeated_order_is_executed_once_and_another_test_waits(answers: "queue.Queue[Any]") -> None:
    test = preflight(answers, HANGS[2])
    test.begin(order(1))
    test.begin(order(1))
    assert test.testing == [1]
    test.begin(order(2))
    assert answers.get(timeout=30).failure == "test 1 runs on this machine"
    assert answers.empty()
    test.close()
    assert answers.get(timeout=30).test == 1
    test.begin(order(1))
    assert answers.empty()


def test_a_machine_is_the_far_end_of_a_few_tests_at_most(answers: "queue.Queue[Any]") -> None:
    test = preflight(answers, HANGS[2])
    for number in range(running.MOST_LISTENING):
        test.begin(listen(number + 1))
    test.begin(listen(99))
    refused = answers.get(timeout=30)
    assert (refused.test, refused.failure) == (99, "the machine is the far end of 4 tests already")
    test.close()
