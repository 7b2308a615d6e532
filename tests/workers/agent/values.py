"""Small messages and orders for the tests of agents."""

import msgspec

from controlplane.protocol.messages import (
    IterationReport,
    ProcessName,
    ServerHello,
    ServerReport,
    WorkerHello,
)
from controlplane.protocol.orders import AgentOrders, Orders, Placement, ProcessOrder, Role, ServerOrders
from controlplane.protocol.spec import JobSpec, Stop, Workload

SPEC = JobSpec(
    name="digits",
    workload=Workload(name="softmax-regression"),
    workers=2,
    servers=2,
    batch_size=8,
    stop=Stop(iterations=3),
)
KEY = "5e" * 32


def behaving(name: str) -> JobSpec:
    """The spec of a job whose processes behave as ``entries`` says of that name."""
    return msgspec.structs.replace(SPEC, name=name)


def hello(number: int) -> WorkerHello:
    return WorkerHello(number=number, parameter_count=650, sample_count=1437)


def server_hello(number: int) -> ServerHello:
    return ServerHello(number=number, host="127.0.0.1", port=4000, tensor_sizes=[640, 10])


def report(number: int, iteration: int = 0) -> IterationReport:
    return IterationReport(
        number=number,
        generation=1,
        iteration=iteration,
        samples=8,
        position=0,
        loss=2.3,
        compute_s=0.1,
        push_s=0.0,
        pull_s=0.0,
        waiting_s=0.0,
        coordination_s=0.0,
    )


def server_report(number: int) -> ServerReport:
    return ServerReport(number=number, iteration=1, bytes_in=1, bytes_out=1, busy_s=0.0)


def orders(sequence: int, *, incarnation: int = 0, generation: int = 1, watermark: int = 5) -> Orders:
    return Orders(
        incarnation=incarnation,
        generation=generation,
        sequence=sequence,
        share=8,
        offset=0,
        global_batch=16,
        origin_iteration=0,
        origin_position=0,
        share_from=0,
        share_until=5,
        watermark=watermark,
        placement_version=1,
    )


def server_orders(sequence: int) -> ServerOrders:
    return ServerOrders(incarnation=0, generation=1, sequence=sequence, members=[], placement_version=1, blocks=[])


def placement(version: int, *, incarnation: int = 0) -> Placement:
    return Placement(incarnation=incarnation, version=version, blocks=[], servers=[])


def process(index: int = 0, *, role: Role = "worker", instance: str = "w0.0.1") -> ProcessName:
    return ProcessName(job=7, role=role, index=index, instance=instance)


def process_order(
    index: int = 0, *, role: Role = "worker", instance: str = "w0.0.1", spec: JobSpec = SPEC
) -> ProcessOrder:
    return ProcessOrder(job=7, role=role, index=index, instance=instance, slot=index, key=KEY, spec=spec)


def agent_orders(sequence: int, *processes: ProcessOrder, durable: int = 0) -> AgentOrders:
    return AgentOrders(sequence=sequence, processes=list(processes), durable=durable)
