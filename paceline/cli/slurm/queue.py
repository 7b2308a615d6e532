"""Queries and requests to Slurm, with its own commands."""

import re
import subprocess
from collections.abc import Mapping, Sequence

import msgspec

from paceline.cli.errors import Refusal

CLIENT_S = 60.0
GONE = "Invalid job id"
"""Slurm's response for a job that it has forgotten."""

NEVER = "None"
"""Slurm's value for a time that is not set."""

NO_CLUSTER = "Could not establish a configuration source"
"""Slurm's response if it is installed but belongs to no cluster."""


FORMAT = "%A|%T|%D|%r|%j|%k"
ROW = re.compile(r"(\d+)\|([A-Z_]+)\|([^|]*)\|(.*)\|paceline-(\d+)\|([^|]*)")
"""A job in the queue with the name that ``script`` gives it, in ``FORMAT``."""


class Entry(msgspec.Struct, frozen=True):
    """A job in Slurm's queue with the name of one of Paceline's."""

    id: int
    state: str
    nodes: str
    """As Slurm writes it: a number, or ``2K`` for large ones."""
    reason: str
    job: int
    """The number in its name."""
    page: str
    """Its comment: the page of Paceline's job."""


def run_slurm(*command: str) -> str:
    """Run a Slurm command and return its output.

    Raises:
        Refusal: if it is not installed, or fails.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=CLIENT_S)
    except FileNotFoundError:
        raise Refusal(
            f"{command[0]}: found no such command on the PATH, expected Slurm's; run this on a login node of the "
            "cluster, or install its client (slurm-client)"
        ) from None
    except subprocess.TimeoutExpired:
        raise Refusal(f"{command[0]}: found no answer within {CLIENT_S:.0f} s; look whether slurmctld runs") from None
    if done.returncode and NO_CLUSTER in done.stderr:
        raise Refusal(
            f"{command[0]}: found no cluster, neither in SLURM_CONF nor /etc/slurm nor by DNS, expected one; run "
            "this on a login node of the cluster, or name its slurm.conf in SLURM_CONF"
        )
    if done.returncode:
        lines = [re.sub(rf"^{command[0]}: (error: )?", "", line) for line in done.stderr.splitlines() if line.strip()]
        raise Refusal(f"{command[0]} refused: {'; '.join(lines) or f'it exited with {done.returncode} and no output'}")
    return done.stdout


def check_partition(name: str) -> None:
    """Check that the partition exists.

    Raises:
        Refusal: if there is none.
    """
    known = sorted(set(run_slurm("sinfo", "--noheader", "--format=%R").split()))
    if unknown := [each for each in name.split(",") if each not in known]:
        raise Refusal(f"--partition: found {unknown[0]!r}, expected one of {', '.join(known)}")


def submit(script: str) -> int:
    """Submit a script; return the job's number.

    Raises:
        Refusal: if Slurm rejects it.
    """
    return int(run_slurm("sbatch", "--parsable", script).partition(";")[0])


def entries() -> list[Entry]:
    """The unfinished jobs of the current user that are named like one of Paceline's; any others may be in the queue."""
    rows = run_slurm("squeue", "--me", "--noheader", "--array", f"--format={FORMAT}").splitlines()
    found = (row.groups() for row in map(ROW.fullmatch, rows) if row)
    return [
        Entry(int(number), state, nodes, reason, int(job), page) for number, state, nodes, reason, job, page in found
    ]


def facts(number: int) -> Mapping[str, str]:
    """Slurm's description of a job, with its field names; empty for a job that it has forgotten.

    Raises:
        Refusal: if Slurm does not respond.
    """
    try:
        words = run_slurm("scontrol", "--details", "--oneliner", "show", "job", str(number)).split()
    except Refusal as refusal:
        if GONE in str(refusal):
            return {}
        raise
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def interruption(facts: Mapping[str, str]) -> str:
    """Why a job loses its nodes without a cancellation, as the end of a sentence; empty: it does not.

    A preemption concerns the current run of the job if it is not older than its start. If the partition has a grace
    time, Slurm ends the steps immediately, and the job at the end of the grace time, with the state of a job that
    reached its time limit.
    """
    if facts.get("PreemptTime", NEVER) != NEVER and facts["PreemptTime"] >= facts.get("StartTime", ""):
        return "was preempted"
    if facts.get("Reason") == "TimeLimit":
        return f"reached its time limit of {facts.get('TimeLimit', 'its partition')}"
    if facts.get("Reason") == "NodeDown":
        return "lost a node"
    return ""


def status_of_steps(facts: Mapping[str, str]) -> int:
    """The highest exit status of the job's steps that have ended; 128 plus the signal that ended a process."""
    status, _, number = facts.get("DerivedExitCode", "0:0").partition(":")
    return int(status) or (128 + int(number) if int(number) else 0)


def has_steps(number: int) -> bool:
    """Whether a command of the job is still running, apart from its script.

    Raises:
        Refusal: if Slurm does not respond.
    """
    names = run_slurm("squeue", "--steps", "--noheader", f"--jobs={number}", "--format=%i").split()
    return any(name.rpartition(".")[2].isdecimal() for name in names)


def is_ending(facts: Mapping[str, str]) -> bool:
    """Whether Slurm is ending the job, or has ended and forgotten it."""
    return facts.get("JobState") not in ("RUNNING", "SUSPENDED")


def address(node: str) -> str:
    """The address at which other nodes reach a node."""
    found = re.search(r"\bNodeAddr=(\S+)", run_slurm("scontrol", "--oneliner", "show", "node", node))
    return found[1] if found else node


def signal_steps(number: int, name: str) -> None:
    """Send a signal to all processes of a job's steps, but not to its script."""
    run_slurm("scancel", f"--signal={name}", str(number))


def requeue(number: int) -> None:
    """End a job and start it again."""
    run_slurm("scontrol", "requeue", str(number))


def cancel_pending(numbers: Sequence[int]) -> None:
    """End jobs that have not started."""
    run_slurm("scancel", "--state=PENDING", *map(str, numbers))
