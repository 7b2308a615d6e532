"""A Ray cluster beside the tests, and ``paceline`` by the interpreter that has Ray."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import psutil

from controlplane.runtime.embedded.ground import free_port
from tests.architecture.sources import ROOT
from tests.support.waiting import eventually

PYTHON = ROOT / ".venv-adapters" / "bin" / "python"
INSTALL = "the adapters' libraries are not installed: make adapters"
MARK = "PACELINE_TEST_MARK"
BEGINS_S = 120.0


def is_installed() -> bool:
    """Whether `make adapters` has run."""
    return (PYTHON.parents[1] / ".installed").exists()


@dataclass(slots=True, kw_only=True)
class Cluster:
    """Emulated nodes on loopback; whatever is started in them has the cluster's environment."""

    address: str
    nodes: list[str]
    jobs: str
    """Where ``ray job`` submits, if it does."""
    environment: Mapping[str, str]
    process: "subprocess.Popen[str]"
    lines: TextIO

    def kill(self, node: str) -> None:
        """End a node as a crash would: its raylet by SIGKILL."""
        assert self._do(f"kill {node}") == {"killed": node}

    def add(self) -> str:
        """Another node."""
        return str(self._do("add")["node"])

    def paceline(self, *arguments: str, code: int = 0, seconds: float = 400.0, **more: str) -> str:
        """What ``paceline`` prints."""
        return self.run(str(PYTHON), "-m", "paceline", *arguments, code=code, seconds=seconds, **more)

    def run(self, *command: str, code: int = 0, seconds: float = 400.0, **more: str) -> str:
        """What a command prints that knows this cluster."""
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            cwd=ROOT,
            env={**self.environment, "RAY_ADDRESS": self.address, **more},
        )
        assert done.returncode == code, f"{done.stdout[-3000:]}\n{done.stderr[-5000:]}"
        return done.stdout + done.stderr

    @contextmanager
    def started(self, *command: str, **more: str) -> "Iterator[subprocess.Popen[str]]":
        """A command that knows this cluster and prints to a pipe; killed at the end."""
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env={**self.environment, "RAY_ADDRESS": self.address, **more},
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def hosts_with_state(self) -> set[str]:
        """Addresses of the nodes that have an agent's state in their own folder."""
        root = Path(self.environment["XDG_STATE_HOME"])
        return {path.relative_to(root).parts[0] for path in root.glob("*/paceline/**/credential.json")}

    def raylets(self) -> int:
        """Nodes that run."""
        return sum("/raylet/raylet" in " ".join(_words(each)[:1]) for each in family(self.environment[MARK]))

    def left(self) -> list[psutil.Process]:
        """Agents of this cluster, and their workers, that run."""
        return [each for each in family(self.environment[MARK]) if "workers" in _words(each)]

    def _do(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(_line(self.lines, self.process))
        return answer


@contextmanager
def running_cluster(*, nodes: int, cpus: int, jobs_at: int | None = None) -> Iterator[Cluster]:
    """A head without CPUs, and so many nodes; ``jobs_at``: the port at which jobs are submitted."""
    folder, environment = _ground()
    command = [str(PYTHON), str(Path(__file__).with_name("ray_cluster.py")), str(nodes), str(cpus)]
    command += [] if jobs_at is None else [str(jobs_at)]
    with (folder / "said").open("w") as said, (folder / "said").open() as lines, (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=log,
            text=True,
            cwd=ROOT,
            env=environment,
            start_new_session=True,
        )
        try:
            told = json.loads(_line(lines, process, folder / "log"))
            yield Cluster(environment=environment, process=process, lines=lines, **told)
        finally:
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20.0)
            _clear(folder, environment)
            process.wait()


@contextmanager
def running_autoscaler(*, most: int) -> Iterator[Cluster]:
    """A head without CPUs, for which Ray's autoscaler begins nodes of one CPU, up to so many."""
    folder, environment = _ground()
    node, port = "f" * 51 + "00000", free_port()  # the node that Ray's provider for tests takes for the head
    head = f"127.{1 + os.getpid() // 250 % 250}.{os.getpid() % 250}.2"
    types = {
        "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
        "worker": {
            "resources": {"CPU": 1, "object_store_memory": 80 * 1024 * 1024},
            "node_config": {},
            "max_workers": most,
        },
    }
    provider = {
        "type": "external",
        "module": "tests.support.ray_nodes.LoopbackNodes",
        "gcs_address": f"{head}:{port}",
        "use_node_id_as_ip": True,
    }
    config = {"cluster_name": "loopback", "max_workers": most, "provider": provider, "available_node_types": types}
    config |= {"head_node_type": "ray.head.default", "idle_timeout_minutes": 0.05, "upscaling_speed": 1.0}
    config |= {"auth": {}, "docker": {}, "file_mounts": {}, "cluster_synced_files": [], "rsync_exclude": []}
    config |= {"rsync_filter": [], "file_mounts_sync_continuously": False, "initialization_commands": []}
    config |= {f"{role}setup_commands": [] for role in ("", "head_", "worker_")}
    config |= {f"{role}_start_ray_commands": [] for role in ("head", "worker")}
    (folder / "config.json").write_text(json.dumps(config))
    own = {
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": node,
        "RAY_enable_autoscaler_v2": "0",
        "RAY_FAKE_CLUSTER": "1",
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    }
    command = [str(PYTHON.with_name("ray")), "start", "--head", "--block", f"--node-ip-address={head}"]
    command += [f"--port={port}", "--num-cpus=0", f"--object-store-memory={80 * 1024 * 1024}"]
    command += ["--include-dashboard=false", f"--autoscaling-config={folder / 'config.json'}"]
    with (folder / "said").open("w") as said, (folder / "said").open() as lines:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            text=True,
            cwd=ROOT,
            env={**environment, **own},
            start_new_session=True,
        )
        cluster = Cluster(
            address=f"{head}:{port}", nodes=[], jobs="", environment=environment, process=process, lines=lines
        )

        def runs() -> bool:
            assert process.poll() is None, (folder / "said").read_text()[-3000:]
            return "runtime started" in (folder / "said").read_text()

        try:
            eventually(runs, what="the head of the Ray cluster", seconds=BEGINS_S, every=0.1)
            yield cluster
        finally:
            _clear(folder, environment)
            process.wait()


def _ground() -> tuple[Path, dict[str, str]]:
    """A folder of one cluster's own, and the environment of all of its processes."""
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # sockets lie in it: its path must be short
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PACELINE_", "DJANGO_", "RAY_"))}
    return folder, {
        **kept,
        MARK: os.urandom(8).hex(),
        "PYTHONPATH": str(ROOT),
        "RAY_TMPDIR": str(folder),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TRAIN_V2_ENABLED": "1",
        "RAY_raylet_start_wait_time_s": "120",
        "RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT": "120",
        "OMP_NUM_THREADS": "1",
        "XDG_STATE_HOME": str(folder / "state"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "torch"),
    }


def _clear(folder: Path, environment: Mapping[str, str]) -> None:
    """End all that was started in that environment."""
    for left in family(environment[MARK]):
        with suppress(psutil.NoSuchProcess):
            left.send_signal(signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def family(mark: str) -> list[psutil.Process]:
    """Processes that carry the mark, and are not over."""
    return [process for process in psutil.process_iter() if _carries(process, mark)]


def _carries(process: psutil.Process, mark: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == mark
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _words(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return []


def _line(lines: TextIO, process: "subprocess.Popen[str]", log: Path | None = None) -> str:
    found = ""

    def look() -> bool:
        nonlocal found
        found += lines.readline()
        assert process.poll() is None, log.read_text()[-3000:] if log else "the cluster has ended"
        return found.endswith("\n")

    eventually(look, what="a word of the Ray cluster", seconds=BEGINS_S, every=0.05)
    return found
