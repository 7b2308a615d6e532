"""Fault injection for ``bench chaos`` and ``bench faults``: faults of processes, services and links, chosen by a seed.

A fault of a service is *over* once what it stopped has been started again, continues, or may connect; Redis once it
answers. How long a service takes to start is part of the recovery time, which counts from then. Waits for processes
run on a thread: the simulated workers live on this event loop, and one that is blocked looks like a dead machine.
"""

import asyncio
import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import psutil

from benchmarks.faults.links import DataLinkProxies, LinkProxy
from benchmarks.faults.resilient_socket import ResilientSocket
from benchmarks.faults.services import REDIS, Services
from benchmarks.faults.simulated_processes import ResilientAgent
from controlplane.runtime.faults import POINTS
from controlplane.runtime.redis import shared

BRIEF_S: Final = (0.5, 3.0)
"""Shorter than the silence after which a process is lost."""

LONG_S: Final = (5.0, 8.0)
"""Longer than that."""

KILLED: Final = ("web", "decisions", "history", "beat")
PAUSED: Final = ("web", "decisions", "history", REDIS)
LONG_PAUSE_S: Final = 10.0
ARMED_S: Final = 20.0
"""How long an armed part may take to reach its point; after that it is killed."""

PART_OF: Final = {"coordinator": "decisions", "recovery": "decisions", "ingest": "history", "gateway": "web"}

Inject = Callable[[], str | None]
"""Injects a fault; returns its target, or None if no such target is running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One kind of fault."""

    kind: str
    inject: Inject
    weight: int = 1
    waits: bool = False
    """Whether injecting it takes as long as the fault lasts."""


def processes_of(job: int, roles: str) -> list[psutil.Process]:
    """The live child processes of that job with these roles (``w``, ``s``)."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            name = process.name()
            mine = name.startswith("pl ") and name[3:4] in roles and name.endswith(f" job {job}")
            if mine and process.status() != psutil.STATUS_ZOMBIE:
                found.append((name, process))
    return [process for _, process in sorted(found, key=lambda each: each[0])]


def kill_one(candidates: Callable[[], Sequence[psutil.Process]], chance: random.Random) -> Inject:
    """SIGKILL one of them."""

    def inject() -> str | None:
        return _to_one(candidates(), chance, lambda process: os.kill(process.pid, signal.SIGKILL))

    return inject


def pause_one(
    candidates: Callable[[], Sequence[psutil.Process]], chance: random.Random, span: tuple[float, float]
) -> Inject:
    """SIGSTOP one of them, and SIGCONT after a while."""

    def inject() -> str | None:
        return _to_one(candidates(), chance, lambda process: _pause(process.pid, chance.uniform(*span)))

    return inject


def cut_link(link: LinkProxy, chance: random.Random, span: tuple[float, float]) -> Inject:
    """Cut a link for a while."""

    def inject() -> str | None:
        seconds = chance.uniform(*span)
        link.cut(seconds)
        return f"{seconds:.1f} s"

    return inject


def cut_data(links: DataLinkProxies, chance: random.Random, span: tuple[float, float]) -> Inject:
    """Cut all links of one server, and wait until they are restored."""
    return lambda: links.cut_one(chance, span)


def choose(faults: Sequence[Fault], chance: random.Random) -> Fault:
    """A random fault, by weight."""
    return chance.choices(faults, weights=[fault.weight for fault in faults])[0]


def _to_one(
    processes: Sequence[psutil.Process], chance: random.Random, act: Callable[[psutil.Process], None]
) -> str | None:
    if not processes:
        return None
    process = chance.choice(list(processes))
    try:
        name: str = process.name()
        act(process)
    except (ProcessLookupError, psutil.NoSuchProcess):
        return None
    return name


def _pause(pid: int, seconds: float) -> None:
    created = psutil.Process(pid).create_time()
    os.kill(pid, signal.SIGSTOP)

    def go_on() -> None:
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if psutil.Process(pid).create_time() == created:
                os.kill(pid, signal.SIGCONT)

    timer = threading.Timer(seconds, go_on)
    timer.daemon = True
    timer.start()


class ServiceFaults:
    """Faults of the services of a control plane and of the links of its machine, by name."""

    def __init__(self, services: Services, agent: ResilientAgent, chance: random.Random) -> None:
        self._services, self._agent, self._chance = services, agent, chance
        self.over_s = 0.0
        """On the monotonic clock: when the last fault was over."""
        self.kinds: Mapping[str, Callable[[], Awaitable[None]]] = self._table()

    def _table(self) -> dict[str, Callable[[], Awaitable[None]]]:
        found: dict[str, Callable[[], Awaitable[None]]] = {}
        for name in KILLED:
            found[f"kill -9 {name}"] = self._bound(self._kill, name)
            found[f"restart {name}"] = self._bound(self._restart, name)
        for name in PAUSED:
            found[f"pause {name}"] = self._bound(self._pause, name)
        for point in [point for point in POINTS if point.partition(".")[0] in PART_OF]:
            found[f"die at {point}"] = self._bound(self._die_at, point)
        return found | {
            "pause all 10 s": self._pause_all,
            "kill -9 all but redis": self._kill_all,
            "restart redis": self._bound(self._restart_redis, False),
            "kill -9 redis": self._bound(self._restart_redis, True),
            "redis loses its end": self._lose_end,
            "redis loses everything": self._lose_all,
            "redis is emptied": self._empty,
            "cut a process' link": self._cut_one,
            "cut every link": self._cut_all,
            "cut the agent's link": self._cut_agent,
        }

    @staticmethod
    def _bound(act: Callable[..., Awaitable[None]], *arguments: object) -> Callable[[], Awaitable[None]]:
        return lambda: act(*arguments)

    def _is_over(self) -> None:
        self.over_s = time.monotonic()

    async def _start(self, *names: str) -> None:
        for name in names:
            await asyncio.to_thread(self._services.start, name)
        self._is_over()

    async def _start_redis(self) -> None:
        await asyncio.to_thread(self._services.start, REDIS)
        await asyncio.to_thread(self._services.await_redis)
        self._is_over()

    async def _kill(self, name: str) -> None:
        await asyncio.to_thread(self._services.kill, name)
        await self._start(name)

    async def _kill_all(self) -> None:
        await asyncio.to_thread(self._services.kill, *KILLED)
        await self._start(*KILLED)

    async def _restart(self, name: str) -> None:
        await asyncio.to_thread(self._services.stop, name)
        await self._start(name)

    async def _pause(self, name: str) -> None:
        await self._hold([name], self._chance.uniform(0.5, 5.0))

    async def _pause_all(self) -> None:
        await self._hold([*KILLED, REDIS], LONG_PAUSE_S)

    async def _hold(self, names: list[str], seconds: float) -> None:
        self._services.signal(names, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._services.signal(names, signal.SIGCONT)
            self._is_over()

    async def _die_at(self, point: str) -> None:
        """Restart the part so that it dies at this point, wait for that, and restart it again."""
        part = PART_OF[point.partition(".")[0]]
        count = self._chance.randint(1, 40) if "recovery" not in point else 1
        await asyncio.to_thread(self._services.kill, part)
        await asyncio.to_thread(self._services.start, part, armed=f"{point}:{count}")
        if "recovery" in point:
            await asyncio.to_thread(shared().flushall)
        for _ in range(int(ARMED_S / 0.05)):
            if self._services.is_over(part):
                break
            await asyncio.sleep(0.05)
        else:
            await asyncio.to_thread(self._services.kill, part)
        await self._start(part)

    async def _restart_redis(self, killed: bool) -> None:
        if killed:
            await asyncio.to_thread(self._services.kill, REDIS)
        else:
            await asyncio.to_thread(self._services.stop, REDIS)
        await self._start_redis()

    async def _lose_end(self) -> None:
        copy = await asyncio.to_thread(self._services.copy_file)
        await asyncio.sleep(self._chance.uniform(0.1, 1.5))
        await asyncio.to_thread(self._services.kill, REDIS)
        await asyncio.to_thread(self._services.put_back_file, copy)
        await self._start_redis()

    async def _lose_all(self) -> None:
        await asyncio.to_thread(self._services.kill, REDIS)
        await asyncio.to_thread(self._services.forget_file)
        await self._start_redis()

    async def _empty(self) -> None:
        await asyncio.to_thread(shared().flushall)
        self._is_over()

    async def _cut_one(self) -> None:
        await self._cut([self._chance.choice(sorted(self._agent.sockets.items()))[1]])

    async def _cut_all(self) -> None:
        await self._cut(list(self._agent.sockets.values()))

    async def _cut(self, sockets: list[ResilientSocket]) -> None:
        """Cut for up to 3 s: a process that reconnects within 4 s is not lost."""
        for socket in sockets:
            socket.may_connect.clear()
            socket.cut()
        await asyncio.sleep(self._chance.uniform(0.0, 3.0))
        self._is_over()
        for socket in sockets:
            socket.may_connect.set()

    async def _cut_agent(self) -> None:
        self._agent.may_connect.clear()
        self._agent.cut()
        await asyncio.sleep(self._chance.uniform(0.0, 5.0))
        self._is_over()
        self._agent.may_connect.set()
