"""The sockets of agents, ``/ws/agent``. An agent always receives the complete list of processes it should run."""

import asyncio
from secrets import token_hex
from typing import Any

import structlog
from channels.db import database_sync_to_async
from django.db import Error as DatabaseError
from redis.exceptions import RedisError

from controlplane.core.events import ProcessDied
from controlplane.fleet.credentials import REMOVED, credential_issue
from controlplane.fleet.services import agent_connected, agent_disconnected
from controlplane.gateway import close_codes, machine_tests
from controlplane.gateway.cancellation import end
from controlplane.gateway.credential_rotation import settle
from controlplane.gateway.handshake import admitted_agent, is_over
from controlplane.gateway.hub import Hub, dismiss, get_hub
from controlplane.gateway.inbox import Inbox
from controlplane.gateway.ownership import runs_on
from controlplane.gateway.sockets import FIRST_S, Message, Receive, Send, Socket
from controlplane.protocol.codec import encode, from_agent
from controlplane.protocol.machine_tests import Listening, MachineTested, PreflightAnswer
from controlplane.protocol.measurements import OF_MACHINES, known_of
from controlplane.protocol.messages import (
    AgentHeartbeat,
    AgentHello,
    AgentMessage,
    CredentialKept,
    LogLines,
    ProcessEnded,
    ProcessName,
    ProcessStarted,
)
from controlplane.protocol.orders import CredentialIssued, Rejection
from controlplane.runtime import agents, log, names, presence, queue, ticks
from controlplane.runtime.loglines import append_lines
from controlplane.runtime.redis import shared

logger = structlog.get_logger(__name__)

RESTARTED_STATUS = -1
"""Exit status recorded for a process that ended while its agent was down."""


async def agent_socket(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Serve one connection of an agent to its end."""
    socket = await Socket.accept(scope, receive, send)
    admission = await admitted_agent(scope, socket)
    if admission is None:
        return
    agent = admission.agent.pk
    try:
        await AgentSocket(await get_hub(), agent, socket, outstanding=admission.outstanding).serve()
    except (RedisError, OSError, log.LogMissing) as error:
        logger.warning("agent socket failed", agent=agent, why=str(error))
        await socket.send_close(close_codes.TRY_AGAIN)


class AgentSocket:
    """One connection of one agent. A later connection, here or at another gateway, replaces it."""

    def __init__(self, hub: Hub, agent: int, socket: Socket, *, outstanding: str | None) -> None:
        self._hub, self._agent, self._socket = hub, agent, socket
        self._connection = token_hex(8)
        self._inbox: Inbox[AgentMessage] = Inbox(socket, from_agent)
        self._greeted = False
        self._durable = 0
        self._moved = asyncio.Event()
        self._ran: set[ProcessName] = set()
        self._outstanding = outstanding
        """Hash of a credential that was issued to the agent but not confirmed by it."""
        self._rotates = False
        """Whether the agent may be due for a new credential."""
        self._tests = False
        """Whether an order to test the machine may be due."""

    async def serve(self) -> None:
        """Serve the connection from the first frame to the last."""
        channel, client = names.agent_moved(self._agent), self._hub.client
        async with (
            self._hub.channel(self._socket, channel, self._on_wakeup),
            self._hub.channel(self._socket, names.agent_rotation(self._agent), self._take_rotation),
            self._hub.channel(self._socket, names.agent_test(self._agent), self._take_test),
            self._hub.agent(self._socket, self._agent),
        ):
            await presence.connected(client, names.AGENT_CONNECTIONS, str(self._agent), self._connection)
            await client.publish(channel, self._connection)
            orders = asyncio.create_task(self._keep_informed())
            try:
                await self._socket.run(self._take, first_s=FIRST_S)
            finally:
                await end(orders)
                await self._disconnect()

    def _on_wakeup(self, data: bytes) -> None:
        """An empty message means that the agent's processes changed; any other names its current connection, or means
        that it was removed.
        """
        if data == names.AGENT_REMOVED.encode():
            dismiss(self._socket, REMOVED)  # as the hub does when it next checks credentials
        elif data and data.decode() != self._connection:
            self._socket.close(close_codes.REPLACED)
        self._moved.set()

    def _take_rotation(self, _: bytes) -> None:
        self._rotates = True
        self._moved.set()

    def _take_test(self, _: bytes) -> None:
        self._tests = True
        self._moved.set()

    async def _keep_informed(self) -> None:
        while True:
            await self._moved.wait()
            self._moved.clear()
            if self._greeted and self._rotates:
                self._rotates = False
                await self._rotate()
            if self._greeted and self._tests:
                self._tests = False
                for frame in await database_sync_to_async(machine_tests.frames_due)(self._agent):
                    self._socket.put(frame)
            if self._greeted:
                orders = await agents.current_orders(self._hub.client, self._agent, durable=self._durable)
                if orders is not None:  # else they follow once every job is recovered
                    self._ran.update(map(agents.name_of, orders.processes))
                    self._socket.put(encode(orders), "orders")

    async def _rotate(self) -> None:
        """Send the agent a new credential if one is due. The secret exists only here and in the frame."""
        try:
            secret = await database_sync_to_async(credential_issue)(self._agent, self._outstanding)
        except DatabaseError as error:
            logger.warning("no credential was made", agent=self._agent, why=str(error))
            return
        if secret is not None:
            self._socket.put(encode(CredentialIssued(secret=secret)), "credential")

    async def _take(self, message: Message) -> None:
        received = self._inbox.open(message)
        if received is None:
            return
        if isinstance(received, AgentHeartbeat):
            load = known_of(received, (each.name for each in OF_MACHINES))
            self._hub.heartbeats.note(names.AGENTS, str(self._agent), load)
        elif isinstance(received, LogLines):
            await self._take_lines(received)
        elif isinstance(received, AgentHello):
            await self._greet(received)
        elif not self._greeted:
            detail = "the first message of a connection is hello"
            self._socket.put(encode(Rejection(code="unexpected", detail=detail, number=received.number)))
        elif received.number > self._durable:
            await self._take_change(received)
            self._durable = received.number
            self._moved.set()

    async def _greet(self, hello: AgentHello) -> None:
        self._hub.heartbeats.note(names.AGENTS, str(self._agent))
        if not await database_sync_to_async(agent_connected)(self._agent, hello):  # removed since its handshake
            dismiss(self._socket, REMOVED)
            return
        for name in await agents.vanished(self._hub.client, self._agent, hello.running):
            await self._report_lost(name, RESTARTED_STATUS, "its agent restarted without it")
        await database_sync_to_async(machine_tests.greet)(self._agent, hello)
        self._greeted, self._rotates, self._tests = True, hello.rotates, hello.tests
        self._durable = max(self._durable, hello.number)
        self._moved.set()
        await asyncio.to_thread(_fleet_moved)

    async def _take_lines(self, received: LogLines) -> None:
        """Store log lines of the agent's own processes; lines of others are dropped."""
        if await self._is_its_own(received.process):
            await append_lines(self._hub.caller, received)

    async def _is_its_own(self, process: ProcessName) -> bool:
        """Whether this machine runs or ran that process instance. Reports about other processes are ignored.

        The database may be behind, so the agent's orders and started processes are checked first.
        """
        if process in self._ran:
            return True
        if not await runs_on(self._hub, self._agent, process):
            return False
        self._ran.add(process)
        return True

    async def _take_change(self, received: ProcessStarted | ProcessEnded | CredentialKept | PreflightAnswer) -> None:
        if isinstance(received, CredentialKept):
            await database_sync_to_async(settle)(self._agent, received)
            self._outstanding = None
        elif isinstance(received, Listening | MachineTested):
            await database_sync_to_async(machine_tests.settle)(self._agent, received)
        elif not await self._is_its_own(received.process):
            process = received.process
            detail = f"{process.role} {process.index} of job {process.job} does not run on this machine"
            self._socket.put(encode(Rejection(code="foreign", detail=detail, number=received.number)))
        elif isinstance(received, ProcessStarted):
            await agents.note_started(self._hub.client, self._agent, received.process)
        else:
            await self._report_lost(
                received.process, received.status, received.tail, out_of_memory=received.out_of_memory
            )

    async def _report_lost(self, name: ProcessName, status: int, detail: str, *, out_of_memory: bool = False) -> None:
        event = ProcessDied(
            role=name.role,
            index=name.index,
            instance=name.instance,
            status=status,
            detail=detail,
            out_of_memory=out_of_memory,
        )
        try:
            await log.aappend_event(self._hub.caller, name.job, event)
        except log.LogClosed as closed:
            if isinstance(closed, log.LogMissing) and not await is_over(name.job):
                raise
            logger.info("process ended after its job", job=name.job, instance=name.instance, status=status)
        await agents.forget(self._hub.client, self._agent, name)

    async def _disconnect(self) -> None:
        client = self._hub.client
        if await presence.disconnected(client, names.AGENT_CONNECTIONS, str(self._agent), self._connection):
            await database_sync_to_async(agent_disconnected)(self._agent)
            await asyncio.to_thread(ticks.publish, shared(), fleet=True)


def _fleet_moved() -> None:
    ticks.publish(shared(), fleet=True)
    queue.request_schedule()
