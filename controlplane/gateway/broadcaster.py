"""Sends numbered ticks to all open pages, at most two per second."""

import asyncio
import time
from collections.abc import Collection, Mapping
from typing import Final

import msgspec
from channels.db import database_sync_to_async

from controlplane.gateway import close_codes, page_sessions
from controlplane.gateway.job_owners import JobOwners, Owners
from controlplane.gateway.page_sessions import Teams
from controlplane.gateway.sockets import Socket
from controlplane.protocol.pages import Tick

INTERVAL_S: Final = 0.5
"""Shortest interval between two ticks."""

GATHER_S: Final = 0.2
"""How long the first change waits for others. Workers in lockstep report almost at once, and ingest copies them in two
rounds: a tick after the first round would show half an iteration, and the rest one interval later. Where a round takes
longer than 15 ms, the second one comes later than this."""

MOST_JOBS: Final = 1_000
"""Most jobs in one tick, and most jobs with a cached state: the ones that changed last."""

_decoder = msgspec.json.Decoder(Tick)
_encoder = msgspec.json.Encoder()


class Broadcaster:
    """Merges the changes between two ticks and renumbers them, so that a gap in the numbers means a lost tick."""

    def __init__(self, owners: Owners | None = None) -> None:
        self.sockets: dict[Socket, str] = {}
        """Each socket's session key."""
        self._owners = JobOwners(owners or database_sync_to_async(page_sessions.owners))
        self._teams: dict[str, Teams] = {}
        """The teams of each session: its ticks name only their jobs, and jobs without a team."""
        self._jobs: dict[int, str] = {}
        self._states: dict[int, str] = {}
        self._fleet = False
        self._alerts = False
        self._sequence = 0
        self._moved = asyncio.Event()

    def take(self, data: bytes) -> None:
        """Handle a change that was published in Redis."""
        tick = _decoder.decode(data)
        self._jobs |= tick.jobs
        for job, state in tick.jobs.items():
            self._states.pop(job, None)  # the last to move is the last to be forgotten
            self._states[job] = state
        while len(self._states) > MOST_JOBS:
            del self._states[next(iter(self._states))]
        self._fleet |= tick.fleet
        self._alerts |= tick.alerts
        self._moved.set()

    def enter(self, socket: Socket, session: str, teams: Teams) -> None:
        """Register a page that opened, and send it the current sequence number."""
        self.sockets[socket] = session
        self._teams[session] = teams
        socket.put(self._tick({}, fleet=False))

    def leave(self, socket: Socket) -> None:
        """Forget a page that closed."""
        session = self.sockets.pop(socket, None)
        if session is not None and session not in self.sockets.values():
            self._teams.pop(session, None)

    def keep(self, checked: Collection[str], admitted: Mapping[str, Teams]) -> None:
        """Close the sockets of checked sessions that are no longer admitted, and update the teams of the others."""
        for socket, session in self.sockets.items():
            if session in checked and session not in admitted:
                socket.close(close_codes.UNAUTHORISED)
        self._teams |= {session: admitted[session] for session in self._teams if session in admitted}

    async def refresh(self, socket: Socket) -> None:
        """Send a page that missed ticks the states of the jobs that changed last and that it may see."""
        states, teams = dict(self._states), self._teams.get(self.sockets.get(socket, ""), frozenset())
        owners = {} if teams is None else await self._owners.of(states)
        if owners is not None:
            socket.put(self._tick(_seen(states, owners, teams), fleet=True, alerts=True))

    async def run(self) -> None:
        """Send a tick after each group of changes; first to pages that may see every job, since these need no
        query.
        """
        while True:
            await self._moved.wait()
            await asyncio.sleep(GATHER_S)
            self._moved.clear()
            jobs, fleet, alerts = self._jobs, self._fleet, self._alerts
            self._jobs, self._fleet, self._alerts = {}, False, False
            self._sequence += 1
            if len(jobs) > MOST_JOBS:  # a gap in the numbers: every page refetches
                self._sequence, jobs = self._sequence + 1, {}
            self._send(jobs, {}, fleet=fleet, alerts=alerts, limited=False)
            if any(teams is not None for teams in self._teams.values()):
                owners = await self._owners.of(jobs)
                if owners is not None:  # otherwise these pages refetch after the gap
                    self._send(jobs, owners, fleet=fleet, alerts=alerts, limited=True)
            await asyncio.sleep(INTERVAL_S - GATHER_S)

    def _send(
        self, jobs: Mapping[int, str], owners: Mapping[int, int], *, fleet: bool, alerts: bool, limited: bool
    ) -> None:
        """Send the current tick to the pages that see only their teams' jobs, or to all other pages."""
        texts: dict[Teams, str] = {}
        for socket, session in self.sockets.items():
            teams = self._teams[session]
            if (teams is not None) is not limited:
                continue
            if teams not in texts:
                texts[teams] = self._tick(_seen(jobs, owners, teams), fleet=fleet, alerts=alerts)
            socket.put(texts[teams])

    def _tick(self, jobs: dict[int, str], *, fleet: bool, alerts: bool = False) -> str:
        at_ms = int(time.time() * 1000)
        tick = Tick(seq=self._sequence, at_ms=at_ms, jobs=jobs, fleet=fleet, alerts=alerts)
        return _encoder.encode(tick).decode()


def _seen(jobs: Mapping[int, str], owners: Mapping[int, int], teams: Teams) -> dict[int, str]:
    """The jobs without a team, and those of these teams."""
    if teams is None:
        return dict(jobs)
    return {job: state for job, state in jobs.items() if job not in owners or owners[job] in teams}
