"""Implements ``paceline ray up``, ``status`` and ``down``; requires Ray."""

import json
import os
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import ray
from ray.exceptions import RayError

from paceline.cli import access
from paceline.cli.errors import FAILED, OK, Refusal, refusal_of
from paceline.client.address import Address
from paceline.errors import PacelineError
from paceline.on_ray import supervisor
from paceline.on_ray.cluster import connected, nodes
from paceline.on_ray.fleet import Fleet
from paceline.on_ray.plan import NAMESPACE, SHORT, Plan, written
from paceline.on_ray.view import View

LOOK_S: Final = 0.5
ANSWER_S: Final = 60.0
INTERRUPTED_BY: Final = (signal.SIGTERM, signal.SIGHUP)


def up(options: Namespace) -> int:
    """Start the agents; run until Ctrl-C, or with ``--detach`` return once they have joined."""
    _check(options)
    with connected(options.address) as where, _interruptible():
        _check_free(options.name)
        plan = plan_of(options)
        try:
            say(f"placing {plan.agents} agents ({written(plan.bundle)} each) on the Ray cluster at {where}")
            return _detached(plan, options.wait) if options.detach else _attended(plan, options.wait)
        except BaseException:  # no fleet is left, so no machine may join with its token
            if plan.enrolment_id is not None:
                _revoke(options, plan.enrolment_id)
            raise


def status(options: Namespace) -> int:
    """Print the agents of a detached fleet."""
    with connected(options.address):
        view = _view(_found(options.name))
        sys.stdout.write(f"{json.dumps(msgspec.to_builtins(view))}\n" if options.as_json else f"{shown(view)}\n")
        return OK


def down(options: Namespace) -> int:
    """Stop a detached fleet."""
    with connected(options.address):
        actor = _found(options.name)
        token = ray.get(actor.enrolment_id.remote(), timeout=ANSWER_S)
        ray.get(actor.end.remote(), timeout=ANSWER_S)
        ray.kill(actor, no_restart=True)
        say(f"the agents of {options.name} have left")
    if token is not None:
        _revoke(options, token)
    return OK


def plan_of(options: Namespace) -> Plan:
    """Return the plan, with a token for its agents.

    Raises:
        Refusal: if the control plane does not issue one.
    """
    most = options.max_agents or options.agents
    if options.enrolment_token is not None and most == options.agents:
        found = access.Access(address=Address(url=access.url_of(options, os.environ), token=""))
    else:
        found = access.find(options, os.environ)
    if most > options.agents and found.is_own:
        raise Refusal(
            "--max-agents: found no API token, expected one without a near expiry, to read which jobs wait for slots; "
            "make one with `paceline access NAME --role viewer` or `--role admin`, and set PACELINE_API_TOKEN"
        )
    enrolment, number = _token(options, found, most)
    return Plan(
        name=options.name,
        url=found.address.url,
        enrolment=enrolment,
        enrolment_id=number,
        agents=options.agents,
        most=most,
        cpus=options.cpus,
        gpus=options.gpus,
        slots=options.slots or max(1, int(options.gpus)),
        server_slots=options.server_slots,
        labels=dict(options.label),
        speeds=options.emulate,
        insecure=options.insecure,
        idle_s=options.idle,
        extra=options.behind,
        runtime_env=options.runtime_env,
        api_token=found.address.token if most > options.agents else "",
        lasting=options.detach,
    )


def shown(view: View) -> str:
    """The fleet as a table."""
    rows = [("agent", "state", "node", "address", "starts", "")]
    rows += [
        (each.name, each.state, each.node[:SHORT], each.host, str(each.starts or ""), each.last)
        for each in view.members
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = ["  ".join([*map(str.ljust, row[:5], widths), row[5]]).rstrip() for row in rows]
    if view.most > view.agents:
        waiting = f"; jobs {', '.join(map(str, view.waiting))} wait for slots" if view.waiting else ""
        lines.append(f"{len(view.members)} of at most {view.most} agents, {view.wanted} wanted{waiting}")
    if view.too_large:
        lines.append(f"jobs {', '.join(map(str, view.too_large))} need more slots than {view.most} agents have")
    if view.trouble:
        lines.append(f"what jobs wait for is not known: {view.trouble}")
    if view.stale:
        lines.append(f"this is an earlier state; the last look failed: {view.stale}")
    return "\n".join(lines)


def say(sentence: str) -> None:
    """Print to standard error, separate from results."""
    sys.stderr.write(f"paceline: {sentence}\n")
    sys.stderr.flush()


def _check(options: Namespace) -> None:
    if options.max_agents is not None and options.max_agents < options.agents:
        raise Refusal(
            f"--max-agents: found {options.max_agents}, expected {options.agents} or more, which --agents asks for"
        )
    if not options.cpus and not options.gpus:
        raise Refusal("--cpus 0 --gpus 0: found nothing to set aside for an agent, expected a part of a CPU or GPU")
    if options.enrolment_token is not None and options.label and not options.max_agents:
        raise Refusal("--label: found it beside --enrolment-token, whose own labels the agents have; leave it out")


def _check_free(name: str) -> None:
    if supervisor.find(name) is not None:
        raise Refusal(
            f"--name {name}: found a fleet of that name on this cluster, expected none; "
            f"end it with `paceline ray down --name {name}`, or choose another --name"
        )
    taken = {
        actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True) if actor["namespace"] == NAMESPACE
    }
    if any(each.startswith(f"paceline/{name}/") for each in taken):
        raise Refusal(
            f"--name {name}: found agents of that name, which another `paceline ray up` attends, expected none; "
            "end it with Ctrl-C there, or choose another --name"
        )


def _token(options: Namespace, found: access.Access, most: int) -> tuple[str, int | None]:
    if options.enrolment_token is not None:
        return access.read(options.enrolment_token), None
    try:
        with access.opened(found) as client:
            made = client.invite(
                labels=dict(options.label),
                uses=max(2, most),  # lets a machine that moved to another node join again
                lifetime_s=int(options.expires),
                remove_after_s=int(options.remove_after),
            )
    except PacelineError as error:
        refusal = refusal_of(error)
        cure = "set PACELINE_API_TOKEN to an admin's, or give --enrolment-token one of `paceline enroll --uses N`"
        raise Refusal(f"{refusal}\npaceline ray up: no enrolment token could be made; {cure}", refusal.code) from None
    return made.token, made.id


def _revoke(options: Namespace, token: int) -> None:
    try:
        with access.connected(options) as client:
            client.revoke_invitation(token)
    except (PacelineError, Refusal) as error:
        say(f"enrolment token {token} could not be revoked ({error}); it ends by itself")


def _attended(plan: Plan, wait_s: float) -> int:
    fleet = Fleet(plan)
    try:
        _await(plan, fleet.look, fleet.groups, wait_s)
        last = ""
        while True:
            if (now := shown(fleet.look())) != last:
                sys.stdout.write(f"{now}\n\n")
                sys.stdout.flush()
                last = now
            time.sleep(LOOK_S)
    finally:
        say("taking the agents down")
        fleet.end()


def _detached(plan: Plan, wait_s: float) -> int:
    actor = supervisor.begin(plan)
    try:
        view = _await(plan, lambda: _view(actor), lambda: ray.get(actor.groups.remote(), timeout=ANSWER_S), wait_s)
    except BaseException:
        ray.get(actor.end.remote(), timeout=ANSWER_S)
        ray.kill(actor, no_restart=True)
        raise
    sys.stdout.write(f"{shown(view)}\n")
    say(f"the agents keep running; `paceline ray status --name {plan.name}` shows them, `paceline ray down` ends them")
    return OK


def _await(plan: Plan, look: Callable[[], View], groups: Callable[[], dict[str, str]], wait_s: float) -> View:
    """Wait until all agents have joined; return the fleet.

    Raises:
        Refusal: if they do not join in time.
    """
    deadline = time.monotonic() + wait_s
    while True:
        view = look()
        if view.connected >= plan.agents:
            return view
        if time.monotonic() > deadline:
            break
        time.sleep(LOOK_S)
    if all(member.state == "unplaced" for member in view.members):
        state = groups().get(plan.group(0), "gone")
        raise Refusal(
            f"paceline ray up: a placement group of {plan.agents} x ({written(plan.bundle)}) found no room within "
            f"{wait_s:g} s (it is {state.lower()}); the cluster has:\n"
            + "\n".join(f"  {node}" for node in nodes())
            + "\nask for fewer --agents, or less of --cpus and --gpus, or --wait longer where nodes are added",
            FAILED,
        )
    raise Refusal(
        f"paceline ray up: found {view.connected} of {plan.agents} agents connected to {plan.url} after {wait_s:g} s, "
        f"expected all:\n{shown(view)}\nfix these errors (each node needs paceline[agent], and reaches that address)",
        FAILED,
    )


def _view(actor: Any) -> View:
    return msgspec.convert(ray.get(actor.view.remote(), timeout=ANSWER_S), View)


def _found(name: str) -> Any:
    actor = supervisor.find(name)
    if actor is None:
        raise Refusal(
            f"--name {name}: found no detached fleet of that name on this cluster, expected one; "
            f"begin it with `paceline ray up --name {name} --detach`"
        )
    return actor


@contextmanager
def _interruptible() -> Iterator[None]:
    """Stop the fleet on termination signals, as on Ctrl-C."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in INTERRUPTED_BY}
    try:
        yield
    except RayError as error:
        raise Refusal(f"paceline ray: the cluster does not do it: {error}", FAILED) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
