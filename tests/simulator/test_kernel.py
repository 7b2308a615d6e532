import math

import pytest

from controlplane.simulator.kernel import Kernel


def test_events_happen_in_order_of_time_and_ties_in_order_of_scheduling() -> None:
    kernel, seen = Kernel(), []
    kernel.at(2.0, seen.append, "late")
    kernel.at(1.0, seen.append, "first")
    kernel.at(1.0, seen.append, "second")
    kernel.run()
    assert seen == ["first", "second", "late"]
    assert (kernel.now, kernel.happened, kernel.pending) == (2.0, 3, 0)


def test_an_event_may_schedule_others_for_the_same_moment() -> None:
    kernel, seen = Kernel(), []
    kernel.at(1.0, lambda: kernel.after(0.0, seen.append, "follows"))
    kernel.at(1.0, seen.append, "was there before")
    kernel.run()
    assert seen == ["was there before", "follows"]


def test_time_stops_where_it_was_asked_to() -> None:
    kernel, seen = Kernel(), []
    kernel.at(1.0, seen.append, 1)
    kernel.at(3.0, seen.append, 3)
    kernel.run(until_s=2.0)
    assert (seen, kernel.now, kernel.pending) == ([1], 2.0, 1)


@pytest.mark.parametrize("time_s", [0.5, math.nan, math.inf])
def test_the_past_and_no_time_at_all_are_refused(time_s: float) -> None:
    kernel = Kernel()
    kernel.at(1.0, lambda: None)
    kernel.step()
    with pytest.raises(ValueError, match="expected a finite time in the future"):
        kernel.at(time_s, lambda: None)


def test_simpy_has_the_same_queue() -> None:
    """Customers of one till, by simpy and by this kernel: the same times of departure."""
    simpy = pytest.importorskip("simpy", reason="simpy is not installed: nothing to compare the kernel with")
    arrivals, service_s = [0.0, 0.3, 0.4, 2.5, 2.6, 2.7], [0.5, 0.7, 0.2, 0.4, 0.4, 0.4]
    theirs: list[float] = []
    environment = simpy.Environment()
    till = simpy.Resource(environment, capacity=1)

    def customer(arrival_s: float, takes_s: float):  # type: ignore[no-untyped-def]
        yield environment.timeout(arrival_s)
        with till.request() as request:
            yield request
            yield environment.timeout(takes_s)
            theirs.append(environment.now)

    for arrival_s, takes_s in zip(arrivals, service_s, strict=True):
        environment.process(customer(arrival_s, takes_s))
    environment.run()

    kernel, ours, free_s = Kernel(), [], [0.0]

    def arrive(takes_s: float) -> None:
        free_s[0] = max(free_s[0], kernel.now) + takes_s
        kernel.at(free_s[0], lambda: ours.append(kernel.now))

    for arrival_s, takes_s in zip(arrivals, service_s, strict=True):
        kernel.at(arrival_s, arrive, takes_s)
    kernel.run()
    assert ours == pytest.approx(theirs)


def test_a_run_of_so_many_events_reports_whether_there_are_more() -> None:
    kernel, seen = Kernel(), []
    for number in range(3):
        kernel.at(float(number), seen.append, number)
    assert kernel.run(at_most=2)
    assert seen == [0, 1]
    assert not kernel.run(at_most=2)
    assert seen == [0, 1, 2]
