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

from controlplane.runtime import log
from controlplane.runtime.bench import chaos, leak, strikes
from controlplane.runtime.bench.progress import Progress, Watch
from controlplane.runtime.redis import Client
from tests.runtime import support
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


def test_a_wire_passes_bytes_both_ways_until_it_is_cut(listening: socket.socket) -> None:
    wire = strikes.Wire(listening.getsockname())
    with contextlib.closing(wire), socket.create_connection(("127.0.0.1", wire.port)) as near:
        far, _ = listening.accept()
        with far:
            near.sendall(b"there")
            assert far.recv(10) == b"there"
            far.sendall(b"back")
            assert near.recv(10) == b"back"
            wire.cut(60.0)
            assert near.recv(10) == b""
            assert far.recv(10) == b""
        with socket.create_connection(("127.0.0.1", wire.port)) as again:
            assert again.recv(10) == b""


def test_a_stopped_process_goes_on_by_itself(sleeper: psutil.Process) -> None:
    strike = strikes.stop_one(lambda: [sleeper], random.Random(1), (0.2, 0.2))
    assert strike() == sleeper.name()
    eventually(lambda: sleeper.status() == psutil.STATUS_STOPPED, what="its stop")
    eventually(lambda: sleeper.status() != psutil.STATUS_STOPPED, what="its going on")


def test_a_fault_that_finds_nobody_is_none() -> None:
    assert strikes.kill_one(list, random.Random(1))() is None


def result(**changes: object) -> chaos.Result:
    fields: dict[str, object] = {
        "seed": 1,
        "seconds": 60.0,
        "struck": [chaos.Struck(at_s=1.0, kind="kill worker", whom="pl w1 job 1", seconds=0.5, seen_s=1.0)],
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
            {"struck": [chaos.Struck(at_s=1.0, kind="kill agent", whom="", seconds=None, seen_s=None)]},
            "the job did not go on within 60 s after: kill agent",
        ),
        (
            {"struck": [chaos.Struck(at_s=1.0, kind="kill agent", whom="", seconds=5.25, seen_s=6.0)]},
            "the job went on after more than 5 s after: kill agent (5.25 s)",
        ),
        ({"lost": 2}, "2 reports were lost, 0 doubled"),
        ({"replay": "decision 7"}, "the replay differs: decision 7"),
        ({"accuracy": 0.90}, "accuracy 0.9000, undisturbed 0.9550"),
    ],
)
def test_each_harm_is_named(changes: dict[str, object], sentence: str) -> None:
    assert result(**changes).failures == [sentence]


@pytest.mark.usefixtures("enqueued")
def test_the_first_report_of_an_iteration_is_progress_and_so_is_one_of_a_new_generation(client: Client) -> None:
    support.submit(client)
    progress = Progress(client, support.JOB)
    said = [(0, 0, 1), (1, 0, 1), (0, 1, 1), (1, 1, 1), (0, 0, 2), (1, 1, 1)]
    entries = [
        log.append_event(
            support.JOB,
            support.report(iteration + 2, rank=rank, iteration=iteration, generation=generation),
            client=client,
        )
        for rank, iteration, generation in said
    ]
    times = progress.since_last_look()
    assert times == sorted(times)
    assert len(times) == 3, entries
    assert progress.since_last_look() == []


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


def test_data_wires_lead_from_the_announced_address_to_a_server_and_can_be_cut() -> None:
    code = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True);"
    code += "c, _ = s.accept(); c.sendall(b'values'); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        with contextlib.closing(strikes.DataWires(lambda: [psutil.Process(server.pid)])) as wires:
            near = eventually(lambda: _connected((strikes.ANNOUNCED, port)), what="the wire")
            with near:
                assert near.recv(10) == b"values"
                said = strikes.cut_data(wires, random.Random(1), (0.1, 0.1))()
                assert said == f"server at {port}, 0.1 s"
                assert near.recv(10) == b""
        server.kill()


def _connected(address: tuple[str, int]) -> socket.socket | None:
    try:
        return socket.create_connection(address)
    except ConnectionRefusedError:
        return None


def test_processes_of_a_job_elsewhere_on_the_machine_are_left_alone() -> None:
    assert strikes.processes_of(1, "ws") == []
