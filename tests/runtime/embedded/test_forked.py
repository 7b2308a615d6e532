"""Services that are forked: what they are given, how they end, and that they never outlive the fork server."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from controlplane.runtime.embedded.control_plane import CHECKOUT
from controlplane.runtime.embedded.errors import CannotStart
from controlplane.runtime.embedded.forked import ForkServer
from controlplane.runtime.embedded.processes import Service, stop_services
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="services are forked on Linux only")

SERVES = ["-m", "http.server", "0", "--bind", "127.0.0.1"]
"""A module that ends only by a signal."""


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    with closing(fork_server(tmp_path_factory.mktemp("forks"))) as server:
        service = started(server)
        yield server
        stop_services([service])


def fork_server(folder: Path) -> ForkServer:
    environment = {"PACELINE_DATA_DIR": str(folder), "PYTHONPATH": str(CHECKOUT), "REDIS_URL": "redis://127.0.0.1:1/0"}
    return ForkServer(environment=environment, log=folder / "fork-server.log", folder=CHECKOUT)


def started(server: ForkServer) -> Service:
    service = server.start()
    eventually(server.is_ready, what="the imports", seconds=120)
    return service


def forked(forks: ForkServer, folder: Path, *arguments: str, **environment: str) -> Service:
    command = [sys.executable, *arguments]
    return forks.start_service("web", command, log=folder / "log", environment={"PATH": "/bin", **environment})


def test_a_module_runs_with_its_arguments_and_logs_what_it_prints(forks: ForkServer, tmp_path: Path) -> None:
    service = forked(forks, tmp_path, "-m", "calendar", "2026", "11")
    assert service.process.wait(timeout=30) == 0
    assert "November 2026" in service.log.read_text()


def test_processes_that_end_at_once_are_told_apart(forks: ForkServer, tmp_path: Path) -> None:
    modules = ["calendar", "no_such_module"] * 4
    services = [forked(forks, tmp_path, "-m", module) for module in modules]
    assert [service.process.wait(timeout=60) for service in services] == [0, 1] * 4
    assert len({service.process.pid for service in services}) == len(services)


def test_it_has_the_environment_it_was_given(forks: ForkServer, tmp_path: Path) -> None:
    service = forked(forks, tmp_path, "-m", "timeit", "-n1", "-r1", "import os; print(sorted(os.environ))", GATE="1")
    assert service.process.wait(timeout=30) == 0
    assert "['GATE', 'PATH']" in service.log.read_text()


def test_a_module_that_fails_is_reported_with_the_end_of_its_log(forks: ForkServer, tmp_path: Path) -> None:
    service = forked(forks, tmp_path, "-m", "no_such_module")
    assert service.process.wait(timeout=30) == 1
    with pytest.raises(CannotStart, match=r"web ended with exit code 1\.(.|\n)*No module named no_such_module"):
        service.check()


def test_it_is_named_and_ends_by_a_signal(forks: ForkServer, tmp_path: Path) -> None:
    service = forked(forks, tmp_path, *SERVES)
    with pytest.raises(subprocess.TimeoutExpired):
        service.process.wait(timeout=0.01)
    eventually(lambda: psutil.Process(service.process.pid).name() == "paceline web", what="its name")
    service.ask_to_stop()
    assert service.process.wait(timeout=30) == -signal.SIGTERM
    service.ask_to_stop()
    assert service.ending() == "was ended by SIGTERM"


def test_it_shares_what_the_fork_server_imported(forks: ForkServer, tmp_path: Path) -> None:
    service = forked(forks, tmp_path, *SERVES)
    try:
        memory = psutil.Process(service.process.pid).memory_full_info()
        assert memory.uss < memory.rss / 2
    finally:
        stop_services([service])


def test_a_log_that_cannot_be_written_is_named(forks: ForkServer, tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="web: cannot write its log"):
        forks.start_service("web", [sys.executable, *SERVES], log=tmp_path / "none" / "log", environment={})


def test_services_end_with_the_fork_server_and_the_next_one_starts_others(tmp_path: Path) -> None:
    with closing(fork_server(tmp_path)) as forks:
        first = started(forks)
        service = forked(forks, tmp_path, *SERVES)
        process = psutil.Process(service.process.pid)
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        process.wait(timeout=30)
        assert service.process.wait(timeout=30) == -signal.SIGKILL
        assert not forks.is_ready()
        with pytest.raises(CannotStart, match="web: the fork server has ended; its log: "):
            forked(forks, tmp_path, *SERVES)
        second = started(forks)
        assert forked(forks, tmp_path, "-m", "calendar").process.wait(timeout=30) == 0
        stop_services([second])
