"""Operations on simulations, machines, and the user's own account."""

from collections.abc import Mapping, Sequence

from paceline.client.calls import get, pages, post, request
from paceline.client.operations import LOOK_S
from paceline.client.steps import Operation, Sleep
from paceline.client.types import Agent, ApiToken, Invitation, Me, Scenario, Simulation

RECORDED = "recorded"
"""The name of a recorded job's own policies in a simulation of that job."""


def scenarios() -> Operation[list[Scenario]]:
    """List all scenarios that can be simulated, with their policies."""
    return get(list[Scenario], "scenarios")


def simulate(
    scenario: str,
    *,
    policies: Sequence[str] = (),
    seed: int = 0,
    workers: int | None = None,
    bandwidth: float | None = None,
    global_batch: int | None = None,
) -> Operation[Simulation]:
    """Start a simulation; ``wait_simulation`` returns its outcomes. Policies joined by + are simulated together."""
    varied = {"workers": workers, "bandwidth": bandwidth, "global_batch": global_batch}
    body = {"scenario": scenario, "policies": list(policies), "seed": seed}
    body |= {name: value for name, value in varied.items() if value is not None}
    return post(Simulation, "simulations", body)


def what_if(
    number: int,
    *,
    policies: Sequence[str] = (),
    seed: int = 0,
    workers: int | None = None,
    bandwidth: float | None = None,
    seconds: float | None = None,
) -> Operation[Simulation]:
    """Simulate a finished job under other policies, on its recorded machines.

    The outcome called ``recorded`` has the job's own policies, and shows the error of the prediction.
    """
    kept = [RECORDED, *(name for name in policies if name != RECORDED)] if policies else []
    begun = yield from simulate(f"job-{number}", policies=kept, seed=seed, workers=workers, bandwidth=bandwidth)
    return (yield from wait_simulation(begun.id, seconds=seconds))


def simulation(number: int) -> Operation[Simulation]:
    """Return the progress of a simulation, and its outcomes."""
    return get(Simulation, f"simulations/{number}")


def simulations(*, limit: int | None = None) -> Operation[list[Simulation]]:
    """List all simulations, newest first."""
    return pages(Simulation, "simulations", limit)


def wait_simulation(number: int, *, seconds: float | None = None, every: float = LOOK_S) -> Operation[Simulation]:
    """Wait until the simulation is over, and return it.

    Raises:
        TimeoutError: if it is not over within this many seconds.
    """
    slept = 0.0
    while not (now := (yield from simulation(number))).is_over:
        if seconds is not None and slept >= seconds:
            raise TimeoutError(f"simulation {number}: found {now.state} after {seconds:g} s, expected it to be over")
        yield Sleep(every)
        slept += every
    return now


def cancel_simulation(number: int) -> Operation[Simulation]:
    """Cancel the simulation; outcomes so far are kept."""
    return post(Simulation, f"simulations/{number}/actions/cancel")


def agents(*, limit: int | None = None) -> Operation[list[Agent]]:
    """List the machines."""
    return pages(Agent, "agents", limit)


def invite(
    name: str = "",
    *,
    labels: Mapping[str, str] | None = None,
    uses: int = 1,
    lifetime_s: int | None = None,
    remove_after_s: int | None = None,
) -> Operation[Invitation]:
    """Create an enrolment token for one machine, with this name or any new one; or for as many machines as ``uses``.

    Machines that joined with it are removed once they have been offline for ``remove_after_s``; None: never.
    """
    limits = {"lifetime_s": lifetime_s, "remove_after_s": remove_after_s}
    body = {"name": name, "labels": dict(labels or {}), "uses": uses}
    body |= {limit: value for limit, value in limits.items() if value is not None}
    return post(Invitation, "agents/enrolment-tokens", body)


def revoke_invitation(number: int) -> Operation[None]:
    """Revoke an enrolment token by its ``id``; machines that joined with it stay."""
    yield from request("DELETE", f"agents/enrolment-tokens/{number}")


def me() -> Operation[Me]:
    """Return the current user and its permissions."""
    return get(Me, "me")


def tokens() -> Operation[list[ApiToken]]:
    """List the user's own API tokens, without their secrets."""
    return pages(ApiToken, "tokens", None)


def new_token(*, lifetime_s: int = 30 * 86_400) -> Operation[ApiToken]:
    """Create a token with the user's own permissions; only this reply contains its secret."""
    return post(ApiToken, "tokens", {"lifetime_s": lifetime_s})


def revoke_token(key: str) -> Operation[None]:
    """Revoke one of the user's own tokens, by its ``id``."""
    yield from request("DELETE", f"tokens/{key}")
