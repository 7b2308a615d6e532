"""What the form of a job begins with when it is to be like another: a job again, or a simulated run for real."""

from dataclasses import dataclass
from typing import Any, Final

from controlplane.jobs.models import Job
from controlplane.protocol import catalogue
from frontend.queries.simulations import scenario_of

MACHINES: Final = ("labels", "emulate", "emulate_servers", "start_from", "limits.maximum", "elastic.minimum_workers")
"""Paths of a spec that say something of the machines it runs on: of simulated ones, nothing that holds elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """What the form begins with."""

    spec: dict[str, Any]
    what: str
    left: tuple[str, ...] = ()
    """What somebody still has to say or look at, a sentence each."""


def copy_of(job: Job) -> Copy:
    """The same job again; of a simulated run its policies and its spec, and nothing of its machines."""
    if job.simulation is None:
        return Copy(spec=job.spec, what="The duplicated job")
    spec = job.spec | {"name": job.name}
    for path in MACHINES:
        spec = _left_out(spec, path.split("."))
    workers, servers = spec["workers"], spec.get("servers", 1)
    left = [
        f"The machines are yours: {workers} workers and {servers} server{'' if servers == 1 else 's'} were simulated; "
        "labels say which of yours take part, and smallest and largest share what they can hold."
    ]
    model = spec["workload"]["name"]
    if model not in catalogue.WORKLOADS:
        spec["workload"] = {}
        left.append(f"Only the timing of {model} was simulated, and no workload has this name: choose a workload.")
    scenario = scenario_of(job.simulation)
    if scenario is not None and job.policy in scenario.reassigning:
        left.append(f"Under {job.policy} simulated workers hand work to one another, which those of a job do not.")
    return Copy(spec=spec, what=f"{job.policy} of simulation #{job.simulation.pk}", left=tuple(left))


def _left_out(tree: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """The same without what stands there."""
    first, *rest = names
    if first not in tree:
        return tree
    if rest and isinstance(tree[first], dict):
        return tree | {first: _left_out(tree[first], rest)}
    return {name: value for name, value in tree.items() if name != first}
