"""How a script ends: only a loop that ends by itself has finished its job."""

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from controlplane.protocol.messages import WorkerFinished
from paceline.ending import watch_for_the_end
from paceline.pacer import Pacer
from tests.paceline.ranks import Script, paced


class Told:
    """What an ending was told."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []

    def failed(self, error: BaseException) -> None:
        self.errors.append(error)

    def close(self) -> None:
        """Called when the test run ends, as it was registered."""


@pytest.fixture(autouse=True)
def _hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of Python are put back after each test; an exception of a thread is not printed."""
    for place, name in ((sys, "excepthook"), (sys, "exit")):
        monkeypatch.setattr(place, name, getattr(place, name))
    monkeypatch.setattr(threading, "excepthook", lambda raised: None)


def test_an_exception_of_the_thread_that_attached_is_reported_and_one_of_another_thread_is_not() -> None:
    told, errors = Told(), [RuntimeError("of the loop"), RuntimeError("of another")]

    def loop() -> None:
        watch_for_the_end(told)
        other = threading.Thread(target=raising, args=(errors[1],))
        other.start()
        other.join()
        raise errors[0]

    def raising(error: BaseException) -> None:
        raise error

    thread = threading.Thread(target=loop)
    thread.start()
    thread.join()
    assert told.errors == errors[:1]


@pytest.mark.parametrize(("status", "is_failure"), [(None, False), (0, False), (2, True), ("no data", True)])
def test_an_exit_with_a_status_is_a_failure(status: object, is_failure: bool) -> None:
    told = Told()
    watch_for_the_end(told)
    with pytest.raises(SystemExit):
        sys.exit(status)  # type: ignore[arg-type]
    assert [error.code for error in told.errors if isinstance(error, SystemExit)] == [status] * is_failure


def trained(iterations: int) -> tuple[Pacer, Script, Iterator[Any]]:
    pacer, script = paced(0, 1, {})
    batches = iter(pacer.loader(range(64), 2, seed=1))
    for _ in range(iterations):
        next(batches)
        pacer.step(torch.tensor(1.0))
    return pacer, script, batches


def test_a_loop_that_has_failed_is_not_reported_as_finished() -> None:
    pacer, script, _ = trained(3)
    pacer.failed(RuntimeError("CUDA error"))
    pacer.close()
    assert script.closed
    assert script.all_said(WorkerFinished) == []


def test_an_exit_that_the_script_caught_before_it_trained_on_is_no_failure() -> None:
    pacer, script, batches = trained(3)
    pacer.failed(SystemExit(1))
    next(batches)
    pacer.step(torch.tensor(1.0))
    pacer.close()
    assert [message.iteration for message in script.all_said(WorkerFinished)] == [4]
