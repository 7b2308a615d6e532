"""The warm spawner and the processes that it forks: real ones."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil
import pytest

from controlplane.protocol.orders import ProcessOrder, Role
from tests.support.waiting import eventually
from tests.workers.agent.entries import there
from tests.workers.agent.values import KEY, behaving, process_order
from workers.setup import Setup
from workers.spawner.client import MODULES, Kit, Lost, Spawner
from workers.spawner.messages import Ended, Started, Warm, Wrote
from workers.table import name_of

pytestmark = pytest.mark.integration
ENTRY = "tests.workers.agent.entries:act"


class Brood:
    """A spawner and what was heard from it."""

    def __init__(self, folder: Path, *, modules: tuple[str, ...] = ()) -> None:
        self.setup = Setup(url=str(folder))
        self._heard: SimpleQueue[Any] = SimpleQueue()
        kit = Kit(setup=self.setup, entry=ENTRY, modules=modules)
        self.spawner = Spawner(kit, self._heard.put)

    def next(self, kind: type[Any]) -> Any:
        """The next thing heard but for output, which is to be of that kind."""
        heard = self._heard.get(timeout=60.0)
        while isinstance(heard, Wrote) and kind is not Wrote:
            heard = self._heard.get(timeout=60.0)
        assert isinstance(heard, kind), heard
        return heard

    def start(self, behaviour: str, index: int = 0, role: Role = "worker") -> tuple[ProcessOrder, int]:
        """Fork a process that behaves so; it has its signals set when this returns its pid."""
        order = process_order(index, role=role, spec=behaving(behaviour))
        self.spawner.start(order)
        pid = self.next(Started).pid
        eventually(lambda: there(self.setup, order).exists(), what=f"{behaviour} {index}")
        return order, pid


@pytest.fixture
def brood(tmp_path: Path) -> Iterator[Brood]:
    brood = Brood(tmp_path)
    brood.next(Warm)
    yield brood
    brood.spawner.close()


def gone(pid: int) -> bool:
    """Whether a process has ended; a zombie that waits for its new parent has."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_process_is_forked_and_its_end_is_reported(brood: Brood) -> None:
    order = process_order(spec=behaving("end"))
    brood.spawner.start(order)
    started = brood.next(Started)
    assert started == Started(process=name_of(order), pid=started.pid)
    assert brood.next(Ended) == Ended(process=name_of(order), status=0, tail="")


def test_an_exception_ends_a_process_with_1_and_its_traceback(brood: Brood) -> None:
    brood.spawner.start(process_order(spec=behaving("fail")))
    brood.next(Started)
    ended = brood.next(Ended)
    assert ended.status == 1
    assert ended.tail.startswith("Traceback (most recent call last)")
    assert ended.tail.endswith("ValueError: no such data set")


def test_only_the_last_lines_of_the_output_are_kept(brood: Brood) -> None:
    brood.spawner.start(process_order(spec=behaving("chatter")))
    brood.next(Started)
    ended = brood.next(Ended)
    assert ended.status == 3
    assert ended.tail.split("\n") == [*(f"line {line}" for line in range(4980, 5000)), "no newline at the end"]


def test_a_killed_process_is_reported_with_its_signal(brood: Brood) -> None:
    order, pid = brood.start("wait")
    os.kill(pid, signal.SIGKILL)
    assert brood.next(Ended) == Ended(process=name_of(order), status=-9, tail="")


def test_a_process_that_is_asked_may_end_by_itself(brood: Brood) -> None:
    order, _ = brood.start("polite")
    brood.spawner.stop(name_of(order), grace_s=30.0)
    assert brood.next(Ended).status == 0


def test_a_process_that_does_not_end_when_asked_is_killed(brood: Brood) -> None:
    order, _ = brood.start("stubborn")
    brood.spawner.stop(name_of(order), grace_s=0.1)
    assert brood.next(Ended).status == -9


def test_asking_again_with_less_patience_shortens_the_grace(brood: Brood) -> None:
    order, _ = brood.start("stubborn")
    brood.spawner.stop(name_of(order), grace_s=1000.0)
    brood.spawner.stop(name_of(order), grace_s=0.0)
    assert brood.next(Ended).status == -9


def test_processes_end_one_by_one(brood: Brood) -> None:
    first, _ = brood.start("polite", 0)
    _, second_pid = brood.start("polite", 1)
    server, _ = brood.start("polite", 0, "server")
    brood.spawner.stop(name_of(first), grace_s=30.0)
    assert brood.next(Ended).process == name_of(first)
    assert not gone(second_pid)
    brood.spawner.stop(name_of(server), grace_s=30.0)
    assert brood.next(Ended).process == name_of(server)
    assert not gone(second_pid)


def test_no_command_line_or_environment_contains_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_TOKEN", "enrolment-token")
    monkeypatch.setenv("PACELINE_API_TOKEN", "token-of-a-user")
    brood = Brood(tmp_path)
    brood.next(Warm)
    _, pid = brood.start("wait")
    for each in (brood.spawner.pid, pid):
        seen = Path(f"/proc/{each}/cmdline").read_bytes() + Path(f"/proc/{each}/environ").read_bytes()
        assert KEY.encode() not in seen
        assert b"enrolment-token" not in seen
        assert b"token-of-a-user" not in seen
    brood.spawner.close()


def test_numerical_libraries_start_no_threads_before_a_fork(brood: Brood) -> None:
    brood.spawner.start(process_order(spec=behaving("show-environment")))
    brood.next(Started)
    assert brood.next(Ended).tail == "None 1\n".strip()


def test_the_spawner_has_one_thread_with_everything_imported(tmp_path: Path) -> None:
    brood = Brood(tmp_path, modules=MODULES)
    assert brood.next(Warm) == Warm(threads=1)
    brood.spawner.close()


def test_processes_die_with_their_spawner(brood: Brood) -> None:
    _, first = brood.start("stubborn", 0)
    _, second = brood.start("wait", 1)
    os.kill(brood.spawner.pid, signal.SIGKILL)
    assert brood.next(Lost) == Lost(-9)
    eventually(lambda: gone(first) and gone(second), what="the end of both processes")


def test_a_spawner_ends_its_processes_before_itself(brood: Brood) -> None:
    brood.start("polite", 0)
    brood.start("polite", 1)
    os.kill(brood.spawner.pid, signal.SIGTERM)
    assert [brood.next(Ended).status for _ in range(2)] == [0, 0]
    assert brood.next(Lost) == Lost(0)


def test_a_spawner_whose_agent_hangs_up_leaves_nothing_behind(brood: Brood) -> None:
    _, pid = brood.start("stubborn")
    brood.spawner.close()
    assert gone(brood.spawner.pid)
    assert gone(pid)


def test_a_module_that_cannot_be_imported_ends_the_spawner_before_it_is_warm(tmp_path: Path) -> None:
    brood = Brood(tmp_path, modules=("no_such_module",))
    assert brood.next(Lost) == Lost(1)
    brood.spawner.close()
