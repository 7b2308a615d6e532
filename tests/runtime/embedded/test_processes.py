"""Services: what they say, how they end, and that they never outlive whoever started them."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from controlplane.runtime.embedded.errors import CannotStart, Interrupted
from controlplane.runtime.embedded.interruption import Interruption
from controlplane.runtime.embedded.processes import Service, start_service
from controlplane.runtime.embedded.supervisor import Supervisor
from tests.support.waiting import eventually

READ_ALL = [sys.executable, "-c", "import sys; print(sys.stdin.read().upper())"]
WAIT = [sys.executable, "-c", "import signal; print('ready', flush=True); signal.pause()"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); signal.pause()",
]

PARENT = """
import sys
from pathlib import Path
from types import SimpleNamespace
from controlplane.runtime.embedded.processes import start_service
service = start_service("child", ["sleep", "600"], log=Path(sys.argv[1]))
print(service.process.pid, flush=True)
sys.stdin.read()
"""


def is_ready(service: Service) -> bool:
    return "ready" in service.log.read_text()


def test_a_secret_reaches_a_service_on_its_standard_input(tmp_path: Path) -> None:
    service = start_service("reader", READ_ALL, log=tmp_path / "log", stdin=b"token")
    service.process.wait(timeout=10)
    assert service.log.read_text() == "TOKEN\n"


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"web: cannot run /nowhere/program \(No such file or directory\)\."):
        start_service("web", ["/nowhere/program"], log=tmp_path / "log")


def test_a_service_that_ended_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    service = start_service("web", ["sh", "-c", "echo no such setting; exit 3"], log=tmp_path / "web.log")
    service.process.wait(timeout=10)
    with pytest.raises(CannotStart) as caught:
        service.check()
    assert str(caught.value) == (
        f"web ended with exit code 3. The end of its log, {tmp_path / 'web.log'}:\n    no such setting"
    )


@pytest.mark.parametrize(("free", "why"), [(0, "no output: there is no space left in {}"), (1 << 30, "no output")])
def test_a_service_without_output_is_reported_with_the_space_on_its_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, why: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    service = start_service("beat", ["false"], log=tmp_path / "beat.log")
    service.process.wait(timeout=10)
    assert service.tail() == f"    ({why.format(tmp_path)})"


def test_a_full_disk_is_named_below_the_log_of_a_service_that_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    service = start_service("beat", ["sh", "-c", "echo KeyError; exit 1"], log=tmp_path / "beat.log")
    service.process.wait(timeout=10)
    assert service.tail() == f"    KeyError\n    (there is no space left in {tmp_path})"


def test_the_end_of_a_log_has_no_lines_of_an_earlier_process(tmp_path: Path) -> None:
    for reason in ("no such table", "no such setting"):
        service = start_service("migrate", ["sh", "-c", f"echo {reason}; exit 1"], log=tmp_path / "migrate.log")
        service.process.wait(timeout=10)
    assert service.tail() == "    no such setting"


def test_leaving_the_supervisor_ends_every_service(tmp_path: Path) -> None:
    with Supervisor(Interruption()) as supervisor:
        services = [start_service(name, WAIT, log=tmp_path / name) for name in ("a", "b")]
        supervisor.add(services[0])
        supervisor.add(services[1])
    assert [service.process.returncode for service in services] == [-signal.SIGTERM, -signal.SIGTERM]


def test_a_service_that_ignores_the_request_is_killed_at_the_deadline(tmp_path: Path) -> None:
    service = start_service("stubborn", STUBBORN, log=tmp_path / "log")
    eventually(lambda: is_ready(service), what="the stubborn service's start")
    service.ask_to_stop()
    service.await_stop(0.1)
    assert service.process.returncode == -signal.SIGKILL


def test_what_a_service_had_started_ends_with_it(tmp_path: Path) -> None:
    service = start_service("shell", ["sh", "-c", "sleep 600 & echo $! ready; wait"], log=tmp_path / "log")
    eventually(lambda: is_ready(service), what="the shell's start")
    grandchild = psutil.Process(int(service.log.read_text().split()[0]))
    service.ask_to_stop()
    service.await_stop(5)
    eventually(lambda: not is_alive(grandchild), what="the grandchild's end")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_service_ends_with_its_parent_however_that_ends(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=os.getcwd(),
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.send_signal(number)
    eventually(lambda: not is_alive(child), what="the child's end")


def test_a_wait_ends_at_once_when_a_service_does(tmp_path: Path) -> None:
    with Supervisor(Interruption()) as supervisor:
        supervisor.add(start_service("beat", ["false"], log=tmp_path / "log"))
        with pytest.raises(CannotStart, match="beat ended with exit code 1"):
            supervisor.wait_until(lambda: False, what="The start", seconds=60)


def test_a_wait_that_takes_too_long_reports_where_to_look(tmp_path: Path) -> None:
    with Supervisor(Interruption()) as supervisor:
        supervisor.add(start_service("web", WAIT, log=tmp_path / "log"))
        with pytest.raises(CannotStart, match=rf"The start took longer than 0 s\. Logs are in {tmp_path}"):
            supervisor.wait_until(lambda: False, what="The start", seconds=0)


def test_a_signal_ends_a_wait_and_then_acts_as_before(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Interruption() as interruption, Supervisor(interruption) as supervisor:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted):
            supervisor.wait_until(lambda: False, what="The start", seconds=60)
    assert signal.getsignal(signal.SIGTERM) is before


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
