"""What people ask about servers: one more, or one less. Blocks get there and away as in any change of placement."""

from controlplane.core import exclusion, moving, placing, scaling
from controlplane.core.choices import Rebalancing
from controlplane.core.commands import DrainServer
from controlplane.core.events import DrainRequested, ServerRequested
from controlplane.core.handling import EventRefused, Handling
from controlplane.core.states import JobState


def on_server_requested(handling: Handling, event: ServerRequested) -> None:
    """Ask for a slot for one more server. What it is to hold is for the placement policy to say when it is here."""
    job, asked = handling.job, f"job {handling.job.number}: another server by {event.actor}"
    _check_has_servers(handling, asked)
    if not scaling.spare(handling, insist=True):
        assert job.placement.request is not None
        raise EventRefused(f"{asked}, but a slot for s{job.placement.request.index} is asked for already")
    if not isinstance(handling.chosen.placement, Rebalancing):
        try:
            placing.wanted_by(handling, handling.chosen.placement, more=[max(job.servers) + 1])
        except ValueError as error:
            raise EventRefused(f"{asked}: {error}") from None
        job.requests.respread = f"another server was asked for by {event.actor}"
    scaling.ask(handling, f"another server was asked for by {event.actor}")


def on_drain_requested(handling: Handling, event: DrainRequested) -> None:
    """A worker or server is to leave in order."""
    if event.role == "worker":
        exclusion.drain(handling, event)
        return
    job, asked = handling.job, f"job {handling.job.number}: drain of s{event.index} by {event.actor}"
    _check_has_servers(handling, asked)
    server = job.servers.get(event.index)
    if server is None or server.over:
        here = ", ".join(each.title for each in job.live_servers)
        raise EventRefused(f"{asked}, but it is not here; {here} are")
    if server.draining or server.retiring:
        raise EventRefused(f"{asked}, but it is about to leave already")
    if not any(moving.can_hold(each) for each in job.live_servers if each is not server):
        raise EventRefused(f"{asked}, but no other server is here that could hold its blocks")
    server.draining = True
    reason = f"{server.title} was drained by {event.actor}: its blocks go to the others, and then it ends"
    handling.give(DrainServer, reason, index=server.index)
    placing.follow_requests(handling)


def _check_has_servers(handling: Handling, asked: str) -> None:
    job = handling.job
    if handling.spec.reduces:
        raise EventRefused(f"{asked}, but an all-reduce job has no servers: workers hold the parameters")
    if job.state is not JobState.RUNNING:
        raise EventRefused(f"{asked}, but the job is {job.state}: blocks move between two iterations of a running one")
    if placing.is_ending(job):
        raise EventRefused(f"{asked}, but the job ends before iteration {job.end.stop_at}: blocks would not get there")
