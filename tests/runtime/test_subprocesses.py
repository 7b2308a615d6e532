"""What is done aside: its outcome, its failure in one line, and its end when the process that asked ends."""

import os
from threading import Event

import pytest

from controlplane.runtime import subprocesses
from controlplane.runtime.subprocesses import BrokenOff, Failed, run_in_subprocess

pytestmark = pytest.mark.integration


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine who yields to all others never gets a turn."""
    monkeypatch.setattr(subprocesses, "NICENESS", 0)


@pytest.mark.usefixtures("at_once")
def test_what_it_prints_comes_back() -> None:
    assert "demo" in run_in_subprocess(["simulate"], Event())


@pytest.mark.usefixtures("at_once")
def test_a_failure_is_reported_in_its_last_line() -> None:
    with pytest.raises(Failed, match=r"^scenario: found 'dem', expected one of those that"):
        run_in_subprocess(["simulate", "dem"], Event())


def test_it_is_broken_off_when_the_process_that_asked_ends() -> None:
    stopping = Event()
    stopping.set()
    with pytest.raises(BrokenOff):
        run_in_subprocess(["simulate", "cluster-b"], stopping)


def test_it_is_broken_off_when_it_takes_too_long() -> None:
    with pytest.raises(BrokenOff, match=r"^it took more than 0 s and was stopped$"):
        run_in_subprocess(["simulate"], Event(), most_s=0.0)


def test_it_yields_to_all_others(monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]) -> None:
    told = os.path.join(tmp_path, "manage.py")
    with open(told, "w") as program:
        program.write("import os; print(os.nice(0))")
    monkeypatch.setattr(subprocesses, "MANAGE", [told])
    assert int(run_in_subprocess([], Event())) == min(19, os.nice(0) + subprocesses.NICENESS)
