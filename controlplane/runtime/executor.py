"""Turns the engine's commands into effects: what is logged, what is sent to whom, what agents are to run.

Pure but for the job's secret, from which it derives the credentials that commands do not carry. The effects are done
by one script (``lease.Lease.commit``), so that nothing is published that is not also logged.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import msgspec

from controlplane.core.commands import (
    AnyCommand,
    IssueOrders,
    IssuePlacement,
    IssueServerOrders,
    RejectMessage,
    StartProcess,
    StopProcess,
)
from controlplane.protocol.keys import data_key, process_key
from controlplane.protocol.orders import Placement, ProcessOrder, Role, ServerAddress
from controlplane.protocol.spec import JobSpec

_encoder = msgspec.msgpack.Encoder()
_commands_decoder: msgspec.msgpack.Decoder[list[AnyCommand]] = msgspec.msgpack.Decoder(list[AnyCommand])


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What executing a job's commands takes and never changes."""

    number: int
    key: bytes
    spec: JobSpec


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """Bytes for one process's socket. A newer frame replaces an older one of the same ``slot``, except in ""."""

    role: Role
    index: int
    instance: str
    slot: str
    data: bytes


Address = tuple[Role, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One process that an agent is to run (``order``), or is to run no longer (empty)."""

    agent: int
    field: str
    instance: str
    order: bytes = b""


@dataclass(slots=True, kw_only=True)
class Effects:
    """All that follows from one read."""

    count: int = 0
    commands: bytes = b""
    digest: str = ""
    frames: bytes = b""
    changes: list[Change] = field(default_factory=list)


def encode_frames(frames: Sequence[Frame]) -> bytes:
    """As they travel on the job's channel."""
    return _encoder.encode(frames)


frames_decoder: msgspec.msgpack.Decoder[list[Frame]] = msgspec.msgpack.Decoder(list[Frame])


def decode_commands(payload: bytes) -> list[AnyCommand]:
    """The commands of one entry of the command stream."""
    return _commands_decoder.decode(payload)


def effects_of(facts: JobFacts, commands: Sequence[AnyCommand]) -> Effects:
    """The effects of ``commands``. Of several orders for one process only the last is sent: it replaces the others."""
    if not commands:
        return Effects()
    replaceable: dict[tuple[Role, int, str, str], Frame] = {}
    kept: list[Frame] = []
    changes: list[Change] = []
    for command in commands:
        if isinstance(command, StartProcess | StopProcess):
            changes.append(_change(facts, command))
        elif (frame := _frame(facts, command)) is not None:
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


def _frame(facts: JobFacts, command: AnyCommand) -> Frame | None:
    match command:
        case IssueOrders(rank=rank, instance=instance, orders=orders):
            return Frame("worker", rank, instance, "orders", _encoder.encode(orders))
        case IssuePlacement(rank=rank, instance=instance):
            return Frame("worker", rank, instance, "placement", _encoder.encode(_placement(facts, command)))
        case IssueServerOrders(index=index, instance=instance, orders=server_orders):
            return Frame("server", index, instance, "orders", _encoder.encode(server_orders))
        case RejectMessage(role=role, index=index, instance=instance, rejection=rejection):
            return Frame(role, index, instance, "", _encoder.encode(rejection))
    return None


def _placement(facts: JobFacts, command: IssuePlacement) -> Placement:
    servers = []
    for index, (instance, host, port) in sorted(command.servers.items()):
        key = data_key(process_key(facts.key, "server", index, instance), command.rank, command.instance)
        servers.append(ServerAddress(index=index, instance=instance, host=host, port=port, key=key))
    return Placement(incarnation=command.incarnation, version=command.version, blocks=command.blocks, servers=servers)


def _change(facts: JobFacts, command: StartProcess | StopProcess) -> Change:
    name = f"{facts.number}:{command.role}:{command.index}"
    if isinstance(command, StopProcess):
        return Change(agent=command.agent, field=name, instance=command.instance)
    order = ProcessOrder(
        job=facts.number,
        role=command.role,
        index=command.index,
        instance=command.instance,
        slot=command.slot,
        key=process_key(facts.key, command.role, command.index, command.instance).hex(),
        spec=facts.spec,
        emulate=command.emulate,
    )
    return Change(agent=command.agent, field=name, instance=command.instance, order=_encoder.encode(order))
