"""Authenticates websocket handshakes by the credential in their headers."""

from channels.db import database_sync_to_async

from controlplane.core.states import JOB_OVER
from controlplane.fleet.credentials import Admission
from controlplane.gateway.connections import Peer
from controlplane.gateway.credential_rotation import admit
from controlplane.gateway.sockets import Scope
from controlplane.jobs.models import Job
from controlplane.jobs.sealing import unseal
from controlplane.jobs.tokens import Verdict, rank_verdict_on
from controlplane.protocol import SUBPROTOCOL
from controlplane.protocol.keys import matches, process_key


def offers_our_protocol(scope: Scope) -> bool:
    """Whether the client offers our subprotocol, in our version."""
    return SUBPROTOCOL in scope["subprotocols"]


def header(scope: Scope, name: str) -> str:
    """The header's value; empty where there is none."""
    encoded = name.lower().encode()
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == encoded), "")


def bearer(scope: Scope) -> str:
    """The credential; empty where there is none."""
    scheme, _, credential = header(scope, "authorization").partition(" ")
    return credential.strip() if scheme.lower() == "bearer" else ""


async def authenticated_peer(scope: Scope, peer: Peer) -> bool:
    """Whether the client has the key of exactly this process instance."""
    try:
        given = bytes.fromhex(bearer(scope))
    except ValueError:
        return False
    job_key = await _job_key(peer.job)
    if job_key is None or not peer.instance:
        return False
    return matches(process_key(job_key, peer.role, peer.index, peer.instance), given)


async def rank_verdict(scope: Scope, peer: Peer) -> Verdict:
    """Validity of the token of a connection that claims to be an attached rank."""
    verdict: Verdict = await database_sync_to_async(rank_verdict_on)(bearer(scope), peer.job)
    return verdict


@database_sync_to_async
def is_over(job: int) -> bool:
    """Whether the job has ended, according to the database."""
    state = Job.objects.filter(pk=job).values_list("state", flat=True).first()
    return state is None or state in JOB_OVER


async def authenticated_agent(scope: Scope) -> Admission | None:
    """The agent with this credential."""
    credential = bearer(scope)
    admission: Admission | None = await database_sync_to_async(admit)(credential) if credential else None
    return admission


@database_sync_to_async
def _job_key(job: int) -> bytes | None:
    key = Job.objects.filter(pk=job).values_list("key", flat=True).first()
    return None if key is None else unseal(key)
