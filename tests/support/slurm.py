"""A real Slurm cluster of one machine: munged, slurmctld and some slurmd in a private folder, on private ports."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from controlplane.runtime.embedded.ground import free_port
from tests.support.waiting import eventually

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "squeue")
INSTALL = "no Slurm: apt-get install slurmctld slurmd slurm-client munge"
OWN_SECONDS = 90.0
GRACE_S = 30
"""How long a preempted job has before Slurm ends its script; its steps are ended at once."""

WAIT_S = 60
"""Lifetime of a step's credential: a launch that takes longer is refused, and a requeued job waits for so long."""

CONFIGURATION = """\
ClusterName=paceline
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire={wait_s}
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=0
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
KillWait=15
CompleteWait=0
MessageTimeout=30
InactiveLimit=0
{nodes}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=DEFAULT Nodes=ALL MaxTime=INFINITE State=UP
PartitionName=all Default=YES OverSubscribe=FORCE:4 PriorityTier=1 GraceTime={grace_s}
PartitionName=urgent OverSubscribe=NO PriorityTier=2 GraceTime=0
"""


def why_not() -> str:
    """Why there can be no cluster here; empty if there can."""
    if any(shutil.which(program, path=_path()) is None for program in PROGRAMS):
        return INSTALL
    return "" if os.geteuid() == 0 else "Slurm's daemons switch to the user of a job: these tests run as root"


class Cluster:
    """Where it is, and what it is asked."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder = folder
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        self.configuration = folder / "slurm.conf"
        self.daemons: list[subprocess.Popen[bytes]] = []

    @property
    def environment(self) -> dict[str, str]:
        """Of a user of this cluster."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH"))}
        return own | {"SLURM_CONF": str(self.configuration), "PATH": _path()}

    def ask(self, *command: str) -> str:
        """What a command of Slurm's prints; it must succeed."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False, timeout=OWN_SECONDS
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr or done.stdout}"
        return done.stdout

    def job(self, number: int) -> Mapping[str, str]:
        """What Slurm says of a job, by its own names."""
        pairs = (word.partition("=") for word in self.ask("scontrol", "--oneliner", "show", "job", str(number)).split())
        return {name: value for name, _, value in pairs}

    def await_state(self, number: int, *states: str, seconds: float = 60.0) -> Mapping[str, str]:
        """The job, once it is in one of these states."""

        def look() -> Mapping[str, str] | None:
            found = self.job(number)
            return found if found["JobState"] in states else None

        found = eventually(look, what=f"Slurm job {number} {' or '.join(states)}", seconds=seconds, every=0.2)
        assert found is not None
        return found

    def start_again(self, number: int) -> None:
        """Have a requeued job start now, instead of after ``cred_expire``.

        Two seconds on: nodes take credentials of the second in which they ended the job for those of its former life
        ("Job credential revoked"), and Slurm ends it.
        """
        self.await_state(number, "PENDING")
        self.ask("scontrol", "update", f"job={number}", "StartTime=now+2seconds")

    def daemons_of_step(self, number: int) -> list[psutil.Process]:
        """Slurm's process for the first step of a job on each of its nodes, once it has started a task there."""
        title = f"slurmstepd: [{number}.0]"
        found = set()
        for process in self._left():
            with suppress(psutil.NoSuchProcess):
                parent = process.parent()
                if parent is not None and title in " ".join(parent.cmdline()):
                    found.add(parent)
        return [*found]

    def resume(self, node: str) -> None:
        """Let a node that was drained or lost take jobs; one may have recovered by itself."""
        with suppress(AssertionError):
            self.ask("scontrol", "update", f"node={node}", "state=resume")

    def begin(self) -> None:
        """Start all of it, and wait until every node takes jobs."""
        for name in ("munge", "state", "spool"):
            (self.folder / name).mkdir(mode=0o700 if name == "munge" else 0o755)
        self.folder.chmod(0o755)
        key = self.folder / "munge" / "key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        self.configuration.write_text(self._configured())
        self._start(
            *("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={self.folder}/munge.socket"),
            *(f"--pid-file={self.folder}/munge/pid", f"--log-file={self.folder}/munge/log"),
            f"--seed-file={self.folder}/munge/seed",
        )
        eventually(lambda: (self.folder / "munge.socket").exists(), what="munged", seconds=OWN_SECONDS)
        self._start("slurmctld", "-D", "-c")
        for name in self.names:
            self._start("slurmd", "-D", "-N", name)
        eventually(self._is_up, what="every node of the cluster", seconds=60, every=0.2)

    def end(self) -> None:
        """End its jobs, its daemons and what they have left, by process number."""
        with suppress(AssertionError, subprocess.TimeoutExpired):
            self.ask("scancel", "--user=root")
            eventually(lambda: not self.ask("squeue", "--noheader").strip(), what="the end of all jobs", seconds=20)
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 5
        for daemon in reversed(self.daemons):
            try:
                daemon.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for process in self._left():
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def _is_up(self) -> bool:
        done = subprocess.run(
            ["sinfo", "--noheader", "--Node", "--partition=all", "--format=%T"],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=OWN_SECONDS,
        )
        return done.returncode == 0 and done.stdout.split() == ["idle"] * len(self.names)

    def _start(self, *command: str) -> None:
        with (self.folder / f"output-{len(self.daemons)}.txt").open("w") as output:
            self.daemons.append(
                subprocess.Popen(
                    command,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            )

    def _configured(self) -> str:
        host = socket.gethostname().partition(".")[0]
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=2 RealMemory=1000"
            for name in self.names
        )
        return CONFIGURATION.format(
            host=host, port=free_port(), folder=self.folder, nodes=nodes, wait_s=WAIT_S, grace_s=GRACE_S
        )

    def _left(self) -> list[psutil.Process]:
        """Steps that a killed slurmd has left behind, and their processes."""
        mark = str(self.configuration)
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.pid != os.getpid() and process.environ().get("SLURM_CONF") == mark:
                    found.append(process)
        return found


def _path() -> str:
    """Daemons lie where only root looks."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


@contextmanager
def running_cluster(folder: Path, nodes: int = 3) -> Iterator[Cluster]:
    """A cluster that ends with the block."""
    cluster = Cluster(folder, nodes)
    try:
        cluster.begin()
        yield cluster
    finally:
        cluster.end()
