"""``paceline slurm submit``: submits a job to Paceline, and a script to Slurm that starts its ranks or agents."""

import os
import re
import secrets
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from controlplane.protocol.launching import DEFAULT_WAIT_S
from paceline.address import INSECURE, socket_address
from paceline.cli import access, private
from paceline.cli.errors import OK, Refusal
from paceline.cli.jobs import read_spec
from paceline.cli.launchers import launcher_of, script_of, world_of
from paceline.cli.places import HOME, is_checkout
from paceline.cli.run import BATCHING, choice
from paceline.cli.slurm import queue, script, watch
from paceline.cli.slurm.rank import ADDRESS
from paceline.client.sync import Client
from paceline.client.types import Invitation, Job
from paceline.errors import CannotAttach, PacelineError

LABEL: Final = "slurm"
"""Label of the agents that one submission starts; the job selects it."""

IN_QUEUE_S: Final = 7 * 86_400
"""How long ranks and agents may stay in Slurm's queue."""

EARLY_S: Final = 60
"""Slurm may send a signal this much earlier than requested."""

ABSENT_S: Final = 86_400
"""Agents that have been offline for this long are removed."""


def carry_out(options: Namespace) -> int:
    """Submit to both systems.

    Raises:
        Refusal: if either system refuses; then nothing remains submitted to the other.
    """
    command = options.behind
    if options.partition:
        queue.check_partition(options.partition)
    else:
        queue.run_slurm("sinfo", "--noheader", "--format=%R")
    options.insecure |= os.environ.get(INSECURE) == "1"
    with access.connected(options) as client:
        check_address(client.url, insecure=options.insecure)
        document = spec(client, options, command)
        attached = document["launch"] == "attached"
        _check(options, document, command)
        invitation = None if attached else _invite(client, document, options)
        job = None
        try:
            job = client.submit(document, team=options.team)
            folder = private.folder(options.folder.absolute() / f"job-{job.id}")
            plan = planned(options, client, job.id, job.name, folder, command if attached else None, document)
            private.write(plan.token_file, f"{job.token or client.new_job_token(job.id).token}\n")
            if invitation is not None:
                private.write(plan.enrolment_file, f"{invitation.token}\n")
            private.write(plan.file, script.text(plan))
            number = queue.submit(str(plan.file))
            watch.note(folder, client.url, number)
        except BaseException as error:
            _take_back(client, job, invitation, error)
            if isinstance(error, OSError):
                raise Refusal(f"--folder: {error}") from None
            raise
        if options.watch:
            watch.start(folder.parent, client.url, options.token_file)
    sys.stdout.write(f"job {job.id} ({job.name}): {plan.page}\nSlurm job {number}: {plan.file}\n")
    return OK


def spec(client: Client, options: Namespace, command: Sequence[str]) -> dict[str, Any]:
    """The job's spec, with all defaults and enough time for Slurm's queue."""
    if options.spec is None:
        if not command:
            raise Refusal(
                "paceline slurm submit: found neither a spec nor a command; expected a job's YAML, or a command "
                "behind --, such as: paceline slurm submit --nodes 4 -- python train.py"
            )
        options_set: Any = {
            "name": script_of(command),
            "launch": "attached",
            "synchronization": {"batching": choice(BATCHING)},
            "workers": (world_of(command) or 1) if launcher_of(command) == "srun" else _ranks(options, command),
        }
    else:
        options_set = read_spec(options.spec)
    document = client.check(options_set, team=options.team).spec
    if document["launch"] == "attached" and document["wait_s"] == DEFAULT_WAIT_S:
        document["wait_s"] = float(IN_QUEUE_S)
    if document["launch"] == "native":
        document["labels"] = {**document["labels"], LABEL: secrets.token_hex(6)}
    return document


def planned(
    options: Namespace,
    client: Client,
    number: int,
    name: str,
    folder: Path,
    command: Sequence[str] | None,
    document: dict[str, Any],
) -> script.Plan:
    """The script; ``command`` is None if it starts agents."""
    step = [f"--cpus-per-task={options.cpus_per_task}"] if options.cpus_per_task else []
    plan = script.Plan(
        job=number,
        name=re.sub(r"[^ -~]", "?", name),
        page=client.address.page(number),
        url=client.url,
        folder=folder,
        directives=directives(options),
        step=step,
        command=command or [],
        python=sys.executable,
        path=str(HOME) if is_checkout() else "",
        notice_s=options.notice if options.requeue else None,
        starts_agents=command is None,
        insecure=options.insecure,
    )
    if command is not None:
        return plan
    join = [
        *("join", client.url, f"@{plan.enrolment_file}", "--name", f"slurm-job{number}", "--host"),
        ADDRESS if options.insecure or options.nodes > 1 else "127.0.0.1",
        *("--slots", str(_each(document["workers"], options))),
        *("--server-slots", str(_each(document["servers"], options))),
        *("--state-dir", str(folder / "agents"), "--checkpoint-dir", str(folder.parent / "checkpoints")),
        *(["--insecure"] if options.insecure else []),
        *options.agent,
    ]
    return msgspec.structs.replace(plan, command=join)


def directives(options: Namespace) -> list[str]:
    """The options for sbatch."""
    options_set = {
        "nodes": options.nodes,
        "ntasks-per-node": options.ntasks_per_node,
        "cpus-per-task": options.cpus_per_task,
        "gpus-per-node": options.gpus_per_node,
        "time": options.time,
        "partition": options.partition,
        "account": options.account,
    }
    others: list[str] = options.sbatch
    return [f"--{name}={value}" for name, value in options_set.items() if value is not None] + others


def check_address(url: str, *, insecure: bool) -> None:
    """Check that ranks and agents will accept the control plane's address.

    Raises:
        Refusal: if it is unencrypted, and on another machine.
    """
    try:
        socket_address(url, "/", {INSECURE: "1"} if insecure else {})
    except CannotAttach as error:
        raise Refusal(f"{error}; for paceline slurm submit that is --insecure") from None


def limit_s(text: str) -> float | None:
    """A time limit of sbatch in seconds; None without a limit, or if the format is unknown.

    Formats: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes[:seconds].
    """
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    if len(parts) > 3 or not all(part.isdecimal() for part in [*parts, days or "0"]):
        return None
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
    else:
        hours, minutes, seconds = {1: [0, *numbers, 0], 2: [0, *numbers], 3: numbers}[len(numbers)]
    return float(((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds)


def _check(options: Namespace, document: dict[str, Any], command: Sequence[str]) -> None:
    """Check that spec, command and options are compatible.

    Raises:
        Refusal: with the conflict and the cure.
    """
    where, launch = options.spec, document["launch"]
    if document.get("command"):
        raise Refusal(
            f"{where}: found command, which Paceline's agents start; expected none with Slurm: it starts the one after "
            "--, such as -- python train.py"
        )
    if launch == "attached" and not command:
        raise Refusal(f"{where}: found launch: attached without a command, expected one after --: -- python train.py")
    if launch == "native" and command:
        raise Refusal(
            f"{where}: found launch: native and a command; expected launch: attached, whose ranks the command starts, "
            "or no command: agents run a native job's workers"
        )
    if launcher_of(command or ["-"]) == "torchrun" and options.ntasks_per_node != 1:
        raise Refusal(
            f"--ntasks-per-node: found {options.ntasks_per_node}, expected 1 with torchrun, which starts the ranks of "
            "its node: --nproc-per-node"
        )
    limit = limit_s(options.time) if options.time and options.requeue else None
    if limit is not None and limit < options.notice + EARLY_S:
        raise Refusal(
            f"--time {options.time} --requeue: found {options.notice} s of notice, which Slurm may send {EARLY_S} s "
            "earlier; expected a longer time limit, or a shorter --notice"
        )
    if launch == "attached":
        return
    if options.nodes > 1 and document["communication"] == "all-reduce" and not options.insecure:
        raise Refusal(
            f"--nodes {options.nodes}: found communication: all-reduce in {where}, which is not encrypted between "
            "nodes; add --insecure where that network is private, or use parameter servers"
        )
    if options.requeue and document["checkpoint"] is None and not document["elastic"]["from_scratch"]:
        raise Refusal(
            f"--requeue: found no checkpoint in {where}, expected one to continue from: checkpoint: {{every: 100}}"
        )


def _invite(client: Client, document: dict[str, Any], options: Namespace) -> Invitation:
    """Create a token that is valid only for the agents of this submission."""
    uses = options.nodes * options.ntasks_per_node
    return client.invite(labels=document["labels"], uses=uses, lifetime_s=IN_QUEUE_S, remove_after_s=ABSENT_S)


def _take_back(client: Client, job: Job | None, invitation: Invitation | None, error: BaseException) -> None:
    """Undo the submission to Paceline if Slurm refused. An unreachable control plane does not hide ``error``."""
    if job is not None:
        with suppress(PacelineError):
            client.stop(job.id, reason=f"it was not submitted to Slurm: {error or type(error).__name__}")
    if invitation is not None:
        with suppress(PacelineError):
            client.revoke_invitation(invitation.id)


def _ranks(options: Namespace, command: Sequence[str]) -> int:
    return int(options.nodes * options.ntasks_per_node * (world_of(command) or 1))


def _each(processes: int, options: Namespace) -> int:
    """The smallest number per task with which all fit."""
    tasks: int = options.nodes * options.ntasks_per_node
    return -(-processes // tasks)
