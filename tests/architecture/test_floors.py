"""Imports point down: a module may import rooms on lower floors, and its own."""

from graphlib import CycleError, TopologicalSorter

import pytest

from tests.architecture.sources import PACKAGES, Source, is_within, sources

TOP = "benchmarks"
"""Measures everything, workers too."""

FLOORS: list[tuple[str, ...]] = [
    ("controlplane.protocol",),
    ("paceline",),
    ("controlplane.core", "controlplane.scheduling"),
    ("controlplane.policies",),
    ("controlplane.simulator",),
    ("controlplane.fleet",),
    ("controlplane.jobs",),
    ("controlplane.people",),
    ("controlplane.telemetry",),
    ("controlplane.alerts",),
    ("controlplane.runtime", "frontend.figures"),
    ("controlplane.gateway", "controlplane.api"),
    ("frontend",),
    ("controlplane.config",),
    ("controlplane.manage",),
    (TOP,),
]
"""From the ground up; rooms on one floor do not import one another."""

OUTSIDE = ("paceline", "workers")
"""Packages that run where no control plane does: they import the protocol, and themselves."""


MAX_CHAIN = 9
"""Modules of the engine, each importing the next."""


def room(name: str) -> tuple[int, str] | None:
    """The floor and the room of a module of Paceline's; the innermost room counts."""
    rooms = [(number, room) for number, floor in enumerate(FLOORS) for room in floor if is_within(name, room)]
    return max(rooms, key=lambda found: len(found[1]), default=None)


def ours(source: Source) -> list[tuple[str, int]]:
    return [(found.name, found.line) for found in source.imports if is_within(found.name, *PACKAGES)]


def test_every_module_is_in_a_layer() -> None:
    homeless = [
        name for name in sources() if not is_within(name, "workers") and name != "controlplane" and not room(name)
    ]
    assert homeless == []


def test_imports_point_down() -> None:
    wrong = []
    for source in sources().values():
        home = room(source.name)
        if home is None:
            continue
        for name, line in ours(source):
            there = room(name)
            if home[1] == TOP and is_within(name, *OUTSIDE):
                continue
            if there is None:
                wrong.append(f"{source.where}:{line} imports {name}, which is in no room")
            elif there[1] != home[1] and there[0] >= home[0]:
                wrong.append(f"{source.where}:{line}: {home[1]} (floor {home[0]}) imports {name} (floor {there[0]})")
    assert wrong == []


@pytest.mark.parametrize("package", OUTSIDE)
def test_what_runs_elsewhere_imports_the_protocol_and_nothing_else_of_paceline(package: str) -> None:
    wrong = [
        f"{source.where}:{line} imports {name}"
        for source in sources().values()
        if is_within(source.name, package)
        for name, line in ours(source)
        if not is_within(name, "controlplane.protocol", package)
    ]
    assert wrong == []


def test_no_one_imports_benchmarks() -> None:
    """The ``bench`` command finds them by name when it is run."""
    wrong = [
        f"{source.where}:{line} imports {name}"
        for source in sources().values()
        if not is_within(source.name, TOP)
        for name, line in ours(source)
        if is_within(name, TOP)
    ]
    assert wrong == []


def test_no_one_imports_the_settings_package() -> None:
    wrong = [
        f"{source.where}:{line} imports {name}"
        for source in sources().values()
        if not is_within(source.name, "controlplane.config", "controlplane.manage")
        for name, line in ours(source)
        if is_within(name, "controlplane.config")
    ]
    assert wrong == []


def test_the_engine_is_understood_through_a_short_chain_of_imports() -> None:
    """Who changes a module of it must know the ones that it rests on."""
    graph = {name: needs for name, needs in _graph().items() if is_within(name, "controlplane.core")}
    order = [name for name in TopologicalSorter(graph).static_order() if name in graph]
    longest: dict[str, list[str]] = {}
    for name in order:
        below = [longest[other] for other in graph[name] if other in longest and other != "controlplane.core"]
        longest[name] = [name, *max(below, key=len, default=[])]
    chain = max(longest.values(), key=len)
    assert len(chain) <= MAX_CHAIN, " -> ".join(chain)


@pytest.mark.parametrize("deferred", [False, True], ids=["at import", "also within functions"])
def test_there_is_no_cycle(deferred: bool) -> None:
    try:
        order = list(TopologicalSorter(_graph(deferred=deferred)).static_order())
    except CycleError as error:
        raise AssertionError("import cycle: " + " -> ".join(error.args[1])) from None
    assert order


def _graph(*, deferred: bool = False) -> dict[str, set[str]]:
    """What each module needs before it can be imported, or ever; a package's own modules may need the package."""
    graph: dict[str, set[str]] = {}
    for source in sources().values():
        needs = {found.name for found in source.imports if (deferred or found.at_import) and found.name in sources()}
        graph[source.name] = {name for name in needs if not is_within(source.name, name)}
    return graph


def test_pages_read_columns_in_one_place() -> None:
    readers = ("read_columns(", "read_windows(", "newest_iteration(")
    found = [
        source.where
        for source in sources().values()
        if is_within(source.name, "frontend") and any(reader in source.text for reader in readers)
    ]
    assert found == ["frontend/queries/history.py"]
