"""The agents of one plan on a Ray cluster: starts, monitors, scales and stops them.

Agents below ``plan.agents`` share a placement group that spreads them. Each additional agent has its own group: while
it is pending, Ray's autoscaler treats it as a request for a node; the node is free again once the group is removed.
"""

import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import ray
from ray.exceptions import ActorDiedError, RayActorError, RayError
from ray.util.placement_group import (
    PlacementGroup,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from paceline.client.sync import Client
from paceline.errors import PacelineError
from paceline.on_ray.agent import HostedAgent
from paceline.on_ray.demand import Demand, read_demand
from paceline.on_ray.hosting import GRACE_S
from paceline.on_ray.plan import NAMESPACE, Plan
from paceline.on_ray.sizing import Sizing, Slots, sizing, to_leave
from paceline.on_ray.view import Member, View

ROUND_S: Final = 2.0
"""Interval between two queries of the waiting jobs."""

ANSWER_S: Final = 1.0
"""How long one round waits for replies of the actors."""


class Fleet:
    """Starts or finds the actors of a plan; call ``look`` periodically, and ``end`` at the end."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._groups: dict[str, PlacementGroup] = {}
        self._actors: dict[int, Any] = {}
        self._requested: dict[int, Any] = {}
        """Calls to each actor that have not returned."""
        self._members: dict[int, Member] = {}
        self._idle_since: dict[int, float] = {}
        self._client = Client(plan.url, plan.api_token) if plan.most > plan.agents else None
        self._sized = Sizing(agents=plan.agents)
        self._trouble = ""
        self._next_demand = 0.0
        for index in range(plan.agents):
            self._add(index)
        for index in range(plan.agents, plan.most):  # those of an earlier instance
            if plan.lasting and _known_group(plan.group(index)) is not None:
                self._add(index)

    def look(self) -> View:
        """Check each agent, replace those that cannot start, and adapt the size to the waiting jobs."""
        self._ask()
        if self._client is not None and time.monotonic() >= self._next_demand:
            self._next_demand = time.monotonic() + ROUND_S
            self._size(self._client)
        return View(
            agents=self._plan.agents,
            most=self._plan.most,
            wanted=self._sized.agents,
            members=[self._members[index] for index in sorted(self._actors)],
            waiting=list(self._sized.waiting),
            too_large=list(self._sized.too_large),
            trouble=self._trouble,
        )

    def groups(self) -> dict[str, str]:
        """The state of each placement group, by its name."""
        return {name: placement_group_table(group)["state"] for name, group in self._groups.items()}

    def end(self) -> None:
        """Stop every agent and release its resources."""
        self._leave(sorted(self._actors))
        if self._client is not None:
            self._client.close()

    def _add(self, index: int) -> None:
        plan = self._plan
        name, lifetime = plan.group(index), "detached" if plan.lasting else None
        if name not in self._groups:
            bundles = [plan.bundle] * (plan.agents if index < plan.agents else 1)
            self._groups[name] = _known_group(name) or placement_group(bundles, "SPREAD", name=name, lifetime=lifetime)
        self._members[index] = Member(name=plan.agent(index), state="unplaced")
        self._actors[index] = (
            ray.remote(HostedAgent)
            .options(
                name=plan.actor(index),
                namespace=NAMESPACE,
                get_if_exists=True,
                lifetime=lifetime,
                max_restarts=-1,
                max_concurrency=4,
                num_cpus=plan.cpus,
                num_gpus=plan.gpus,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._groups[name], plan.bundle_index(index)),
                runtime_env=plan.runtime_env or None,
            )
            .remote(plan, index)
        )

    def _ask(self) -> None:
        for index, actor in self._actors.items():
            if index not in self._requested:
                self._requested[index] = actor.sight.remote()
        ready, _ = ray.wait(list(self._requested.values()), num_returns=len(self._requested), timeout=ANSWER_S)
        answered = {index: answer for index, answer in self._requested.items() if answer in ready}
        for index, answer in answered.items():
            del self._requested[index]
            self._members[index] = self._answer(index, answer)
            if self._members[index].state == "failed":
                self._add_again(index)
        for index in self._requested:
            member = self._members[index]
            if member.state not in ("unplaced", "moving", "failed"):
                self._members[index] = msgspec.structs.replace(member, state="moving")

    def _answer(self, index: int, answer: Any) -> Member:
        before = self._members[index]
        try:
            return Member(name=before.name, **_shown(ray.get(answer)))
        except ActorDiedError as error:
            return Member(name=before.name, state="failed", last=_last_line(error))
        except RayActorError:
            return msgspec.structs.replace(before, state="moving")
        except RayError as error:
            return msgspec.structs.replace(before, state="failed", last=_last_line(error))

    def _add_again(self, index: int) -> None:
        failed = self._members[index]
        self._add(index)
        self._members[index] = failed

    def _size(self, client: Client) -> None:
        plan, now = self._plan, time.monotonic()
        names = {plan.agent(index): index for index in range(plan.most)}
        try:
            demand = read_demand(client, names, plan.labels)
        except PacelineError as error:
            self._trouble = str(error)  # the fleet keeps its size
            return
        self._trouble = ""
        each = Slots(workers=plan.slots, servers=plan.server_slots, scripts=plan.slots if plan.allows_scripts else 0)
        here = {plan.agent(index) for index in self._actors}
        self._sized = sizing(
            demand.needs,
            free=demand.free + each * len(here - demand.online),
            each=each,
            here=len(here),
            most=plan.most,
            elsewhere=demand.elsewhere,
        )
        for index in [index for index in range(plan.most) if index not in self._actors][
            : self._sized.agents - len(here)
        ]:
            self._add(index)
        self._shrink(demand, now)

    def _shrink(self, demand: Demand, now: float) -> None:
        plan = self._plan
        idle = {index for index in self._actors if plan.agent(index) not in demand.busy}
        self._idle_since = {index: self._idle_since.get(index, now) for index in idle}
        leaving = to_leave(self._idle_since, now=now, idle_s=plan.idle_s, base=plan.agents, waiting=self._sized.waiting)
        if leaving:
            self._leave(leaving)
            self._sized = Sizing(agents=len(self._actors))

    def _leave(self, indices: Sequence[int]) -> None:
        """Stop the actors, gracefully if they respond, otherwise by force."""
        actors = {index: self._actors.pop(index) for index in indices}
        for index in indices:
            self._requested.pop(index, None)
            self._idle_since.pop(index, None)
        placed = [index for index in indices if self._members[index].state not in ("unplaced", "moving", "failed")]
        ray.wait(
            [actors[index].end.remote() for index in placed] or [ray.put(None)],
            num_returns=len(placed) or 1,
            timeout=GRACE_S + ANSWER_S,
        )
        for actor in actors.values():
            ray.kill(actor, no_restart=True)
        needed = {self._plan.group(index) for index in self._actors}
        for name in [name for name in self._groups if name not in needed]:
            remove_placement_group(self._groups.pop(name))


def _known_group(name: str) -> PlacementGroup | None:
    try:
        return get_placement_group(name)
    except ValueError:
        return None


def _shown(sight: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in sight.items() if name != "pid"}


def _last_line(error: Exception) -> str:
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
