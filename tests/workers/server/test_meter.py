from workers.server.meter import Meter, Reading


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_overlapping_requests_are_busy_once() -> None:
    clock = Clock()
    meter = Meter(clock)
    with meter:
        clock.now = 1.0
        with meter:
            meter.count(bytes_in=10, bytes_out=3)
            clock.now = 3.0
    clock.now = 10.0
    assert meter.take() == Reading(bytes_in=10, bytes_out=3, busy_s=3.0)
    assert meter.take() == Reading(bytes_in=0, bytes_out=0, busy_s=0.0)


def test_a_request_that_is_under_way_counts_in_both_reports() -> None:
    clock = Clock()
    meter = Meter(clock)
    with meter:
        clock.now = 2.0
        first = meter.take()
        clock.now = 5.0
    assert (first.busy_s, meter.take().busy_s) == (2.0, 3.0)
