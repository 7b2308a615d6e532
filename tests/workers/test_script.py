"""A process of an agent becomes a process of a user's script."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from controlplane.protocol.orders import ProcessOrder, Script
from controlplane.protocol.spec import parse_spec
from paceline import variables
from tests.support.waiting import eventually
from tests.workers.agent.test_spawner import gone
from tests.workers.test_devices import driver
from workers.devices import VISIBLE
from workers.machines import UsageError
from workers.script import ScriptRefused, check_network, prepared
from workers.setup import Setup
from workers.spawner.client import Kit, Spawner
from workers.spawner.messages import Ended, Warm, Wrote
from workers.table import name_of

KEY, TOKEN = "5e" * 32, "plj_" + "7a" * 32
PORT = 20_007


def order(*command: str, rank: int = 1, slot: int = 3, **script: Any) -> ProcessOrder:
    """An order for one of four ranks, of which two are on this machine."""
    spec = parse_spec(
        {"name": "mine", "launch": "attached", "workers": 4, "command": list(command) or ["python", "-V"]}
    )
    facts = {"world": 4, "slots": [2, 3], "address": "10.0.0.1", "attempt": 1, "port": PORT, "token": TOKEN}
    return ProcessOrder(
        job=7,
        role="worker",
        index=rank,
        instance=f"w{rank}.0.1",
        slot=slot,
        key=KEY,
        spec=spec,
        script=Script(**facts | script),
    )


def setup(folder: Path | str | None = "/srv", **more: Any) -> Setup:
    where = None if folder is None else str(folder)
    return Setup(url="https://paceline.example.org", scripts_dir=where, threads=2, **more)


def test_it_gets_the_variables_of_torchrun_and_of_its_job() -> None:
    command, found = prepared(order(), setup(), {"LANG": "C.UTF-8", "PACELINE_RELAY": "/run/relay"})
    assert command == ["python", "-V"]
    path = found.pop("PATH")
    assert path.endswith("bin")
    assert found == {
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "2",
        "RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "20007",
        variables.URL: "https://paceline.example.org",
        variables.JOB: "7",
        variables.TOKEN: TOKEN,
        variables.LAUNCHER: "agent",
    }


def test_programs_beside_the_agents_python_come_first() -> None:
    _, found = prepared(order(), setup(), {"PATH": "/usr/bin"})
    assert found["PATH"].split(os.pathsep)[1:] == ["/usr/bin"]


def test_a_private_network_is_private_for_the_script_too() -> None:
    assert prepared(order(), setup(insecure=True), {})[1]["PACELINE_INSECURE"] == "1"


@pytest.mark.parametrize(
    ("devices", "visible"),
    [
        (("auto",), None),
        (("cuda",), None),
        (("cpu",), ""),
        (("cuda:0", "cuda:1", "cuda:2", "cuda:3"), "2,3"),
        (("cuda:3", "cuda:2", "cuda:1", "cuda:0"), "1,0"),
        (("GPU-a", "GPU-b", "MIG-c", "MIG-d"), "MIG-c,MIG-d"),
        (("cuda:0",), "0"),
        (("cuda:0", "cpu"), ""),
        (("cpu", "cuda:1"), "1"),
    ],
)
def test_local_ranks_number_the_devices_that_it_sees(
    tmp_path: Path, devices: tuple[str, ...], visible: str | None
) -> None:
    _, found = prepared(order(), setup(devices=devices), {}, driver(tmp_path, 4))
    assert found.get(VISIBLE) == visible


def test_an_agent_without_a_folder_runs_no_script() -> None:
    with pytest.raises(ScriptRefused, match=r"runs no scripts: found the command python, .*--allow-scripts DIR"):
        prepared(order(), setup(None), {})


@pytest.mark.parametrize(
    ("more", "cure"),
    [
        ({"host": "10.0.0.5"}, "found the address 10.0.0.5 without --insecure, .*: add --insecure if"),
        ({"announced": "10.0.0.5"}, "found the address 10.0.0.5 without --insecure, .*: add --insecure if"),
        ({"encrypt": True, "insecure": True}, "found --encrypt, .*: leave it out, or"),
    ],
)
def test_an_agent_that_encrypts_allows_no_scripts(more: dict[str, Any], cure: str) -> None:
    """Ranks of a script connect by torch.distributed, which neither encrypts nor authenticates."""
    with pytest.raises(UsageError, match=f"^--allow-scripts /srv: {cure}"):
        check_network(setup(**more))
    check_network(setup(None, **more))


def test_an_agent_allows_scripts_on_its_machine_alone_and_on_a_private_network() -> None:
    check_network(setup())
    check_network(setup(host="10.0.0.5", insecure=True))


def test_rank_0_says_that_its_port_is_taken() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ScriptRefused, match=rf"port {port} of 10.0.0.1, .* is in use .*restarts: 1"):
            prepared(order(rank=0, slot=2, port=port), setup(), {})
        assert prepared(order(rank=1, port=port), setup(), {})[1]["MASTER_PORT"] == str(port)


class Running:
    """A spawner that runs scripts in a folder, and what was heard of them."""

    def __init__(self, folder: Path | None) -> None:
        self._heard: SimpleQueue[Any] = SimpleQueue()
        self.spawner = Spawner(Kit(setup=setup(folder), modules=()), self._heard.put)
        self.lines: list[tuple[str, str]] = []

    def next(self, kind: type[Any]) -> Any:
        """The next message of that kind; lines of output are kept."""
        while True:
            heard = self._heard.get(timeout=60.0)
            if isinstance(heard, Wrote):
                self.lines += [(line.level, line.text) for line in heard.lines]
            if isinstance(heard, kind):
                return heard

    def run(self, *command: str) -> Ended:
        self.spawner.start(order(*command))
        return self.next(Ended)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path)
    running.next(Warm)
    yield running
    running.spawner.close()


@pytest.mark.integration
def test_its_output_and_status_are_reported_without_its_token(running: Running, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, sys\n"
        "print(f'rank {os.environ[\"RANK\"]} in {os.getcwd()} {sys.argv[1:]}')\n"
        "print(f'the secret is {os.environ[\"PACELINE_TOKEN\"]}')\n"
        "sys.exit(3)\n"
    )
    ended = running.run("python", "train.py", "a b", "$HOME; echo no shell")
    assert ended.status == 3
    assert running.lines == [
        ("output", f"rank 1 in {tmp_path} ['a b', '$HOME; echo no shell']"),
        ("output", "the secret is [secret]"),
    ]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("command", "status", "sentence"),
    [
        ("no-such-program", 127, "found no program no-such-program in {} or on this agent's PATH"),
        ("./plain.txt", 127, "found no program ./plain.txt in {} or on this agent's PATH"),
        ("./broken", 126, "./broken cannot be run: Exec format error"),
    ],
)
def test_a_program_that_cannot_be_run_ends_with_a_shells_status(
    running: Running, tmp_path: Path, command: str, status: int, sentence: str
) -> None:
    (tmp_path / "plain.txt").write_text("no program")
    (tmp_path / "broken").write_bytes(b"\x00\x01")
    (tmp_path / "broken").chmod(0o755)
    ended = running.run(command)
    assert (ended.status, ended.tail) == (status, sentence.format(tmp_path))


@pytest.mark.integration
def test_an_agent_that_runs_no_scripts_says_so_in_the_jobs_log() -> None:
    running = Running(None)
    running.next(Warm)
    ended = running.run("python", "-V")
    running.spawner.close()
    assert ended.status == 125
    assert "start the agent with --allow-scripts DIR" in ended.tail


FAMILY = """
import os, pathlib, signal, sys
child = os.fork()
if child == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pause()
pathlib.Path("pids").write_text(f"{os.getpid()} {child}")
signal.pause()
"""


@pytest.mark.integration
def test_all_that_a_script_has_started_ends_with_it(running: Running, tmp_path: Path) -> None:
    (tmp_path / "family.py").write_text(FAMILY)
    ordered = order("python", "family.py")
    running.spawner.start(ordered)
    pids = eventually(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text(), what="its child")
    script, child = map(int, str(pids).split())
    running.spawner.stop(name_of(ordered), grace_s=30.0)
    assert running.next(Ended).status == -signal.SIGTERM
    eventually(lambda: gone(script) and gone(child), what="the end of both")
