"""What the chaos and leak benches make of what they see; the benches themselves run for minutes."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from benchmarks.faults import chaos, injection
from benchmarks.faults.links import ANNOUNCED, DataLinkProxies, LinkProxy
from benchmarks.faults.progress import Watch
from benchmarks.live import leak
from tests.support.waiting import eventually


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def sleeper() -> Iterator[psutil.Process]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield psutil.Process(process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def test_a_link_proxy_passes_bytes_both_ways_until_it_is_cut(listening: socket.socket) -> None:
    proxy = LinkProxy(listening.getsockname())
    with contextlib.closing(proxy), socket.create_connection(("127.0.0.1", proxy.port)) as near:
        far, _ = listening.accept()
        with far:
            near.sendall(b"there")
            assert far.recv(10) == b"there"
            far.sendall(b"back")
            assert near.recv(10) == b"back"
            proxy.cut(60.0)
            assert near.recv(10) == b""
            assert far.recv(10) == b""
        with socket.create_connection(("127.0.0.1", proxy.port)) as again:
            assert again.recv(10) == b""


def test_a_stopped_process_continues_by_itself(sleeper: psutil.Process) -> None:
    inject = injection.pause_one(lambda: [sleeper], random.Random(1), (0.2, 0.2))
    assert inject() == sleeper.name()
    eventually(lambda: sleeper.status() == psutil.STATUS_STOPPED, what="its stop")
    eventually(lambda: sleeper.status() != psutil.STATUS_STOPPED, what="its going on")


def test_a_fault_that_finds_no_one_is_none() -> None:
    assert injection.kill_one(list, random.Random(1))() is None


def result(**changes: object) -> chaos.Result:
    fields: dict[str, object] = {
        "seed": 1,
        "seconds": 60.0,
        "faults": [chaos.Injected(at_s=1.0, kind="kill worker", whom="pl w1 job 1", seconds=0.5, seen_s=1.0)],
        "state": "succeeded",
        "reason": "",
        "iterations": 600,
        "rollbacks": 1,
        "restarts": 3,
        "reports": 2400,
        "lost": 0,
        "doubled": 0,
        "replay": "",
        "accuracy": 0.95,
        "undisturbed": 0.955,
    }
    return chaos.Result(**(fields | changes))  # type: ignore[arg-type]


def test_a_job_that_came_through_unharmed_is_no_failure() -> None:
    assert result().failures == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"state": "failed", "reason": "no worker is left"}, "the job ended failed: no worker is left"),
        (
            {"faults": [chaos.Injected(at_s=1.0, kind="kill agent", whom="", seconds=None, seen_s=None)]},
            "the job made no progress within 60 s after: kill agent",
        ),
        (
            {"faults": [chaos.Injected(at_s=1.0, kind="kill agent", whom="", seconds=5.25, seen_s=6.0)]},
            "the job made progress after more than 5 s after: kill agent (5.25 s)",
        ),
        ({"lost": 2}, "2 reports were lost, 0 doubled"),
        ({"replay": "decision 7"}, "the replay differs: decision 7"),
        ({"accuracy": 0.90}, "accuracy 0.9000, undisturbed 0.9550"),
    ],
)
def test_each_harm_is_named(changes: dict[str, object], sentence: str) -> None:
    assert result(**changes).failures == [sentence]


def test_a_watch_tells_the_longest_pause_and_whether_it_lasts() -> None:
    watch = Watch(10.0)
    watch.see(10.5, 13.0, 13.5)
    assert (watch.longest_by(13.6), watch.longest_by(20.0)) == (2.5, None)


def test_growing_memory_is_named_with_its_slope() -> None:
    samples = [(iteration, 100.0 + iteration / 1000) for iteration in range(0, 20_000, 500)]
    slope = leak._slope(samples)
    assert slope == pytest.approx(10.0)
    found = leak.Result(iterations=20_000, seconds=60.0, state="succeeded", memory_mb={}, slopes_mb={"server": slope})
    assert found.failures == ["server grows by 10.0 MB in 10,000 iterations"]


def test_data_link_proxies_lead_from_the_announced_address_to_a_server_and_can_be_cut() -> None:
    code = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True);"
    code += "c, _ = s.accept(); c.sendall(b'values'); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        with contextlib.closing(DataLinkProxies(lambda: [psutil.Process(server.pid)])) as proxies:
            near = eventually(lambda: _connected((ANNOUNCED, port)), what="the proxy")
            with near:
                assert near.recv(10) == b"values"
                said = injection.cut_data(proxies, random.Random(1), (0.1, 0.1))()
                assert said == f"server at {port}, 0.1 s"
                assert near.recv(10) == b""
        server.kill()


def _connected(address: tuple[str, int]) -> socket.socket | None:
    try:
        return socket.create_connection(address)
    except ConnectionRefusedError:
        return None


def test_processes_of_a_job_elsewhere_on_the_machine_are_left_alone() -> None:
    assert injection.processes_of(1, "ws") == []
