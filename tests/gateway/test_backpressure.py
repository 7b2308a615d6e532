"""Who may append while history falls behind: one message in a while of each sender, in order."""

from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.backpressure import FULL_S, REJECTION_S, SLOW_S, Backpressure
from controlplane.runtime import names


def test_a_short_log_admits_everything() -> None:
    backpressure = Backpressure()
    assert all(backpressure.admits(number, length=names.LONG_LOG - 1, now_s=0.0) for number in range(1, 100))


def test_a_long_log_admits_one_message_in_a_while() -> None:
    backpressure = Backpressure()
    admitted = [backpressure.admits(1 + k, length=names.LONG_LOG, now_s=0.0) for k in range(3)]
    assert (admitted, backpressure.refused) == ([True, False, False], 2)
    assert not backpressure.admits(3, length=0, now_s=SLOW_S), "what comes behind a gap waits for it"
    assert backpressure.admits(2, length=names.FULL_LOG, now_s=SLOW_S)
    assert not backpressure.admits(3, length=names.FULL_LOG, now_s=SLOW_S + FULL_S - 0.1)


def test_a_sender_receives_acknowledgements_once_a_second() -> None:
    backpressure = Backpressure()
    assert [backpressure.sends_rejection(now_s) for now_s in (0.0, REJECTION_S / 2, REJECTION_S)] == [True, False, True]


@given(st.lists(st.integers(0, 2 * names.FULL_LOG), min_size=1, max_size=60), st.floats(0.01, 2.0))
def test_resent_messages_are_accepted_in_order_without_a_gap(lengths: list[int], step_s: float) -> None:
    backpressure, admitted, next_number, now_s = Backpressure(), [], 1, 0.0
    for length in lengths:
        now_s += step_s
        number = next_number if backpressure.refused is None else min(next_number, backpressure.refused)
        for said in range(number, number + 3):
            if backpressure.admits(said, length=length, now_s=now_s):
                admitted.append(said)
        next_number = (admitted[-1] if admitted else 0) + 1
    assert admitted == list(range(1, len(admitted) + 1))
