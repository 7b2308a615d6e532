"""What an agent does next: the difference between its orders and what it runs."""

from tests.workers.agent.values import agent_orders, process, process_order
from workers.table import Plan, ProcessTable

W0, W1 = process(0), process(1, instance="w1.0.1")
ORDER_0, ORDER_1 = process_order(0), process_order(1, instance="w1.0.1")


def test_what_is_ordered_and_does_not_run_is_started() -> None:
    table = ProcessTable()
    assert table.obey(agent_orders(1, ORDER_0, ORDER_1)) == Plan(start=[ORDER_0, ORDER_1])
    assert table.running == [W0, W1]


def test_the_same_orders_again_request_nothing() -> None:
    table = ProcessTable()
    table.obey(agent_orders(1, ORDER_0))
    assert table.obey(agent_orders(1, ORDER_0)) == Plan()
    assert table.obey(agent_orders(2, ORDER_0)) == Plan()


def test_a_process_that_is_no_longer_ordered_is_ended_once() -> None:
    table = ProcessTable()
    table.obey(agent_orders(1, ORDER_0, ORDER_1))
    assert table.obey(agent_orders(2, ORDER_1)) == Plan(stop=[W0])
    assert table.obey(agent_orders(3, ORDER_1)) == Plan()
    assert table.running == [W0, W1]


def test_late_orders_change_nothing() -> None:
    table = ProcessTable()
    table.obey(agent_orders(5, ORDER_0))
    assert table.obey(agent_orders(4, ORDER_0, ORDER_1)) == Plan()
    assert table.obey(agent_orders(3)) == Plan()
    assert table.running == [W0]


def test_a_reconnection_resets_sequences() -> None:
    table = ProcessTable()
    table.obey(agent_orders(5, ORDER_0))
    table.reconnected()
    assert table.obey(agent_orders(1)) == Plan(stop=[W0])


def test_an_instance_that_ended_is_not_begun_again() -> None:
    table = ProcessTable()
    table.obey(agent_orders(1, ORDER_0))
    table.ended(W0)
    assert table.obey(agent_orders(2, ORDER_0)) == Plan()
    assert table.running == []


def test_orders_that_miss_an_end_repeat_it_and_start_nothing() -> None:
    table = ProcessTable()
    table.obey(agent_orders(1, ORDER_0))
    table.ended(W0)
    assert table.obey(agent_orders(2)) == Plan()
    assert table.obey(agent_orders(3, ORDER_0)) == Plan(lost=[W0])
    assert table.obey(agent_orders(4, ORDER_0)) == Plan()


def test_a_new_instance_takes_the_place_of_the_old() -> None:
    table = ProcessTable()
    table.obey(agent_orders(1, ORDER_0))
    table.ended(W0)
    successor = process_order(0, instance="w0.0.2")
    assert table.obey(agent_orders(2, successor)) == Plan(start=[successor])


def test_processes_of_an_earlier_instance_are_reported_lost_once() -> None:
    table = ProcessTable(started=[W0])
    assert table.obey(agent_orders(1, ORDER_0, ORDER_1)) == Plan(start=[ORDER_1], lost=[W0])
    table.ended(W0)
    assert table.obey(agent_orders(2, ORDER_0, ORDER_1)) == Plan()


def test_instances_that_no_one_wants_any_more_are_forgotten() -> None:
    table = ProcessTable(started=[process(5, instance="w5.0.1")])
    table.obey(agent_orders(1, ORDER_0, ORDER_1))
    table.ended(W0)
    table.obey(agent_orders(2, ORDER_1))
    assert table.started == {W1}


def test_a_process_that_is_ending_stays_known_until_it_has_ended() -> None:
    table = ProcessTable()
    table.obey(agent_orders(1, ORDER_0))
    table.obey(agent_orders(2))
    assert table.started == {W0}
    table.ended(W0)
    table.obey(agent_orders(3))
    assert table.started == set()


def test_stop_all_ends_each_process_once() -> None:
    table = ProcessTable()
    table.obey(agent_orders(1, ORDER_0, ORDER_1))
    table.obey(agent_orders(2, ORDER_1))
    assert table.stop_all() == [W1]
    assert table.stop_all() == []
