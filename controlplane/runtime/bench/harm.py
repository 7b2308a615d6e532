"""Faults, each with a name, drawn from a seed: where a part is struck by name of a point, or at a random moment.

A fault is *over* once what it stopped has been started again, goes on, or may connect; Redis once it answers. How long
a part takes to start is part of the time to go on, which counts from then. Whatever waits for a process does so on a
thread: the trainers live on this event loop, and one that is held up looks like a machine that has died.
"""

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from controlplane.runtime.bench.hosts import Host
from controlplane.runtime.bench.parts import REDIS, Parts
from controlplane.runtime.bench.voices import Voice
from controlplane.runtime.faults import POINTS
from controlplane.runtime.redis import shared

KILLED: Final = ("web", "decisions", "history", "beat")
PAUSED: Final = ("web", "decisions", "history", REDIS)
LONG_PAUSE_S: Final = 10.0
ARMED_S: Final = 20.0
"""How long a part that is armed may take to reach its point; then it is killed where it is."""

PART_OF: Final = {"coordinator": "decisions", "recovery": "decisions", "ingest": "history", "gateway": "web"}


class Harm:
    """Does faults to the parts of a control plane and to the links of its machine."""

    def __init__(self, parts: Parts, host: Host, chance: random.Random) -> None:
        self._parts, self._host, self._chance = parts, host, chance
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
            await asyncio.to_thread(self._parts.start, name)
        self._is_over()

    async def _start_redis(self) -> None:
        await asyncio.to_thread(self._parts.start, REDIS)
        await asyncio.to_thread(self._parts.await_redis)
        self._is_over()

    async def _kill(self, name: str) -> None:
        await asyncio.to_thread(self._parts.kill, name)
        await self._start(name)

    async def _kill_all(self) -> None:
        await asyncio.to_thread(self._parts.kill, *KILLED)
        await self._start(*KILLED)

    async def _restart(self, name: str) -> None:
        await asyncio.to_thread(self._parts.stop, name)
        await self._start(name)

    async def _pause(self, name: str) -> None:
        await self._hold([name], self._chance.uniform(0.5, 5.0))

    async def _pause_all(self) -> None:
        await self._hold([*KILLED, REDIS], LONG_PAUSE_S)

    async def _hold(self, names: list[str], seconds: float) -> None:
        self._parts.signal(names, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._parts.signal(names, signal.SIGCONT)
            self._is_over()

    async def _die_at(self, point: str) -> None:
        """Start the part anew so that it dies there, wait for that, and start it once more."""
        part = PART_OF[point.partition(".")[0]]
        count = self._chance.randint(1, 40) if "recovery" not in point else 1
        await asyncio.to_thread(self._parts.kill, part)
        await asyncio.to_thread(self._parts.start, part, armed=f"{point}:{count}")
        if "recovery" in point:
            await asyncio.to_thread(shared().flushall)
        for _ in range(int(ARMED_S / 0.05)):
            if self._parts.is_over(part):
                break
            await asyncio.sleep(0.05)
        else:
            await asyncio.to_thread(self._parts.kill, part)
        await self._start(part)

    async def _restart_redis(self, killed: bool) -> None:
        if killed:
            await asyncio.to_thread(self._parts.kill, REDIS)
        else:
            await asyncio.to_thread(self._parts.stop, REDIS)
        await self._start_redis()

    async def _lose_end(self) -> None:
        copy = await asyncio.to_thread(self._parts.copy_file)
        await asyncio.sleep(self._chance.uniform(0.1, 1.5))
        await asyncio.to_thread(self._parts.kill, REDIS)
        await asyncio.to_thread(self._parts.put_back_file, copy)
        await self._start_redis()

    async def _lose_all(self) -> None:
        await asyncio.to_thread(self._parts.kill, REDIS)
        await asyncio.to_thread(self._parts.forget_file)
        await self._start_redis()

    async def _empty(self) -> None:
        await asyncio.to_thread(shared().flushall)
        self._is_over()

    async def _cut_one(self) -> None:
        await self._cut([self._chance.choice(sorted(self._host.voices.items()))[1]])

    async def _cut_all(self) -> None:
        await self._cut(list(self._host.voices.values()))

    async def _cut(self, voices: list[Voice]) -> None:
        """Cut for up to 3 s: who comes back within 4 s lives."""
        for voice in voices:
            voice.may_connect.clear()
            voice.cut()
        await asyncio.sleep(self._chance.uniform(0.0, 3.0))
        self._is_over()
        for voice in voices:
            voice.may_connect.set()

    async def _cut_agent(self) -> None:
        self._host.may_connect.clear()
        self._host.cut()
        await asyncio.sleep(self._chance.uniform(0.0, 5.0))
        self._is_over()
        self._host.may_connect.set()
