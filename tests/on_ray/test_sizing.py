"""How many agents a fleet has, by what jobs wait for."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from paceline.client.types import Agent, Job, Waiting
from paceline.on_ray.demand import demand_of
from paceline.on_ray.sizing import Need, Slots, sizing, to_leave

ONE = Slots(workers=1, servers=1)
NONE = Slots()


def need(job: int, workers: int, servers: int = 0) -> Need:
    return Need(job=job, slots=Slots(workers=workers, servers=servers))


def agents_for(*needs: Need, free: Slots = NONE, here: int = 1, most: int = 8, each: Slots = ONE) -> int:
    return sizing(needs, free=free, each=each, here=here, most=most, elsewhere=Slots()).agents


def test_a_job_that_waits_gets_as_many_agents_as_it_lacks_slots() -> None:
    assert agents_for(need(1, 4), free=Slots(workers=1)) == 4
    assert agents_for(need(1, 4), need(2, 2), free=Slots(workers=1)) == 6
    assert agents_for(need(1, 2, servers=5)) == 6
    assert agents_for(need(1, 4), each=Slots(workers=4)) == 2


def test_no_agent_is_requested_where_slots_are_free_or_no_job_waits() -> None:
    assert agents_for() == 1
    assert agents_for(need(1, 3), free=Slots(workers=3), here=3) == 3


def test_a_job_that_never_fits_requests_nothing_and_is_named() -> None:
    sized = sizing([need(1, 9), need(2, 3)], free=ONE, each=ONE, here=1, most=8, elsewhere=Slots())
    assert (sized.agents, sized.waiting, sized.too_large) == (3, (2,), (1,))


def test_slots_elsewhere_count_for_what_fits() -> None:
    sized = sizing([need(1, 9)], free=Slots(workers=4), each=ONE, here=1, most=8, elsewhere=Slots(workers=4))
    assert (sized.agents, sized.too_large) == (6, ())


def test_a_script_needs_agents_that_start_scripts() -> None:
    script = Need(job=1, slots=Slots(workers=3, scripts=3))
    starts_them = Slots(workers=1, servers=1, scripts=1)
    assert agents_for(script, free=Slots(workers=8, scripts=1), each=starts_them) == 3
    assert sizing([script], free=NONE, each=ONE, here=1, most=8, elsewhere=Slots(workers=8)).too_large == (1,)


slots = st.builds(Slots, workers=st.integers(0, 20), servers=st.integers(0, 20), scripts=st.integers(0, 20))
needs = st.lists(st.builds(Need, job=st.integers(1, 9), slots=slots), max_size=6)


@given(needs=needs, free=slots, each=slots, here=st.integers(0, 8), more=st.integers(0, 8), elsewhere=slots)
def test_a_fleet_neither_shrinks_nor_passes_its_limit(
    needs: list[Need], free: Slots, each: Slots, here: int, more: int, elsewhere: Slots
) -> None:
    sized = sizing(needs, free=free, each=each, here=here, most=here + more, elsewhere=elsewhere)
    assert here <= sized.agents <= here + more
    assert len(sized.waiting) + len(sized.too_large) == len(needs)


some = st.integers(1, 8)


@given(needs=needs, free=slots, each=st.builds(Slots, workers=some, servers=some, scripts=some))
def test_with_room_enough_every_need_is_met_and_by_no_agent_too_many(
    needs: list[Need], free: Slots, each: Slots
) -> None:
    asked = sum((need.slots for need in needs), Slots())
    agents = sizing(needs, free=free, each=each, here=0, most=1000, elsewhere=Slots()).agents
    assert (free + each * agents).holds(asked)
    assert agents == 0 or not (free + each * (agents - 1)).holds(asked)


def test_those_beyond_the_base_leave_once_no_one_needs_them() -> None:
    idle = {0: 0.0, 1: 0.0, 2: 0.0, 3: 50.0}
    assert to_leave(idle, now=60.0, idle_s=60.0, base=1, waiting=()) == (1, 2)
    assert to_leave(idle, now=59.0, idle_s=60.0, base=1, waiting=()) == ()
    assert to_leave(idle, now=60.0, idle_s=60.0, base=1, waiting=(7,)) == ()


def agent(name: str, *, held: int = 0, state: str = "online", scripts: bool = False, **labels: str) -> Agent:
    return Agent(
        id=1,
        name=name,
        state=state,
        labels=labels,
        slots=[{}, {}],
        server_slots=1,
        runs_scripts=scripts,
        reserved=[{"role": "worker", "slot": slot, "job": 1, "index": slot} for slot in range(held)],
    )


def job(number: int, *, launch: str = "native", command: Sequence[str] = (), **labels: str) -> Job:
    waiting = Waiting(sentence="", status="waits")
    return Job(
        id=number,
        name="",
        state="submitted",
        is_over=False,
        waiting=waiting,
        launch=launch,
        workers=3,
        servers=1,
        spec={"labels": labels} | ({"command": [*command]} if command else {}),
    )


def test_only_jobs_and_machines_with_its_labels_count_for_a_fleet() -> None:
    agents = [
        agent("ray-0", held=2, pool="ray"),
        agent("ray-1", pool="ray"),
        agent("ray-2", pool="ray", state="offline"),
        agent("other", pool="ray", rack="3"),
        agent("m1"),
    ]
    jobs = [job(1, pool="ray"), job(2), job(3, pool="a100"), job(4, launch="attached")]
    demand = demand_of(jobs, agents, frozenset({"ray-0", "ray-1", "ray-2"}), {"pool": "ray"})
    assert [need.job for need in demand.needs] == [1, 2]
    assert demand.free == Slots(workers=4, servers=3)
    assert demand.elsewhere == Slots(workers=2, servers=1)
    assert (demand.online, demand.busy) == ({"ray-0", "ray-1"}, {"ray-0"})


def test_a_script_that_waits_for_agents_counts_and_one_with_its_own_launcher_does_not() -> None:
    agents = [agent("ray-0", held=1, scripts=True), agent("m1")]
    jobs = [job(1), job(2, launch="attached", command=["python", "train.py"]), job(3, launch="attached")]
    demand = demand_of(jobs, agents, frozenset({"ray-0"}), {})
    assert {need.job: need.slots for need in demand.needs} == {
        1: Slots(workers=3, servers=1),
        2: Slots(workers=3, scripts=3),
    }
    assert demand.free == Slots(workers=3, servers=2, scripts=1)
    assert demand.elsewhere == Slots(workers=2, servers=1)
