"""Services that end by themselves: which are started again, how often, and what the operator is told."""

import signal
import sys
from pathlib import Path

import pytest

from controlplane.runtime.embedded.errors import CannotStart
from controlplane.runtime.embedded.interruption import Interruption
from controlplane.runtime.embedded.processes import Service, start_service
from controlplane.runtime.embedded.supervisor import Restarts, Supervisor
from tests.support.waiting import eventually

WAIT = [sys.executable, "-c", "import signal; print('ready', flush=True); signal.pause()"]


@pytest.fixture
def ended(tmp_path: Path) -> Service:
    """A service that is over."""
    service = start_service("decisions", ["sh", "-c", "echo out of memory; exit 3"], log=tmp_path / "log")
    service.process.wait()
    return service


def test_a_service_that_dies_is_started_again_and_the_operator_is_notified(tmp_path: Path) -> None:
    said: list[str] = []
    with Supervisor(Interruption(), say=said.append) as supervisor:
        first = start_service("decisions", WAIT, log=tmp_path / "log")
        supervisor.add(first)
        supervisor.keep_running({"decisions": lambda: start_service("decisions", WAIT, log=tmp_path / "log")})
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        supervisor.wait_until(lambda: supervisor.services[0] is not first, what="The restart", seconds=10)
        (second,) = supervisor.services
        assert not second.is_over()
    assert said == [f"decisions was ended by SIGKILL; restarting now. Its log: {tmp_path / 'log'}"]
    assert second.is_over()


def test_another_service_that_dies_ends_the_wait(tmp_path: Path) -> None:
    with Supervisor(Interruption()) as supervisor:
        redis = start_service("redis", WAIT, log=tmp_path / "log")
        eventually(lambda: "ready" in redis.log.read_text(), what="its start")
        supervisor.add(redis)
        supervisor.keep_running({"decisions": lambda: redis})
        redis.process.send_signal(signal.SIGKILL)
        with pytest.raises(CannotStart, match="redis was ended by SIGKILL"):
            supervisor.watch()


def test_pauses_grow_and_the_sixth_end_within_a_minute_is_final(ended: Service) -> None:
    said: list[str] = []
    now, restarts = 0.0, Restarts(lambda: ended)
    for pause in (0.0, 1.0, 2.0, 4.0, 8.0):
        if pause:
            assert restarts.successor(ended, now, said.append) is None
            assert restarts.successor(ended, now + pause - 0.01, said.append) is None
        now += pause
        assert restarts.successor(ended, now, said.append) is ended
    assert len(said) == 5
    with pytest.raises(CannotStart) as caught:
        restarts.successor(ended, now, said.append)
    assert str(caught.value) == (
        "decisions ended with exit code 3, after 5 restarts within 60 s. "
        f"The end of its log, {ended.log}:\n    out of memory"
    )


def test_what_was_more_than_a_minute_ago_is_forgiven(ended: Service) -> None:
    restarts = Restarts(lambda: ended)
    assert all(restarts.successor(ended, 61.0 * k, lambda line: None) is ended for k in range(10))
