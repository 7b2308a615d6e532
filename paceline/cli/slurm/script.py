"""Generates the sbatch script, in a form that users can read, edit and submit again."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from paceline.cli.launchers import MODULES, OWN_STORE, launcher_of

NOTICE = "USR1"
"""The signal that Slurm sends to the script before the time limit, and the script to its ranks."""

PACELINE = '"${paceline[@]}"'
"""The command ``paceline`` in the script, an array since the path of its interpreter may have spaces."""

MEETING = ("--nnodes", "--rdzv", "--standalone", "--master", "--node-rank", "--node_rank")
"""Options of torchrun that already set the rendezvous of its ranks."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The values from which the script is generated."""

    job: int
    name: str
    page: str
    url: str
    folder: Path
    directives: Sequence[str]
    """Options of sbatch, as given by the user."""
    step: Sequence[str]
    """Options of srun."""
    command: Sequence[str]
    python: str
    """The Python interpreter that runs ``paceline``."""
    path: str = ""
    """The folder of Paceline's packages, if they are not installed."""
    notice_s: int | None = None
    """How long before the time limit ranks are notified; None: the job does not continue after it."""
    starts_agents: bool = False
    insecure: bool = False

    @property
    def token_file(self) -> Path:
        """The file with the job's token, for the processes that the script starts."""
        return self.folder / "token"

    @property
    def enrolment_file(self) -> Path:
        """The file with the token with which its agents join."""
        return self.folder / "enrolment-token"

    @property
    def file(self) -> Path:
        """The file of the script."""
        return self.folder / "job.sh"


def text(plan: Plan) -> str:
    """The text of the script."""
    parts = [_head(plan), _variables(plan), _run(plan)]
    return "\n".join("\n".join(lines) + "\n" for lines in parts)


def _head(plan: Plan) -> list[str]:
    directives = [
        f"--job-name=paceline-{plan.job}",
        f"--comment={plan.page}",
        f"--output={plan.folder}/output-%j.txt",
        "--open-mode=append",
        *(("--requeue", f"--signal=B:{NOTICE}@{plan.notice_s}") if plan.notice_s is not None else ("--no-requeue",)),
        *plan.directives,
    ]
    return [
        "#!/bin/bash",
        f"# Paceline job {plan.job} ({plan.name}): {plan.page}",
        "# Written by paceline slurm submit; its tokens are in the files beside it.",
        *(f"#SBATCH {shlex.quote(each) if ' ' in each else each}" for each in directives),
    ]


def _variables(plan: Plan) -> list[str]:
    lines = [f"export PACELINE_URL={shlex.quote(plan.url)} PACELINE_JOB={plan.job}"]
    if plan.insecure:
        lines.append("export PACELINE_INSECURE=1")
    if plan.path:
        lines.append(f'export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}"{shlex.quote(plan.path)}')
    if not plan.starts_agents:
        node = 'scontrol --oneliner show node "$SLURMD_NODENAME"'
        lines.append(f"export MASTER_ADDR=$({node} | grep -o 'NodeAddr=[^ ]*' | cut -d= -f2)")
        lines.append("export MASTER_PORT=$((15000 + SLURM_JOB_ID % 15000))")
    if launcher_of(plan.command) == "torchrun":
        lines += [f"export {name}={value}" for name, value in OWN_STORE.items()]
    lines.append(f"paceline=({shlex.quote(str(plan.python))} -m paceline)")
    return lines


def _run(plan: Plan) -> list[str]:
    options = [f"--token-file {shlex.quote(str(plan.token_file))}"]
    options += ["--requeue"] if plan.notice_s is not None else []
    options += ["--agents"] if plan.starts_agents else []
    lines = [f"exec {PACELINE} slurm follow {' '.join(options)} --"]
    if launcher_of(plan.command) == "srun":
        return [f"{lines[0]} \\", f"    {shlex.join(plan.command)}"]
    kill = "--kill-on-bad-exit=0" if plan.starts_agents else "--kill-on-bad-exit=1"
    lines.append(f"    {shlex.join(['srun', kill, *plan.step])} {PACELINE} slurm rank --")
    lines.append(f"    {_command(plan)}")
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


def _command(plan: Plan) -> str:
    """The command of one task; torchrun has its rendezvous at the first node."""
    command = list(plan.command)
    if plan.starts_agents:
        return f"{PACELINE} {shlex.join(command)}"
    if launcher_of(command) != "torchrun" or any(word.startswith(MEETING) for word in command):
        return shlex.join(command)
    at = 1 if "-m" not in command[:-1] else 1 + next(i for i, word in enumerate(command) if word in MODULES)
    meeting = (
        '--nnodes="$SLURM_NNODES" --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" '
        '--rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT"'
    )
    return " ".join([shlex.join(command[:at]), meeting, shlex.join(command[at:])])
