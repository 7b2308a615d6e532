"""Laws of a barrier without a centre, whatever is lost, late or repeated."""

from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.core.barriers import Members
from controlplane.policies.barriers.psp import LEAST_RECHECK_MS, Pssp
from controlplane.policies.catalogue.barriers import PsspParameters
from controlplane.protocol.drawing import PeerSampling
from controlplane.protocol.orders import PeerAddress
from controlplane.protocol.peers import Passing, PeerBarrier

WORKERS = st.integers(2, 7)


class World:
    """Workers that ask one another; answers are on their way for any time, and may be lost or come twice."""

    def __init__(self, workers: int, sampling: PeerSampling) -> None:
        self.sampling, self.now = sampling, 0.0
        self.iteration = dict.fromkeys(range(workers), 0)
        self.life = dict.fromkeys(range(workers), 1)
        self.first = dict.fromkeys(range(workers), 0)
        self.barriers = {rank: PeerBarrier(rank) for rank in range(workers)}
        self.computing: set[int] = set()
        self.under_way: list[tuple[int, int, str, int]] = []
        """Answers: to whom, of whom, of which instance, how far."""
        self.generation = 0
        self.passes = 0
        self.publish()

    def instance(self, rank: int) -> str:
        return f"w{rank}.0.{self.life[rank]}"

    def publish(self) -> None:
        self.generation += 1
        roster = [
            PeerAddress(rank=rank, host="h", port=1, instance=self.instance(rank), from_iteration=self.first[rank])
            for rank in self.iteration
        ]
        for barrier in self.barriers.values():
            barrier.enlist(roster, (0, self.generation))

    def look(self, rank: int, lost: set[int]) -> None:
        """One looks whether it may begin; questions to ``lost`` are never answered, other answers are on their way."""
        if rank in self.computing:
            return
        barrier, k = self.barriers[rank], self.iteration[rank]
        passing = barrier.examine(k, self.sampling, self.now)
        if passing is Passing.ASK:
            for peer in list(barrier.asks):
                if peer.rank in lost:
                    barrier.silent(peer.rank, peer.instance, self.now)
                else:
                    answer = (rank, peer.rank, self.instance(peer.rank), self.iteration[peer.rank])
                    self.under_way.append(answer)
        elif passing is Passing.BEGIN:
            self.check(rank, barrier, k)
            self.computing.add(rank)

    def check(self, rank: int, barrier: PeerBarrier, k: int) -> None:
        self.passes += 1
        others = len(self.iteration) - 1
        least = min(self.sampling.sample, others - len(barrier.gone))
        if self.sampling.sample and others:
            least = max(1, least)
        assert len(barrier.sampled) >= least
        for peer, known in barrier.sampled.items():
            assert peer != rank
            assert known >= k - self.sampling.staleness
            assert self.iteration[peer] >= known

    def deliver(self, place: int, *, again: bool) -> None:
        if self.under_way:
            at = place % len(self.under_way)
            to, of, instance, iteration = self.under_way[at] if again else self.under_way.pop(at)
            self.barriers[to].answered(of, instance, iteration, self.now)

    def give_up(self, rank: int) -> None:
        """Its time for answers is over."""
        for peer in self.barriers[rank].asks:
            self.barriers[rank].silent(peer.rank, peer.instance, self.now)

    def restart(self, rank: int) -> None:
        """A new instance begins where the slowest of the others is."""
        self.life[rank] += 1
        self.iteration[rank] = self.first[rank] = min(self.iteration.values())
        self.computing.discard(rank)
        self.barriers[rank] = PeerBarrier(rank)
        self.publish()


@settings(max_examples=150)
@given(st.data(), WORKERS, st.integers(0, 4), st.integers(0, 2), st.booleans(), st.booleans())
def test_the_bound_holds_under_any_order_of_late_lost_and_repeated_answers(data, workers, sample, stale, fixed, held):
    world = World(workers, PeerSampling(sample=sample, staleness=stale, fixed=fixed, held=held, seed=3))
    ranks = st.integers(0, workers - 1)
    for _ in range(60):
        rank = data.draw(ranks)
        match data.draw(st.sampled_from(["look", "look", "look", "deliver", "deliver", "finish", "time", "odd"])):
            case "look":
                world.look(rank, data.draw(st.sets(ranks, max_size=2)))
            case "deliver":
                world.deliver(data.draw(st.integers(0, 99)), again=data.draw(st.booleans()))
            case "finish" if rank in world.computing:
                world.computing.discard(rank)
                world.iteration[rank] += 1
            case "time":
                world.now += data.draw(st.sampled_from([0.01, 1.0, 5.0, 20.0]))
                world.give_up(rank)
            case "odd":
                world.restart(rank)


@settings(max_examples=50)
@given(WORKERS, st.integers(0, 4), st.integers(0, 2), st.integers(0, 99), st.data())
def test_every_worker_comes_on_while_all_answer(workers, sample, stale, seed, data):
    world = World(workers, PeerSampling(sample=sample, staleness=stale, seed=seed))
    speeds = data.draw(st.lists(st.integers(1, 4), min_size=workers, max_size=workers))
    for step in range(200):
        world.now += 0.1
        for rank in range(workers):
            while world.look(rank, set()) is None and world.under_way:
                world.deliver(0, again=False)
            if rank in world.computing and step % speeds[rank] == 0:
                world.computing.discard(rank)
                world.iteration[rank] += 1
    assert min(world.iteration.values()) >= 30


@given(
    st.lists(st.integers(0, 12), min_size=2, max_size=9),
    st.integers(0, 9),
    st.integers(0, 3),
    st.integers(0, 2**31),
    st.sampled_from(["dynamic", "fixed"]),
    st.sampled_from(["redrawn", "held"]),
)
def test_it_decides_as_the_control_plane_does_for_the_same_samples(done, sample, stale, seed, strategy, resample):
    """In each try: of a worker that may pass, and of whom the others wait for."""
    ranks = dict(enumerate(done))
    parameters = PsspParameters(sample=sample, staleness=stale, strategy=strategy, resample=resample)
    policy = Pssp(parameters=parameters)
    state, passage = policy.start(Members(done=ranks, watermark=ranks, seed=seed, at_ms=0), None)
    sampling = PeerSampling(
        sample=sample, staleness=stale, fixed=strategy == "fixed", held=resample == "held", seed=seed
    )
    roster = [PeerAddress(rank=rank, host="h", port=1, instance=f"w{rank}") for rank in ranks]
    barriers = {rank: PeerBarrier(rank) for rank in ranks}
    for barrier in barriers.values():
        barrier.enlist(roster, (0, 1))
    waiting, now_s = set(ranks), 0.0
    for attempt in range(4):
        passed = {rank for rank in waiting if _passes(barriers[rank], ranks, rank, sampling, now_s)}
        assert passed == waiting & set(passage.releases), attempt
        waiting -= passed
        due_ms = policy.recheck_at_ms(state)
        if due_ms is None:
            return
        state, passage = policy.recheck(due_ms, state)
        now_s += LEAST_RECHECK_MS / 1000 + 1e-6


def _passes(barrier: PeerBarrier, done: dict[int, int], rank: int, sampling: PeerSampling, now_s: float) -> bool:
    while (passing := barrier.examine(done[rank] + 1, sampling, now_s)) is Passing.ASK:
        for peer in list(barrier.asks):
            barrier.answered(peer.rank, peer.instance, done[peer.rank] + 1, now_s)
    return passing is Passing.BEGIN
