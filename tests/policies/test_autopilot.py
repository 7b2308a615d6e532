"""The autopilot's decisions: when it looks, what it believes, and when it goes back."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.choices import Mark, Measured, PlayedAlternative, RequestSimulation
from controlplane.policies.autopilot.predicted_gain import LEAST_GAIN, SETTLE, PredictedGain
from controlplane.protocol.autopilot import Autopilot

BATCH = 256
NAMES = ("even", "a", "b", "c")
LEARN, RETRY = 15, 100


class Flight:
    """A job whose time per sample is drawn, under an autopilot."""

    def __init__(self, *, mode: str = "auto", learn: int = LEARN, retry_after: int = RETRY) -> None:
        self.pilot = PredictedGain(parameters=Autopilot(mode=mode, learn=learn, retry_after=retry_after))
        self.state = self.pilot.start()
        self.present = NAMES[0]
        self.batches, self.at_s = 0, 0.0
        self.workers = 4
        self.entered: list[tuple[int, str, str]] = []
        """At which batch what was left for what, by a prediction."""
        self.measured: list[tuple[int, Measured, str]] = []
        """With what held afterwards."""
        self.verdicts: list[tuple[dict[str, float], str]] = []
        """The errors by name, and what was chosen."""

    @property
    def mark(self) -> Mark:
        return Mark(batches=self.batches, samples=self.batches * BATCH, at_s=self.at_s)

    def fly(self, pace_s: float) -> RequestSimulation | None:
        """One more global batch."""
        self.batches += 1
        self.at_s += pace_s * BATCH
        self.state, action = self.pilot.observe(self.mark, self.workers, self.state)
        if isinstance(action, Measured):
            if not action.kept and self.pilot.switches(self.state):
                self._switch(action.came_from, by_itself=True)
            self.measured.append((self.batches, action, self.present))
            return None
        return action

    def answer(self, ask: RequestSimulation, saved: dict[str, Sequence[float]], error: float) -> str:
        """What a simulation gave, by name and seed; the name that was switched to, or empty."""
        played = [
            PlayedAlternative(name=name, saved=sum(found) / len(found), low=min(found), high=max(found))
            for name, found in saved.items()
        ]
        self.state, verdict = self.pilot.decide(ask.look, self.present, played, error, self.mark, self.state)
        self.verdicts.append(({row.name: row.error for row in verdict.rows}, verdict.chosen))
        if not verdict.switches:
            return ""
        self.entered.append((self.batches, self.present, verdict.chosen))
        self._switch(verdict.chosen, by_itself=True)
        return verdict.chosen

    def _switch(self, to: str, *, by_itself: bool) -> None:
        came_from, self.present = self.present, to
        self.state = self.pilot.switched(came_from, to, self.mark, self.state, by_itself=by_itself)

    def until_asked(self, pace_s: float = 0.01) -> RequestSimulation:
        for _ in range(2000):
            if (ask := self.fly(pace_s)) is not None:
                return ask
        raise AssertionError("no simulation was asked for")


SAVED = st.floats(-1.0, 0.9)
TABLE = st.fixed_dictionaries({name: st.tuples(SAVED, SAVED) for name in NAMES})
ERROR = st.floats(0.0, 0.5)
PACES = st.fixed_dictionaries(dict.fromkeys(NAMES, st.floats(0.001, 0.1)))
WORLDS = st.lists(st.tuples(TABLE, ERROR, PACES, st.integers(1, 60)), min_size=1, max_size=25)


def flown(worlds: list, **options: int) -> Flight:
    """A flight through worlds: in each, other things are true, and simulations say other things."""
    flight = Flight(**options)
    for table, error, paces, lasts in worlds:
        for _ in range(lasts):
            ask = flight.fly(paces[flight.present])
            if ask is not None:
                flight.answer(ask, {name: each for name, each in table.items() if name != flight.present}, error)
    return flight


@given(WORLDS)
def test_it_never_switches_where_the_gain_is_within_the_error(worlds: list) -> None:
    flight = Flight()
    for table, error, paces, lasts in worlds:
        for _ in range(lasts):
            ask = flight.fly(paces[flight.present])
            if ask is None:
                continue
            others = {name: each for name, each in table.items() if name != flight.present}
            chosen = flight.answer(ask, others, error)
            if chosen:
                predicted = sum(others[chosen]) / 2
                assert predicted > max(error, LEAST_GAIN)
                assert predicted > flight.verdicts[-1][0][chosen] >= error
                assert min(others[chosen]) > 0


@given(WORLDS, st.integers(12, 30), st.integers(1, 300))
def test_it_never_flaps(worlds: list, learn: int, retry_after: int) -> None:
    flight = flown(worlds, learn=learn, retry_after=retry_after)
    last: dict[str, int] = {}
    for at, _, name in flight.entered:
        assert at - last.get(name, -retry_after - 1) >= retry_after
        last[name] = at
    at = [batches for batches, _, _ in flight.entered]
    assert all(later - sooner >= learn for sooner, later in itertools.pairwise(at))


@given(WORLDS)
def test_it_always_returns_from_a_switch_that_measured_worse(worlds: list) -> None:
    flight = flown(worlds)
    for _, measured, present in flight.measured:
        assert measured.kept == (measured.after_s <= measured.before_s)
        assert present == (measured.name if measured.kept else measured.came_from)


@given(WORLDS)
def test_what_it_proposes_changes_nothing(worlds: list) -> None:
    flight = Flight(mode="suggest")
    for table, error, paces, lasts in worlds:
        for _ in range(lasts):
            if (ask := flight.fly(paces[flight.present])) is not None:
                assert flight.answer(ask, table, error) == ""
    assert flight.present == NAMES[0]
    assert flight.measured == []


def test_it_asks_once_it_has_measured_enough_and_then_waits_for_the_answer() -> None:
    flight = Flight()
    ask = flight.until_asked()
    assert (ask.look, flight.batches) == (1, LEARN + 1)
    assert [flight.fly(0.01) for _ in range(100)] == [None] * 100


def test_an_answer_that_does_not_come_is_retried() -> None:
    flight = Flight()
    flight.until_asked()
    ask = flight.until_asked(pace_s=0.1)
    assert (ask.look, ask.reason) == (2, "no result came within 300 s")


def test_an_answer_that_no_one_waits_for_is_refused() -> None:
    flight = Flight()
    ask = flight.until_asked()
    flight.answer(ask, {}, 0.0)
    with pytest.raises(ValueError, match="a result of simulation 1 of alternatives, expected none"):
        flight.answer(ask, {}, 0.0)


def test_an_answer_without_a_measured_pace_reports_why_the_present_policies_stay() -> None:
    flight = Flight()
    flight.until_asked(pace_s=0.0)
    row = PlayedAlternative(name="a", saved=0.5, low=0.5, high=0.5)
    _, verdict = flight.pilot.decide(1, "even", [row], 0.01, flight.mark, flight.state)
    assert verdict.reason == "even stays: a saves most, but the present time per sample was not measured"


def test_a_switch_is_measured_once_its_shares_have_settled() -> None:
    flight = Flight()
    flight.answer(flight.until_asked(0.02), {"a": (0.5, 0.5)}, 0.01)
    for _ in range(30):
        flight.fly(0.01)
    ((_, measured, present),) = flight.measured
    assert (measured.name, measured.came_from, measured.kept, present) == ("a", "even", True, "a")
    assert measured.gain == pytest.approx(0.5)
    assert measured.reason == "a was predicted to save 50% and saves 50.0%"


def test_what_a_prediction_missed_by_is_its_error_the_next_time() -> None:
    flight = Flight(retry_after=1)
    flight.answer(flight.until_asked(0.02), {"a": (0.5, 0.5)}, 0.01)
    for _ in range(25):
        flight.fly(0.03)
    assert flight.present == "even"
    assert flight.answer(flight.until_asked(0.02), {"a": (0.6, 0.6)}, 0.01) == ""
    assert flight.verdicts[-1][0]["a"] == pytest.approx(1.0)


def test_simulations_get_rarer_while_nothing_changes_and_come_early_when_it_gets_slower() -> None:
    flight, at = Flight(), []
    for _ in range(5):
        flight.answer(flight.until_asked(), {}, 0.0)
        at.append(flight.batches)
    assert [later - sooner for sooner, later in itertools.pairwise(at)] == [30, 60, 120, 240]
    ask = flight.until_asked(0.02)
    assert flight.batches - at[-1] <= 2 * LEARN
    assert ask.reason == "a sample takes 100% longer than it did"


def test_another_roster_that_stays_ends_a_measurement_and_what_was_left_may_return() -> None:
    flight = Flight()
    flight.answer(flight.until_asked(0.02), {"a": (0.5, 0.5)}, 0.01)
    flight.workers = 3
    ask = flight.until_asked(0.05)
    assert (ask.look, flight.measured) == (2, [])
    assert flight.answer(ask, {"even": (0.5, 0.5)}, 0.01) == "even"


@pytest.mark.parametrize("away", [1, 5, LEARN])
def test_a_switch_is_measured_again_when_a_worker_that_was_away_is_back(away: int) -> None:
    flight = Flight()
    flight.answer(flight.until_asked(0.02), {"a": (0.5, 0.5)}, 0.01)
    flight.workers = 3
    for _ in range(away):
        assert flight.fly(0.05) is None
    flight.workers = 4
    for _ in range(SETTLE + LEARN + 1):
        assert flight.fly(0.04) is None
    ((_, measured, present),) = flight.measured
    assert (measured.kept, measured.after_s, present) == (False, pytest.approx(0.04), "even")


def test_after_a_change_by_others_it_only_proposes_until_it_is_set_to_auto() -> None:
    flight = Flight()
    flight.fly(0.01)
    flight._switch("c", by_itself=False)
    assert not flight.pilot.switches(flight.state)
    assert flight.answer(flight.until_asked(), {"a": (0.5, 0.5)}, 0.01) == ""
    flight.state = flight.pilot.set_mode("auto", flight.mark, flight.state)
    assert flight.answer(flight.until_asked(), {"a": (0.5, 0.5)}, 0.01) == "a"


def test_a_proposal_that_someone_takes_is_measured_too() -> None:
    flight = Flight(mode="suggest")
    flight.answer(flight.until_asked(0.02), {"a": (0.5, 0.5)}, 0.01)
    flight._switch("a", by_itself=False)
    for _ in range(30):
        flight.fly(0.03)
    ((_, measured, present),) = flight.measured
    assert (measured.kept, present) == (False, "a")
