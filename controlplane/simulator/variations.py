"""A scenario on other machines: more or fewer workers, other bandwidth, another global batch. The work stays the same.

The total number of samples stays. The global batch is the requested one, as far as it can be divided among the workers;
the number of iterations is adjusted.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from controlplane.protocol.base import Value
from controlplane.protocol.faults import fault_of
from controlplane.protocol.spec import MAX_WORKERS
from controlplane.simulator.errors import ScenarioError
from controlplane.simulator.recorded_run import with_bandwidth
from controlplane.simulator.scenario import Group, Scenario, check
from controlplane.simulator.whatif import fastest_of, slowest_of


class Variation(Value, frozen=True, kw_only=True, omit_defaults=True):
    """The differences from the scenario; None means no change."""

    workers: Annotated[int, Meta(ge=1, le=MAX_WORKERS)] | None = None
    """Number of workers: added ones equal the fastest, and the slowest are removed first."""
    bandwidth: Annotated[float, Meta(ge=0.01, le=100.0)] | None = None
    """Factor of the bandwidth of every link and server; latency stays."""
    global_batch: Annotated[int, Meta(ge=1)] | None = None
    """Samples of an iteration, over all workers."""

    def document(self) -> dict[str, Any]:
        """The variation as JSON values, without what does not change."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document

    @property
    def flags(self) -> str:
        """The options of ``manage.py simulate`` for the same variation, each after a space."""
        return "".join(f" --{name.replace('_', '-')} {value}" for name, value in self.document().items())

    @property
    def sentence(self) -> str:
        """A sentence for the operator; empty if nothing changes."""
        parts = []
        if self.workers is not None:
            parts.append(f"{self.workers} worker{'' if self.workers == 1 else 's'}")
        if self.bandwidth is not None:
            parts.append(f"{self.bandwidth:g} times the bandwidth")
        if self.global_batch is not None:
            parts.append(f"a global batch of {self.global_batch}")
        return ", ".join(parts)


def variation_of(document: dict[str, Any]) -> Variation:
    """The variation that ``document`` made."""
    return msgspec.convert(document, Variation)


def is_limited(scenario: Scenario) -> bool:
    """Whether any bandwidth in it is limited, so that more or less bandwidth makes a difference."""
    links = [group.link for group in scenario.groups]
    servers = [scenario.servers, *scenario.odd_servers.values()]
    return any(link.bytes_per_s is not None or link.changes or link.recorded_s for link in links) or any(
        server.bytes_per_s is not None for server in servers
    )


def varied(scenario: Scenario, variation: Variation) -> Scenario:
    """The changed scenario, without its paper's figures.

    Raises:
        ScenarioError: for a change that it does not support.
    """
    if variation == Variation():
        return scenario
    _check_ranges(variation)
    spec, found = scenario.spec, scenario
    if variation.bandwidth is not None:
        if not is_limited(scenario):
            raise ScenarioError("bandwidth", variation.bandwidth, "none: nothing in this scenario limits bandwidth")
        found = with_bandwidth(found, variation.bandwidth)
    workers = variation.workers or spec.workers
    found = replace(_with_machines(found, workers), paper=())
    requested = variation.global_batch or spec.global_batch
    batch_size = max(1, round(requested * spec.batch_size / (workers * spec.usual_share)))
    changed = replace(spec, workers=workers, batch_size=batch_size)
    stop = spec.stop
    if stop.iterations is not None:
        same = round(stop.iterations * spec.global_batch / changed.global_batch)
        stop = replace(stop, iterations=max(scenario.warm_up + 1, same))
    found = replace(found, spec=replace(changed, stop=stop))
    check(found)
    return found


def _check_ranges(variation: Variation) -> None:
    """Check ranges, since structs created in Python are not validated."""
    try:
        variation_of(variation.document())
    except msgspec.ValidationError as error:
        field, expected = fault_of(error)
        raise ScenarioError(field, getattr(variation, field), expected) from None


def _with_machines(scenario: Scenario, workers: int) -> Scenario:
    """The scenario with ``workers`` machines, one group per rank; the job's spec is not changed yet."""
    machines, more = [replace(group, count=1) for group in scenario.machines], workers - scenario.spec.workers
    if more > 0:
        like = machines[fastest_of(scenario)]
        return replace(scenario, groups=(*scenario.groups, replace(like, count=more)))
    if more == 0:
        return scenario
    gone = slowest_of(scenario, -more)
    kept: list[Group] = [machine for rank, machine in enumerate(machines) if rank not in gone]
    happenings = tuple(
        replace(each, index=each.index - sum(rank < each.index for rank in gone)) if each.role == "worker" else each
        for each in scenario.happenings
        if each.role != "worker" or each.index not in gone
    )
    return replace(scenario, groups=tuple(kept), happenings=happenings)
