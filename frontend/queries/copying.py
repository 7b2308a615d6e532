"""Prepares the initial content of the job form: a copy of a job, or a simulated run as a real job."""

from dataclasses import dataclass
from typing import Any, Final

from controlplane.jobs.models import Job
from controlplane.protocol import catalogue
from frontend.queries.simulations import scenario_of

MACHINES: Final = ("labels", "emulate", "emulate_servers", "start_from", "limits.maximum", "elastic.minimum_workers")
"""Spec paths that depend on the machines, and are dropped from a simulated run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """The initial content of the form."""

    spec: dict[str, Any]
    what: str
    left: tuple[str, ...] = ()
    """What the user still has to fill in or check, one sentence each."""


def copy_of(job: Job) -> Copy:
    """A copy of the job; of a simulated run, its spec without the simulated machines."""
    if job.simulation is None:
        return Copy(spec=job.spec, what="The duplicated job")
    spec = job.spec | {"name": job.name}
    for path in MACHINES:
        spec = _left_out(spec, path.split("."))
    workers, servers = spec["workers"], spec.get("servers", 1)
    left = [
        f"{workers} workers and {servers} server{'' if servers == 1 else 's'} were simulated. Select your machines by "
        "labels, and set the smallest and largest share that they can hold."
    ]
    model = spec["workload"]["name"]
    if model not in catalogue.WORKLOADS:
        spec["workload"] = {}
        left.append(f"Only the timing of {model} was simulated, and no workload has this name. Choose a workload.")
    scenario = scenario_of(job.simulation)
    if scenario is not None and job.policy in scenario.reassigning:
        left.append(f"Under {job.policy}, simulated workers transfer work to each other; workers of a real job do not.")
    return Copy(spec=spec, what=f"{job.policy} of simulation #{job.simulation.pk}", left=tuple(left))


def _left_out(tree: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """A copy of a document without the values at a path."""
    first, *rest = names
    if first not in tree:
        return tree
    if rest and isinstance(tree[first], dict):
        return tree | {first: _left_out(tree[first], rest)}
    return {name: value for name, value in tree.items() if name != first}
