"""Who is dead, in virtual time: a paused control plane evicts no one who lives, nor does a link that is cut a while.

The driver's rules are played here: a worker gives a sign of life each second; when the engine's deadline comes, it is
told when everyone was heard last; and after a silence of our own that is said first.
"""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.commands import MoveProcess
from controlplane.core.events import ConnectionLost, ControlPlaneResumed, TimePassed
from controlplane.core.lifecycle import GRACE_MS, SILENCE_MS
from controlplane.core.states import ProcessState
from tests.core.story import START_MS, Story, of

STEP_MS = 100
BEAT_MS = 1_000
WORKERS = 3
BEHIND_A_CUT_LINK = 1


@dataclass(frozen=True, kw_only=True)
class Span:
    """From ``begin`` on and before ``end``, in milliseconds."""

    begin: int
    end: int

    def holds(self, now_ms: int) -> bool:
        return self.begin <= now_ms < self.end


NEVER = Span(begin=0, end=0)


@dataclass(kw_only=True)
class Watch:
    """A job that is watched for a while. What is said while the control plane stands still is not heard."""

    pause: Span = NEVER
    cut: Span = NEVER
    notices: bool = True
    """Whether the gateway sees the cut connection end; where a machine just vanishes it does not."""
    story: Story = field(default_factory=lambda: Story(workers=WORKERS, servers=1).running())
    dead: dict[str, int] = field(default_factory=dict)

    def run(self, until_ms: int) -> dict[str, int]:
        """Who was declared dead, and when."""
        heard: dict[str, int] = {}
        for now_ms in range(STEP_MS, until_ms + 1, STEP_MS):
            if self.pause.holds(now_ms):
                continue
            if now_ms == self.pause.end:
                self.see(ControlPlaneResumed(who="gateway"), now_ms)
            self.take_signs(heard, now_ms)
            deadline_ms = self.story.engine.deadline_ms
            if deadline_ms is not None and deadline_ms <= START_MS + now_ms:
                self.see(TimePassed(seen=dict(heard)), now_ms)
        return self.dead

    def take_signs(self, heard: dict[str, int], now_ms: int) -> None:
        for rank in range(WORKERS):
            is_cut = rank == BEHIND_A_CUT_LINK and self.cut.holds(now_ms)
            if is_cut and now_ms == self.cut.begin and self.notices:
                self.see(ConnectionLost(role="worker", index=rank, instance=f"w{rank}.0.1"), now_ms)
            if rank == BEHIND_A_CUT_LINK and now_ms == self.cut.end and f"w{rank}" not in self.dead:
                self.story.now_ms = START_MS + now_ms
                self.story.hello(rank, after_ms=0)
            if not is_cut and (now_ms + 300 * rank) % BEAT_MS == 0:
                heard[f"worker:{rank}:w{rank}.0.1"] = START_MS + now_ms
        heard["server:0:s0.0.1"] = START_MS + now_ms

    def see(self, event: ConnectionLost | ControlPlaneResumed | TimePassed, now_ms: int) -> None:
        for command in of(MoveProcess, self.story.see(event, after_ms=START_MS + now_ms - self.story.now_ms)):
            if command.state is ProcessState.LOST:
                self.dead[f"{command.role[0]}{command.index}"] = now_ms


def spans(begin: int, longest: int) -> st.SearchStrategy[Span]:
    return st.builds(
        lambda at, lasts: Span(begin=at * STEP_MS, end=(at + lasts) * STEP_MS),
        st.integers(1, begin // STEP_MS),
        st.integers(1, longest // STEP_MS),
    )


def test_a_pause_of_the_whole_control_plane_for_ten_seconds_evicts_no_one() -> None:
    pause = Span(begin=5_000, end=15_000)
    watch = Watch(pause=pause)
    assert watch.run(40_000) == {}
    assert watch.story.engine.deadline_ms is not None


@given(pause=spans(8_000, 60_000), notices=st.booleans(), back_after=st.integers(0, 35))
def test_a_long_pause_evicts_no_running_worker(pause: Span, notices: bool, back_after: int) -> None:
    """Nor is a worker that can reach us again only a few seconds after we continue."""
    cut = Span(begin=pause.begin, end=pause.end + back_after * STEP_MS)
    assert Watch(pause=pause, cut=cut, notices=notices).run(pause.end + 20_000) == {}


@given(cut=spans(8_000, SILENCE_MS - BEAT_MS - STEP_MS), notices=st.booleans())
def test_a_worker_behind_a_cut_link_reconnects_and_stays(cut: Span, notices: bool) -> None:
    watch = Watch(cut=cut, notices=notices)
    assert watch.run(cut.end + 20_000) == {}
    states = [move.state for move in watch.story.given(MoveProcess) if (move.role, move.index) == ("worker", 1)]
    assert states[-2:] == ([ProcessState.UNREACHABLE, ProcessState.READY] if notices else states[-2:])
    assert states[-1] is ProcessState.READY


@given(pause=spans(8_000, 20_000), notices=st.booleans())
def test_a_worker_without_heartbeats_after_a_pause_fails_after_the_grace_time(pause: Span, notices: bool) -> None:
    gone = Span(begin=pause.begin, end=10**9)
    dead = Watch(pause=pause, cut=gone, notices=notices).run(pause.end + 20_000)
    assert dead.keys() == {"w1"}
    assert GRACE_MS <= dead["w1"] - pause.end <= GRACE_MS + 2 * STEP_MS


@given(gone=st.integers(10, 80), notices=st.booleans())
def test_a_worker_fails_four_seconds_after_its_last_heartbeat(gone: int, notices: bool) -> None:
    begin = gone * STEP_MS
    dead = Watch(cut=Span(begin=begin, end=10**9), notices=notices).run(begin + 20_000)
    assert dead.keys() == {"w1"}
    assert SILENCE_MS - BEAT_MS <= dead["w1"] - begin <= SILENCE_MS + 2 * STEP_MS
