"""Small scenarios for tests, each with the one thing changed that a test is about."""

from typing import Any

from controlplane.protocol.spec import Choice, JobSpec, Limits, Stop, Synchronization, Workload
from controlplane.simulator.machines import CpuMachine, MachineSpec
from controlplane.simulator.network import Link
from controlplane.simulator.scenario import Group, Scenario

DEMO_SPEEDS = (1000.0, 1000.0, 500.0, 250.0)

LB_BSP = Synchronization(batching=Choice(name="lb-bsp-cpu", parameters={"predictor": "ema"}))


def spec(**changes: Any) -> JobSpec:
    """Four workers with 64 samples each, 40 iterations."""
    base: dict[str, Any] = {
        "name": "small",
        "workload": Workload(name="softmax-regression"),
        "workers": 4,
        "servers": 2,
        "batch_size": 64,
        "limits": Limits(),
        "stop": Stop(iterations=40),
    }
    return JobSpec(**(base | changes))


def machines(*speeds: float, link: Link | None = None) -> tuple[Group, ...]:
    """One machine of constant speed for each number of samples per second."""
    return tuple(Group(count=1, machine=CpuMachine(samples_per_second=speed), link=link or Link()) for speed in speeds)


def alike(count: int, machine: MachineSpec) -> tuple[Group, ...]:
    """So many of one kind."""
    return (Group(count=count, machine=machine),)


def world(**changes: Any) -> Scenario:
    """The demo's machines: 1000, 1000, 500 and 250 samples per second."""
    of_spec = changes.pop("stop", None)
    base: dict[str, Any] = {
        "name": "small",
        "title": "The demo's machines",
        "story": "for tests",
        "spec": spec(**({"stop": of_spec} if of_spec else {})),
        "policies": {"bsp": Synchronization(), "lb-bsp": LB_BSP},
        "baseline": "bsp",
        "groups": machines(*DEMO_SPEEDS),
        "warm_up": 5,
    }
    return Scenario(**(base | changes))
