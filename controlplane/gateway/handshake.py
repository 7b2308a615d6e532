"""Authenticates clients (processes, ranks and agents) by the credential in their handshake."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Self
from weakref import WeakKeyDictionary

from channels.db import database_sync_to_async

from controlplane.core.states import JOB_OVER
from controlplane.fleet.credentials import Admission, expired_sentence
from controlplane.gateway import close_codes
from controlplane.gateway.close_codes import Refusal
from controlplane.gateway.connections import Peer
from controlplane.gateway.credential_rotation import admit
from controlplane.gateway.lookup import Lookup
from controlplane.gateway.process_credentials import processes_over
from controlplane.gateway.sockets import Scope, Socket
from controlplane.jobs.models import Job
from controlplane.jobs.sealing import unseal
from controlplane.jobs.tokens import Verdict, rank_verdict_on
from controlplane.protocol import SUBPROTOCOL
from controlplane.protocol.base import MAX_INT32
from controlplane.protocol.codec import encode
from controlplane.protocol.keys import matches, process_key
from controlplane.protocol.orders import Rejection, Role


def offers_our_protocol(scope: Scope) -> bool:
    """Whether the client offers our subprotocol, in our version."""
    return SUBPROTOCOL in scope["subprotocols"]


def header(scope: Scope, name: str) -> str:
    """The header's value; empty if it is missing."""
    encoded = name.lower().encode()
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == encoded), "")


def bearer(scope: Scope) -> str:
    """The bearer credential; empty if it is missing."""
    scheme, _, credential = header(scope, "authorization").partition(" ")
    return credential.strip() if scheme.lower() == "bearer" else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The process that a client claims to be, and its credential."""

    peer: Peer
    credential: str = field(repr=False)

    @classmethod
    def of(cls, scope: Scope, role: Role) -> Self:
        """The claim in a websocket's handshake."""
        route = scope["url_route"]["kwargs"]
        instance = header(scope, "x-paceline-instance")
        peer = Peer(job=route["job"], role=role, index=route["index"], instance=instance)
        return cls(peer=peer, credential=bearer(scope))


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the database has about a process that connects."""

    job_key: bytes | None = field(repr=False)
    """None: there is no such job."""
    over: str | None
    """Why it may not connect, even with its key."""


async def peer_refusal(claim: Claim) -> Refusal | None:
    """Why the client is refused; None if it has the key of this process instance, and its machine may be connected."""
    peer = claim.peer
    try:
        given = bytes.fromhex(claim.credential)
    except ValueError:
        return Refusal(close_codes.UNAUTHORISED)
    if max(peer.job, peer.index) > MAX_INT32:  # larger than any in the database
        return Refusal(close_codes.UNAUTHORISED)
    known = await _lookups().processes.get(peer)
    if known.job_key is None or not peer.instance:
        return Refusal(close_codes.UNAUTHORISED)
    if not matches(process_key(known.job_key, peer.role, peer.index, peer.instance), given):
        return Refusal(close_codes.UNAUTHORISED)
    return None if known.over is None else unauthorised(known.over)


def unauthorised(sentence: str) -> Refusal:
    """The refusal of a client with an invalid credential, with the reason."""
    return Refusal(close_codes.UNAUTHORISED, encode(Rejection(code="unauthorised", detail=sentence)))


async def rank_verdict(claim: Claim) -> Verdict:
    """Validity of the token of a connection that claims to be an attached rank."""
    return await _lookups().ranks.get((claim.credential, claim.peer.job))


@database_sync_to_async
def is_over(job: int) -> bool:
    """Whether the job has ended, according to the database."""
    state = Job.objects.filter(pk=job).values_list("state", flat=True).first()
    return state is None or state in JOB_OVER


async def admitted_agent(scope: Scope, socket: Socket) -> Admission | None:
    """The agent with the credential of the handshake; None if it was refused and ``socket`` was closed."""
    if not offers_our_protocol(scope):
        await socket.send_close(close_codes.MALFORMED)
        return None
    credential = bearer(scope)
    admission: Admission | None = await database_sync_to_async(admit)(credential) if credential else None
    if admission is None:
        await socket.send_close(close_codes.UNAUTHORISED)
        return None
    if admission.expired_at is not None:
        refusal = unauthorised(expired_sentence(admission.agent, admission.expired_at))
        await socket.send_close(refusal.code, refusal.message)
        return None
    return admission


class _Lookups:
    """Those of one event loop."""

    def __init__(self) -> None:
        self.processes = Lookup(_known)
        self.ranks = Lookup(_verdicts)


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Lookups] = WeakKeyDictionary()


def _lookups() -> _Lookups:
    loop = asyncio.get_running_loop()
    if (found := _of_loop.get(loop)) is None:
        found = _of_loop[loop] = _Lookups()
    return found


def _known(peers: Collection[Peer]) -> dict[Peer, Known]:
    jobs = {peer.job for peer in peers}
    keys = {job: unseal(key) for job, key in Job.objects.filter(pk__in=jobs).values_list("pk", "key")}
    over = processes_over(jobs)
    return {peer: Known(job_key=keys.get(peer.job), over=over.get(peer)) for peer in peers}


def _verdicts(claims: Collection[tuple[str, int]]) -> dict[tuple[str, int], Verdict]:
    return {claim: rank_verdict_on(*claim) for claim in claims}
