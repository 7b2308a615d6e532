from dataclasses import dataclass

import msgspec

from controlplane.protocol.orders import Orders
from tests.workers.trainer.test_sampler import orders
from workers.trainer.schedule import Schedule


@dataclass
class Maker:
    sequence: int = 0

    def __call__(self, share_from: int) -> Orders:
        self.sequence += 1
        plain = orders(share=1, offset=0, global_batch=4)
        return msgspec.structs.replace(plain, sequence=self.sequence, share_from=share_from)


def test_an_iteration_takes_the_newest_orders_that_speak_of_it() -> None:
    make, schedule = Maker(), Schedule()
    given = [make(0), make(2), make(2), make(4)]
    for each in given:
        schedule.hear(each)
    taken = [schedule.speaking_of(iteration) for iteration in range(6)]
    assert taken == [given[at] for at in (0, 0, 2, 2, 3, 3)]


def test_orders_of_later_iterations_only_leave_the_share_as_it_was() -> None:
    make, schedule = Maker(), Schedule()
    before, after = make(0), make(9)
    schedule.hear(before)
    schedule.hear(after)
    assert schedule.speaking_of(8) is before


def test_late_and_repeated_orders_are_not_heard() -> None:
    make, schedule = Maker(), Schedule()
    old, new = make(0), make(0)
    for each in (new, old, new):
        schedule.hear(each)
    assert schedule.speaking_of(0) is new
