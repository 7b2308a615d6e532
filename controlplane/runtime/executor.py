"""Converts the engine's commands into effects: log entries, frames to processes, orders to agents.

Pure, except for the job's secret, from which it derives credentials, and the date in certificates. One script performs
the effects (``lease.Lease.commit``), so that nothing is published without being logged.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from types import MappingProxyType
from typing import Final, Union, get_args

import msgspec

from controlplane.core.commands import (
    CARRIERS,
    DELIVERED,
    AnyCommand,
    Delivered,
    IssueOrders,
    IssuePlacement,
    IssueServerOrders,
    RejectMessage,
    StartProcess,
    StopProcess,
)
from controlplane.protocol.keys import checkpoint_name, data_key, peer_key, process_key, ranks_token
from controlplane.protocol.orders import (
    CheckpointFolders,
    PeerAddress,
    Placement,
    ProcessOrder,
    Role,
    Script,
    ServerAddress,
    ServerOrders,
)
from controlplane.protocol.spec import JobSpec
from controlplane.runtime.certificates import authority_of, certificate_of

_encoder = msgspec.msgpack.Encoder()
_commands_decoder: msgspec.msgpack.Decoder[list[AnyCommand]] = msgspec.msgpack.Decoder(list[AnyCommand])
_decisions_decoder: msgspec.msgpack.Decoder[list[AnyCommand | Delivered]] = msgspec.msgpack.Decoder(
    list[Union[*(set(get_args(AnyCommand)) - set(CARRIERS)), *DELIVERED]]  # type: ignore[misc]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """Constants that the execution of a job's commands needs."""

    number: int
    key: bytes
    spec: JobSpec
    start_folder: str = ""
    """The checkpoint that the job starts from, below an agent's checkpoint folder."""
    port_offset: int = 0
    """Shifts the ports of scripts, such that two control planes seldom choose the same ones on one machine."""


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """Bytes for one process's socket. A newer frame replaces an older one of the same ``slot``, except in ""."""

    role: Role
    index: int
    instance: str
    slot: str
    data: bytes
    parent: str = ""
    """The decision that caused it, as ``traceparent``; empty without tracing."""


Address = tuple[Role, int, str]

FIRST_PORT: Final = 20_000
PORTS: Final = 10_000
"""Where the ranks of scripts meet: below the ports that systems choose by themselves, and those of Kubernetes."""

PER_ATTEMPT: Final = 997
"""Attempts of a job use different ports: processes of the previous one may not have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A process that an agent should run (``order``), or should no longer run (empty)."""

    agent: int
    field: str
    instance: str
    order: bytes = b""


@dataclass(slots=True, kw_only=True)
class Effects:
    """All effects of one read."""

    count: int = 0
    commands: bytes = b""
    digest: str = ""
    frames: bytes = b""
    changes: list[Change] = field(default_factory=list)


def encode_frames(frames: Sequence[Frame]) -> bytes:
    """The frames as one message on the job's channel."""
    return _encoder.encode(frames)


frames_decoder: msgspec.msgpack.Decoder[list[Frame]] = msgspec.msgpack.Decoder(list[Frame])


def decode_commands(payload: bytes) -> list[AnyCommand]:
    """The commands of one entry of the command stream."""
    return _commands_decoder.decode(payload)


def decode_decisions(payload: bytes) -> list[AnyCommand | Delivered]:
    """As ``decode_commands``, but commands that only deliver a decision are decoded without their content."""
    return _decisions_decoder.decode(payload)


def effects_of(
    facts: JobFacts, commands: Sequence[AnyCommand], parents: Mapping[str, str] = MappingProxyType({})
) -> Effects:
    """The effects of ``commands``. Of several orders for one process only the last is sent: it replaces the others.

    ``parents``: traced decisions, by the entry of the log that they are on.
    """
    if not commands:
        return Effects()
    replaceable: dict[tuple[Role, int, str, str], Frame] = {}
    kept: list[Frame] = []
    changes: list[Change] = []
    for command in commands:
        if isinstance(command, StartProcess | StopProcess):
            changes.append(_change(facts, command))
        elif (frame := _frame(facts, command, parents)) is not None:
            if frame.slot:
                replaceable[frame.role, frame.index, frame.instance, frame.slot] = frame
            else:
                kept.append(frame)
    payload = _encoder.encode(commands)
    frames = [*kept, *replaceable.values()]
    return Effects(
        count=len(commands),
        commands=payload,
        digest=blake2b(payload, digest_size=16).hexdigest(),
        frames=encode_frames(frames) if frames else b"",
        changes=changes,
    )


def _frame(facts: JobFacts, command: AnyCommand, parents: Mapping[str, str]) -> Frame | None:
    match command:
        case IssueOrders(rank=rank, instance=instance, orders=orders, cause=cause):
            return Frame("worker", rank, instance, "orders", _encoder.encode(orders), parents.get(cause, ""))
        case IssuePlacement(rank=rank, instance=instance):
            return Frame("worker", rank, instance, "placement", _encoder.encode(_placement(facts, command)))
        case IssueServerOrders(index=index, instance=instance):
            return Frame("server", index, instance, "orders", _encoder.encode(_server_orders(facts, command)))
        case RejectMessage(role=role, index=index, instance=instance, rejection=rejection):
            return Frame(role, index, instance, "", _encoder.encode(rejection))
    return None


def _placement(facts: JobFacts, command: IssuePlacement) -> Placement:
    servers = _addresses(facts, command.servers, lambda key: data_key(key, command.rank, command.instance))
    return Placement(
        incarnation=command.incarnation,
        version=command.version,
        blocks=command.blocks,
        servers=servers,
        generation=command.generation,
        peers=[_met(facts, peer, command) for peer in command.peers],
        refills=command.refills,
        again=command.again,
    )


def _met(facts: JobFacts, peer: PeerAddress, reader: IssuePlacement) -> PeerAddress:
    """The worker's address with a credential for the reader, if workers exchange samples themselves."""
    if not peer.instance:
        return peer
    key = process_key(facts.key, "worker", peer.rank, peer.instance)
    return msgspec.structs.replace(peer, key=data_key(key, reader.rank, reader.instance))


def _server_orders(facts: JobFacts, command: IssueServerOrders) -> ServerOrders:
    if not command.receivers:
        return command.orders
    receivers = _addresses(facts, command.receivers, lambda key: peer_key(key, command.index, command.instance))
    return msgspec.structs.replace(command.orders, receivers=receivers)


def _addresses(
    facts: JobFacts, servers: Mapping[int, tuple[str, str, int]], derive: Callable[[bytes], bytes]
) -> list[ServerAddress]:
    """The servers' addresses with credentials for the reader; ``derive`` makes each from the server's own key."""
    return [
        ServerAddress(
            index=index,
            instance=instance,
            host=host,
            port=port,
            key=derive(process_key(facts.key, "server", index, instance)),
        )
        for index, (instance, host, port) in sorted(servers.items())
    ]


def checkpoint_folder(job: int, key: bytes) -> str:
    """The folder of a job's checkpoints below an agent's checkpoint folder; it is unique to this control plane."""
    return f"job-{job}-{checkpoint_name(key)}"


def rendezvous_port(facts: JobFacts, attempt: int) -> int:
    """The port of rank 0 of a script. Jobs of one control plane have different ones, up to 10,000 at a time."""
    return FIRST_PORT + (facts.port_offset + facts.number + PER_ATTEMPT * (attempt - 1)) % PORTS


def _completed(facts: JobFacts, script: Script | None) -> Script | None:
    if script is None:
        return None
    port = rendezvous_port(facts, script.attempt)
    return msgspec.structs.replace(script, port=port, token=ranks_token(facts.key))


def _change(facts: JobFacts, command: StartProcess | StopProcess) -> Change:
    name = f"{facts.number}:{command.role}:{command.index}"
    if isinstance(command, StopProcess):
        return Change(agent=command.agent, field=name, instance=command.instance)
    key = process_key(facts.key, command.role, command.index, command.instance)
    order = ProcessOrder(
        job=facts.number,
        role=command.role,
        index=command.index,
        instance=command.instance,
        slot=command.slot,
        key=key.hex(),
        spec=facts.spec,
        emulate=command.emulate,
        checkpoints=CheckpointFolders(own=checkpoint_folder(facts.number, facts.key), start=facts.start_folder),
        certificate=certificate_of(
            facts.key, key, command.role, command.instance, listens=command.role == "server" or facts.spec.asks_peers
        ),
        authority=authority_of(facts.key),
        script=_completed(facts, command.script),
    )
    return Change(agent=command.agent, field=name, instance=command.instance, order=_encoder.encode(order))
