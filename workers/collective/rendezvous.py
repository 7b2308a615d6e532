"""Rendezvous of the members of a generation: a store at the member of the lowest rank.

No member creates the process group before all members have arrived. Waiting for the others can be interrupted; a
blocked collective cannot.
"""

import contextlib
import logging
import socket
from collections.abc import Callable
from datetime import timedelta

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from controlplane.protocol.orders import PeerAddress
from workers.collective.group import Group, GroupBroken, Place, identity_of, over_of

STORE_S = 5.0
POLL_S = 0.005
PAUSE_S = 0.1
log = logging.getLogger(__name__)


class Host:
    """A store in this process, for groups of which it is the lowest member; listens only on ``host``."""

    def __init__(self, host: str) -> None:
        self.host = host
        with socket.create_server((host, 0)) as listening:
            self.port: int = listening.getsockname()[1]
            self._store = TCPStore(
                host,
                self.port,
                is_master=True,
                wait_for_workers=False,
                timeout=timedelta(seconds=STORE_S),
                master_listen_fd=listening.detach(),
            )


class Meeting:
    """The rendezvous of one generation, in one of its members.

    Args:
        name: of the generation; unique at its store.
        members: all ranks in it; the first one has the store.
        rank: of this worker, among the members.
        host: the address of this worker.
        device: of its vectors; the devices of all members determine the backend.
    """

    def __init__(self, name: str, members: list[PeerAddress], rank: int, host: str, *, device: str = "cpu") -> None:
        self._name, self._members = name, members
        self._identity = identity_of(device)
        ranks = [member.rank for member in members]
        self._place = Place(rank=ranks.index(rank), size=len(members), host=host)
        self._store: Store | None = None
        self._attempt = -1

    @property
    def place(self) -> Place:
        """Which member this worker is."""
        return self._place

    def meet(self, is_over: Callable[[float], bool]) -> Group | None:
        """Create a group of all members once all have arrived; None as soon as ``is_over``, which is called with a time
        to wait.

        A further call creates the next group: the previous one failed, or a member left it.
        """
        self._break_up()
        while not is_over(0.0):
            try:
                attempt = self._gather(is_over)
                if attempt is None:
                    return None
                self._attempt = attempt
                keys = [f"{self._name}/{attempt}/{rank}" for rank in range(self._place.size)]
                identities = [self._connected().get(key).decode() for key in keys]
                store = PrefixStore(f"{self._name}/{attempt}/group", self._connected())
                return Group(store, self._place, over=over_of(identities))
            except GroupBroken:
                self._break_up()
            except RuntimeError as error:  # the member with the store may be dead; orders will report that
                log.info("the meeting %s cannot be reached: %s", self._name, str(error).partition("\n")[0])
                self._store = None
                is_over(PAUSE_S)
        return None

    def _gather(self, is_over: Callable[[float], bool]) -> int | None:
        """The attempt for which all members have arrived; None if it is over."""
        store, mine = self._connected(), -1
        while not is_over(POLL_S if mine >= 0 else 0.0):
            attempt = store.add(f"{self._name}/attempt", 0)
            if attempt != mine:
                mine = attempt
                store.set(f"{self._name}/{mine}/{self._place.rank}", self._identity)
            if store.check([f"{self._name}/{mine}/{rank}" for rank in range(self._place.size)]):
                return mine
        return None

    def _break_up(self) -> None:
        """Start the attempt after the last one, unless it has started: the first member that notices is enough."""
        last, self._attempt = self._attempt, -1
        if last < 0:
            return
        with contextlib.suppress(RuntimeError):
            self._connected().compare_set(f"{self._name}/attempt", str(last), str(last + 1))

    def _connected(self) -> Store:
        if self._store is None:
            first = self._members[0]
            timeout = timedelta(seconds=STORE_S)
            self._store = TCPStore(first.host, first.port, is_master=False, timeout=timeout)
        return self._store
