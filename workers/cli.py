"""The command line of a machine. Every common user error is reported as one sentence, with exit code 1."""

import contextlib
import json
import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final, NoReturn

import structlog
import typer

from controlplane.protocol.addresses import AddressError, ControlPlane
from controlplane.protocol.messages import MAX_SLOTS, SlotOffer
from controlplane.protocol.text import is_plain
from workers import enrolment, logs
from workers.addresses import check_bind, control_plane
from workers.agent import Agent, AgentError, Offer
from workers.control.socket import UNAUTHORISED, Ending
from workers.descriptors import allow_descriptors
from workers.devices import Gpus, devices_by_slot, devices_of
from workers.enrolment import EnrolmentError
from workers.machines import UsageError, machines_of
from workers.script import check_network
from workers.setup import Setup
from workers.state import ALIVE, CONNECTED, AgentState, Credential, StateError, default_root, seconds_since

ALIVE_S = 10.0
"""Maximum age of a connected agent's last heartbeat, and of the last turn of its loop: both come once per second."""

MOST_NAME = 100
"""Maximum length of a machine's name."""

RANKS: Final = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("JOB_COMPLETION_INDEX", "JOB_COMPLETION_INDEX"),
)
"""Variables in which torchrun, Slurm's srun, Open MPI, other MPIs and a Kubernetes Indexed Job pass the rank, each with
a variable that is also set if the launcher really started this process.
"""

LOCAL_RANKS: Final = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
"""Variables in which launchers pass the local rank on a machine."""

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)

log = structlog.get_logger("agent")


@app.callback()
def main() -> None:
    """Add this machine to Paceline."""


@app.command()
def join(
    url: Annotated[str, typer.Argument(help="The control plane's address, like http://127.0.0.1:8000.")],
    token: Annotated[
        str | None,
        typer.Argument(
            help="Enrolment token; - for standard input, @FILE for a file. Default: $PACELINE_TOKEN.",
            show_default=False,
        ),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_SLOTS,
            help="Workers at a time. Default: one for each device, or as many as --emulate; one under a launcher.",
        ),
    ] = None,
    server_slots: Annotated[int, typer.Option(min=0, max=MAX_SLOTS, help="Parameter servers at a time.")] = 1,
    name: Annotated[str | None, typer.Option(help="This machine's name. Default: its host name.")] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(help="KEY=VALUE label shown on the dashboard. Scheduling uses the labels of its enrolment token."),
    ] = None,
    emulate: Annotated[
        str | None,
        typer.Option(
            help="Emulated speed of the slots, one for all or a list with one each: 1000 (samples/s), x3 (three "
            "times slower), @trace.csv (columns time,speed,cpu,memory)."
        ),
    ] = None,
    competitor: Annotated[
        str | None,
        typer.Option(help="BEGINS,ENDS,TAKES[,SEED]: emulate a competing process that starts and ends at random."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address at which processes on this machine listen.")] = "127.0.0.1",
    announce: Annotated[
        str | None,
        typer.Option(help="Address at which others reach its servers. Default: --host.", show_default=False),
    ] = None,
    state_dir: Annotated[
        Path | None, typer.Option(envvar="PACELINE_STATE_DIR", help="Where the credential is kept.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option(help="Allow unencrypted connections to other machines, on a private network.")
    ] = False,
    encrypt: Annotated[
        bool, typer.Option(help="Encrypt parameters also on this machine, or on a private network.")
    ] = False,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with the files of data sets. Default: none are read.")
    ] = None,
    checkpoint_dir: Annotated[
        Path | None,
        typer.Option(
            envvar="PACELINE_CHECKPOINT_DIR",
            help="Folder for checkpoints, shared by all machines of a job. Default: in the state folder.",
        ),
    ] = None,
    keep_checkpoints: Annotated[
        int, typer.Option(min=0, help="Remove checkpoints that no job has written to for this many days; 0: never.")
    ] = 30,
    device: Annotated[
        str,
        typer.Option(
            help="Devices of workers: auto (the GPUs if there are any), cpu, cuda, or a list for the slots in "
            "turn, like cuda:0,cuda:1 or GPU-UUID,MIG-UUID."
        ),
    ] = "auto",
    allow_code: Annotated[
        bool, typer.Option(help="Allow jobs to run their own code as a workload (package.module:factory).")
    ] = False,
    allow_scripts: Annotated[
        Path | None,
        typer.Option(
            help="Start scripts of jobs in this folder: any program, as this user. Default: none are started.",
            show_default=False,
        ),
    ] = None,
    relay: Annotated[
        bool, typer.Option(help="Carry what its workers and servers tell the control plane over one connection.")
    ] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print and log JSON.")] = False,
) -> None:
    """Offer this machine's slots until interrupted."""
    logs.configure(json=json_output)
    try:
        plane = control_plane(url, insecure=insecure)
        check_bind(host, announce)
        launched = Launched.by(os.environ)
        devices = devices_of(device, Gpus.found(os.environ))
        if slots is None and emulate is None and launched.rank is None:
            slots = len(devices)
        machines = machines_of(emulate, competitor, slots)
        offer = Offer(
            name=parse_name(launched.named(name or socket.gethostname())),
            slots=[SlotOffer(emulate=machine) for machine in machines],
            server_slots=server_slots,
            labels=parse_labels(label or []),
            setup=Setup(
                url=plane.url,
                host=host,
                announced=announce,
                insecure=insecure,
                encrypt=encrypt,
                data_dir=parse_folder(data_dir, "--data-dir"),
                checkpoint_dir=str((checkpoint_dir or (state_dir or default_root()) / "checkpoints").absolute()),
                keep_checkpoints_days=keep_checkpoints,
                devices=tuple(devices_by_slot(devices, len(machines), launched.local_rank) or devices),
                allow_code=allow_code,
                scripts_dir=parse_folder(allow_scripts, "--allow-scripts"),
            ),
            relays=relay,
        )
        check_network(offer.setup)
        read = partial(enrolment.read_token, launched.filled(token), os.environ)
        ending = serve(plane, offer, read, state_dir or default_root(), json_output=json_output)
    except (AddressError, AgentError, EnrolmentError, StateError, UsageError) as error:
        fail(str(error))
    if ending is not None:
        fail(f"{plane.url} ended this agent: {ending.reason}")


@app.command()
def health(
    state_dir: Annotated[
        Path | None, typer.Option(envvar="PACELINE_STATE_DIR", help="Where the agent keeps its credential.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Check only that it runs: a control plane that is away does not count.")
    ] = False,
) -> None:
    """Check that an agent of this machine is connected (readiness), or only that it runs (liveness); for containers."""
    root = state_dir or default_root()
    sign, lacks = (ALIVE, "has ever run") if live else (CONNECTED, "has ever been connected")
    age_s = seconds_since(sign, root)
    if age_s is None:
        fail(f"no agent {lacks} that keeps its state in {root}")
    if age_s > ALIVE_S:
        what = "turn of the loop" if live else "heartbeat"
        fail(f"the last {what} of an agent that keeps its state in {root} is {age_s:.0f} s old")
    typer.echo("well")


def serve(
    plane: ControlPlane, offer: Offer, read_token: Callable[[], str | None], root: Path, *, json_output: bool = False
) -> Ending | None:
    """Run an agent with the stored credential, or with a new one if there is none or it is no longer valid.

    The state folder is locked before the token is used, since a token is valid only once. If the stored credential is
    valid, no token is read.
    """
    allow_descriptors()
    state = AgentState(root, url=plane.url, name=offer.name)
    state.open()
    try:
        credential = state.read_credential()
        if credential is not None:
            ending = _live(plane, credential, offer, state, json_output=json_output)
            if ending is None or ending.code != UNAUTHORISED:
                return ending
            log.warning("the kept credential is not good any more: enrolling again")
        token = read_token()
        if token is None:
            raise EnrolmentError(
                f"this machine has no good credential for {plane.url} as {offer.name}, and no token was given: "
                f"{enrolment.HOW_TO_GET_ONE}"
            )
        credential = enrolment.enrol(plane, token, offer.name)
        state.keep_credential(credential)
        return _live(plane, credential, offer, state, json_output=json_output)
    finally:
        state.close()


def parse_name(name: str) -> str:
    """The machine's name.

    Raises:
        UsageError: if it cannot be displayed.
    """
    if not name or len(name) > MOST_NAME or not is_plain(name):
        raise UsageError(
            f"--name {name!r}: expected 1 to {MOST_NAME} characters on one line, none of them control ones"
        )
    return name


def parse_folder(folder: Path | None, option: str) -> str | None:
    """The folder that an option names, as an absolute path.

    Raises:
        UsageError: if there is none of that name.
    """
    if folder is None:
        return None
    if not folder.is_dir():
        raise UsageError(f"{option} {str(folder)!r}: there is no such folder")
    return str(folder.resolve())


def parse_labels(labels: list[str]) -> dict[str, str]:
    """``["gpu=a100"]`` as ``{"gpu": "a100"}``.

    Raises:
        UsageError: if one of them is not of that form.
    """
    pairs = [label.partition("=") for label in labels]
    for label, (key, equals, _) in zip(labels, pairs, strict=True):
        if not (key and equals and is_plain(label)):
            raise UsageError(f"--label {label!r}: expected KEY=VALUE on one line, like --label gpu=a100")
    return {key: value for key, _, value in pairs}


def fail(sentence: str) -> NoReturn:
    """Print the error and exit with 1."""
    typer.echo(f"error: {sentence}", err=True)
    raise typer.Exit(1)


def _live(
    plane: ControlPlane, credential: Credential, offer: Offer, state: AgentState, *, json_output: bool
) -> Ending | None:
    def announce() -> None:
        slots, servers = len(offer.slots), offer.server_slots
        facts = {"event": "connected", "agent": credential.agent, "name": offer.name, "url": plane.url}
        plain = f"agent {offer.name} is connected to {plane.url} with {slots} worker slots and {servers} server slots"
        with contextlib.suppress(OSError):  # the reader of the pipe is gone: the machine keeps running
            typer.echo(json.dumps(facts | {"slots": slots, "server_slots": servers}) if json_output else plain)

    return Agent(plane, credential, offer, state, announce=announce, json_logs=json_output).run()


@dataclass(frozen=True, slots=True)
class Launched:
    """The rank that a launcher gave this process; None: it was started by hand."""

    rank: str | None
    local_rank: int | None = None
    """The local rank among the launcher's processes on this machine; None: unknown."""

    @classmethod
    def by(cls, environment: Mapping[str, str]) -> "Launched":
        """The first of ``RANKS`` that is set."""
        found = (environment[rank] for rank, beside in RANKS if environment.get(rank) and environment.get(beside))
        if (rank := next(found, None)) is None:
            return cls(None)
        local = next((environment[name] for name in LOCAL_RANKS if environment.get(name, "").isdecimal()), None)
        return cls(rank, None if local is None else int(local))

    def named(self, name: str) -> str:
        """A unique name of this agent; a host or pod name that contains the rank is used unchanged.

        The pods of an Indexed Job are called ``JOB-INDEX-SUFFIX``, their hosts ``JOB-INDEX``.
        """
        has_rank = self.rank is None or re.search(rf"-{re.escape(self.rank)}(-[a-z0-9]{{5}})?$", name)
        return name if has_rank else f"{name}-{self.rank}"

    def filled(self, argument: str | None) -> str | None:
        """``argument`` with ``{rank}`` replaced, if each agent has its own token."""
        return argument if argument is None or self.rank is None else argument.replace("{rank}", self.rank)
