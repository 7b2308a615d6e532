"""The actor that supervises a detached fleet."""

from typing import Any

import msgspec
import ray

from paceline.on_ray.fleet import Fleet
from paceline.on_ray.plan import NAMESPACE, Plan
from paceline.on_ray.view import Watch


class Supervisor:
    """Supervises the fleet. If its node is lost, Ray restarts it on another, where it finds
    the fleet's actors by name.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan, self._fleet = plan, Fleet(plan)
        self._watch = Watch(self._fleet.look, self._fleet.end)

    def view(self) -> dict[str, Any]:
        """The fleet's last known state."""
        found: dict[str, Any] = msgspec.to_builtins(self._watch.view)
        return found

    def groups(self) -> dict[str, str]:
        """The state of each of its placement groups."""
        return self._fleet.groups()

    def enrolment_id(self) -> int | None:
        """Id of the token that was created for it."""
        return self._plan.enrolment_id

    def end(self) -> None:
        """Stop the fleet; returns when that is done."""
        self._watch.end()


def begin(plan: Plan) -> Any:
    """Start the actor."""
    kept = {"namespace": NAMESPACE, "lifetime": "detached", "max_restarts": -1, "max_concurrency": 4, "num_cpus": 0}
    actor = ray.remote(Supervisor).options(name=plan.actor_of_all, runtime_env=plan.runtime_env or None, **kept)
    return actor.remote(plan)


def find(name: str) -> Any | None:
    """The actor of the fleet of that name, if there is one."""
    try:
        return ray.get_actor(f"paceline/{name}", namespace=NAMESPACE)
    except ValueError:
        return None
