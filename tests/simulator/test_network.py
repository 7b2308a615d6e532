import pytest

from controlplane.protocol.spec import Synchronization
from controlplane.simulator.kernel import Kernel
from controlplane.simulator.machines import CpuMachine
from controlplane.simulator.network import Link, LinkChange, Network, Pipe, ServerChange, ServerSpec
from controlplane.simulator.running import simulate
from tests.simulator.worlds import alike, machines, spec, world


def ends(pipe_rate: float, transfers: list[tuple[float, float]]) -> list[float]:
    """When each of (begin, bytes) ends."""
    kernel = Kernel()
    pipe, found = Pipe(kernel, pipe_rate), [0.0] * len(transfers)
    for at, (begin_s, size) in enumerate(transfers):

        def end(at: int = at) -> None:
            found[at] = kernel.now

        kernel.at(begin_s, pipe.send, size, end)
    kernel.run()
    return found


def test_transfers_at_the_same_time_share_fairly() -> None:
    assert ends(100.0, [(0.0, 100.0), (0.0, 100.0)]) == pytest.approx([2.0, 2.0])


def test_a_transfer_is_slowed_only_while_another_is_under_way() -> None:
    # Alone for 0.5 s: 50 bytes; then half each: the second's 25 take 0.5 s; then alone again for the last 25.
    assert ends(100.0, [(0.0, 100.0), (0.5, 25.0)]) == pytest.approx([1.25, 1.0])


def test_fair_sharing_moves_as_much_as_the_rate_allows() -> None:
    transfers = [(0.1 * at, 10.0 + 7 * (at % 3)) for at in range(12)]
    assert max(ends(20.0, transfers)) == pytest.approx(sum(size for _, size in transfers) / 20.0)


def test_a_pipe_can_be_limited_while_it_works() -> None:
    kernel, seen = Kernel(), []
    pipe = Pipe(kernel, 100.0)
    pipe.send(100.0, lambda: seen.append(kernel.now))
    kernel.at(0.5, pipe.limit, 10.0)
    kernel.run()
    assert seen == pytest.approx([5.5])


def test_the_last_change_of_a_link_counts() -> None:
    link = Link(
        bytes_per_s=100.0,
        latency_s=0.1,
        changes=(LinkChange(from_iteration=5, bytes_per_s=50.0), LinkChange(from_s=9.0, bytes_per_s=25.0)),
    )
    network = Network(Kernel(), [link], [ServerSpec()])
    assert network.direct_s(0, 100, 4) == pytest.approx(1.1)
    assert network.direct_s(0, 100, 5) == pytest.approx(2.1)
    assert link.bandwidth(0, 9.5) == 25.0


def test_communication_is_push_and_pull_over_the_workers_own_link() -> None:
    # 1000 parameters of 4 bytes, at 40,000 bytes per second: 0.1 s each way, besides 1 s of work.
    job = spec(workers=2, batch_size=10)
    outcome = simulate(world(spec=job, groups=machines(10, 10, link=Link(bytes_per_s=40_000.0))), "bsp")
    assert outcome.iteration_s == pytest.approx(1.2)
    assert outcome.communication == pytest.approx(0.2 / 1.2, rel=0.02)


def test_workers_that_share_a_server_wait_for_its_bandwidth() -> None:
    # Four workers pull and push 4000 bytes at once over 40,000 bytes per second: 0.4 s each way.
    job = spec(workers=4, servers=1, batch_size=10)
    scenario = world(
        spec=job, groups=alike(4, CpuMachine(samples_per_second=10.0)), servers=ServerSpec(bytes_per_s=40_000.0)
    )
    assert simulate(scenario, "bsp").iteration_s == pytest.approx(1.8)


def test_a_slow_server_holds_everyone_up_by_what_it_holds() -> None:
    job = spec(workers=1, servers=2, batch_size=10)
    scenario = world(
        spec=job,
        groups=machines(10),
        tensor_sizes=(1000, 1000),
        servers=ServerSpec(bytes_per_s=40_000.0),
        odd_servers={1: ServerSpec(bytes_per_s=4_000.0)},
    )
    assert simulate(scenario, "bsp").iteration_s == pytest.approx(1.0 + 2 * 1.0)


def test_a_servers_limit_may_change_in_time() -> None:
    job = spec(workers=1, servers=1, batch_size=10)
    limited = ServerSpec(bytes_per_s=40_000.0, changes=(ServerChange(from_s=12.0, bytes_per_s=4_000.0),))
    scenario = world(spec=job, groups=machines(10), servers=limited, policies={"bsp": Synchronization()})
    outcome = simulate(scenario, "bsp")
    assert outcome.iteration_p95_s == pytest.approx(3.0)
    assert outcome.seconds == pytest.approx(10 * 1.2 + 30 * 3.0)


def test_a_servers_limit_may_change_with_the_iteration() -> None:
    job = spec(workers=1, servers=1, batch_size=10)
    limited = ServerSpec(
        bytes_per_s=40_000.0,
        changes=(
            ServerChange(from_iteration=10, bytes_per_s=4_000.0),
            ServerChange(from_iteration=30, bytes_per_s=40_000.0),
        ),
    )
    scenario = world(spec=job, groups=machines(10), servers=limited, policies={"bsp": Synchronization()})
    outcome = simulate(scenario, "bsp")
    assert outcome.iteration_p95_s == pytest.approx(3.0)
    assert outcome.seconds == pytest.approx(20 * 1.2 + 20 * 3.0)
