"""A scenario as a job for real processes: its spec with emulated machines and links."""

from typing import Any

from msgspec.structs import replace

from controlplane.core.choices import Scaling
from controlplane.policies import registry
from controlplane.protocol.emulation import Emulation, LinkChange, LinkEmulation
from controlplane.protocol.spec import spec_document
from controlplane.simulator.errors import ScenarioError
from controlplane.simulator.machines import CpuMachine, GpuMachine
from controlplane.simulator.network import Link, ServerSpec
from controlplane.simulator.scenario import Group, Scenario, chosen


def job_of(scenario: Scenario, policy: str, seed: int) -> dict[str, Any]:
    """The spec of a job that runs the scenario under that policy.

    Raises:
        ScenarioError: for a machine or link that cannot be emulated.
    """
    choices = chosen(scenario, policy)
    adds_servers = isinstance(registry.policy_type("placement", choices.placement), Scaling)
    count = scenario.spec.servers + (scenario.spare_servers if adds_servers else 0)
    servers = [scenario.odd_servers.get(index, scenario.servers) for index in range(count)]
    spec = replace(
        scenario.spec,
        name=f"{scenario.name}-{policy}",
        synchronization=choices,
        emulate=[_machine(group) for group in scenario.machines],
        emulate_servers=[_server(server) for server in servers],
        seed=seed,
    )
    return spec_document(spec)


def _machine(group: Group) -> Emulation:
    machine, link = group.machine, _link(group.link)
    if isinstance(machine, CpuMachine) and not machine.slow:
        return Emulation(
            samples_per_second=machine.samples_per_second / machine.slowness,
            launch_s=machine.overhead_s * machine.slowness,
            link=link,
        )
    if isinstance(machine, GpuMachine) and not machine.slow:
        return Emulation(
            samples_per_second=1 / machine.seconds_per_sample,
            launch_s=machine.launch_s,
            saturation=machine.saturation,
            link=link,
        )
    raise ScenarioError("groups.machine", type(machine).__name__, "a CPU machine or a GPU of steady speed to emulate")


def _link(link: Link) -> LinkEmulation | None:
    if link.latency_s or link.recorded_s or any(change.from_iteration is None for change in link.changes):
        raise ScenarioError("groups.link", link, "bandwidth, and changes by iteration, to emulate")
    if link.bytes_per_s is None and not link.changes:
        return None
    changes = [
        LinkChange(iteration=change.from_iteration or 0, bytes_per_second=change.bytes_per_s) for change in link.changes
    ]
    return LinkEmulation(bytes_per_second=link.bytes_per_s, changes=changes)


def _server(server: ServerSpec) -> LinkEmulation:
    limited = server.latency_s or server.sums_bytes_per_s or server.disk_bytes_per_s
    if limited or any(change.from_iteration is None for change in server.changes):
        raise ScenarioError("servers", server, "bandwidth, and changes by iteration, to emulate")
    changes = [
        LinkChange(iteration=change.from_iteration or 0, bytes_per_second=change.bytes_per_s)
        for change in server.changes
    ]
    return LinkEmulation(bytes_per_second=server.bytes_per_s, changes=changes)
