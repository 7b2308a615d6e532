"""Orders of agents in Redis: written by commits, read by the gateway that holds the agent's socket."""

import msgspec

from controlplane.protocol.messages import ProcessName
from controlplane.protocol.orders import AgentOrders, ProcessOrder
from controlplane.runtime import names
from controlplane.runtime.redis import AsyncClient, Client, redis_run_id
from controlplane.runtime.scripts import AGENT_ORDERS, FORGET

_decoder: msgspec.msgpack.Decoder[ProcessOrder] = msgspec.msgpack.Decoder(ProcessOrder)


def ordered_processes(client: Client, agent: int) -> list[ProcessName]:
    """The processes that the agent should run."""
    return [name_of(order) for order in _orders(client.execute_command("HVALS", names.agent_processes(agent)))]


def forget_process(client: Client, agent: int, name: ProcessName) -> None:
    """Stop ordering this process instance: it has ended. Orders for a later instance stay."""
    FORGET.run(client, _forget_keys(agent), *_forget_arguments(name))


def close_connection(client: Client, agent: int) -> None:
    """End the connection of a machine that was removed: its credential is no longer valid."""
    client.publish(names.agent_moved(agent), names.AGENT_REMOVED)


async def current_orders(client: AsyncClient, agent: int, *, durable: int) -> AgentOrders | None:
    """What the agent should run now, with a new sequence number.

    None while Redis may have lost some of it: running processes must not be stopped because of that.
    """
    keys = [names.RECOVERED, names.agent_sequence(agent), names.agent_processes(agent)]
    found = await AGENT_ORDERS.arun(client, keys, redis_run_id())
    if not found:
        return None
    return AgentOrders(sequence=found[0], processes=_orders(found[1:]), durable=durable)


async def is_known(client: AsyncClient, agent: int, name: ProcessName) -> bool:
    """Whether the agent should run this process instance now, or has reported its start."""
    field = f"{name.job}:{name.role}:{name.index}"
    order: bytes | None = await client.execute_command("HGET", names.agent_processes(agent), field)
    if order is not None and order.startswith(name.instance.encode() + b"\0"):
        return True
    return bool(await client.execute_command("SISMEMBER", names.agent_started(agent), _title(name)))


async def note_started(client: AsyncClient, agent: int, name: ProcessName) -> None:
    """Store that the agent started this process."""
    await client.sadd(names.agent_started(agent), _title(name))


async def vanished(client: AsyncClient, agent: int, running: list[ProcessName]) -> list[ProcessName]:
    """Processes that the agent had started and should run, but that did not survive its restart."""
    held = await client.execute_command("HVALS", names.agent_processes(agent))
    started = await client.execute_command("SMEMBERS", names.agent_started(agent))
    lost = {title.decode() for title in started} - {_title(name) for name in running}
    return [name for name in map(name_of, _orders(held)) if _title(name) in lost]


async def forget(client: AsyncClient, agent: int, name: ProcessName) -> None:
    """As ``forget_process``."""
    await FORGET.arun(client, _forget_keys(agent), *_forget_arguments(name))


def _forget_keys(agent: int) -> list[str]:
    return [names.agent_processes(agent), names.agent_started(agent)]


def _forget_arguments(name: ProcessName) -> tuple[str, str, str]:
    return f"{name.job}:{name.role}:{name.index}", name.instance, _title(name)


def _orders(values: list[bytes]) -> list[ProcessOrder]:
    """Values are the instance, a zero byte, and the order: scripts compare the first part."""
    return [_decoder.decode(value.partition(b"\0")[2]) for value in values]


def name_of(order: ProcessOrder) -> ProcessName:
    """The process instance in the order."""
    return ProcessName(job=order.job, role=order.role, index=order.index, instance=order.instance)


def _title(name: ProcessName) -> str:
    return f"{name.job}:{name.role}:{name.index}:{name.instance}"
