"""The pure packages decide; they touch no clock, no chance, no storage, no network and no framework."""

import ast
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.architecture.sources import ROOT, Source, is_within, sources

PURE = (
    "controlplane.protocol",
    "controlplane.core",
    "controlplane.scheduling",
    "controlplane.policies",
    "controlplane.simulator",
)
FIGURES = "frontend.figures"

FORBIDDEN = {
    *("asyncio", "datetime", "secrets", "select", "signal", "threading", "time", "uuid"),
    *("asgiref", "celery", "channels", "django", "kombu", "logging", "redis", "rest_framework", "sqlite3", "structlog"),
    *("httpx", "os", "pathlib", "requests", "socket", "subprocess", "tempfile", "websockets"),
}
HEAVY = {"django", "celery", "channels", "redis", "torch"}


def pure_sources() -> list[Source]:
    return [source for source in sources().values() if is_within(source.name, *PURE, FIGURES)]


def test_pure_modules_import_nothing_that_acts_or_tells_the_time() -> None:
    wrong = [
        f"{source.where}:{found.line} imports {found.name}"
        for source in pure_sources()
        for found in source.imports
        if found.name.partition(".")[0] in FORBIDDEN
    ]
    assert wrong == []


def test_chance_comes_from_a_seeded_generator_alone() -> None:
    wrong = [
        f"{source.where}:{node.lineno} uses random.{node.attr}"
        for source in pure_sources()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in {"random", "np.random", "numpy.random"}
        if node.attr not in {"Random", "default_rng", "Generator", "SeedSequence", "PCG64"}
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "package",
    [
        "controlplane.protocol.codec",
        "controlplane.core.engine",
        "controlplane.scheduling.draining",
        "controlplane.policies.registry",
    ],
)
def test_importing_a_pure_package_loads_nothing_heavy(package: str) -> None:
    program = f"import sys, {package}; print(*sorted({HEAVY!r} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert loaded.stdout.split() == []


def test_a_celery_process_loads_no_pages() -> None:
    pages = {"controlplane.config.urls", "frontend.urls", "rest_framework.views", "torch"}
    start = "from controlplane.config.celery import app; app.loader.import_default_modules()"
    program = f"import sys; {start}; print(*sorted({pages!r} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert loaded.stdout.split() == []


def decoded_types(source: Source) -> Iterator[ast.expr]:
    """What its functions decode into, where that is said at each call."""
    functions = [node for node in ast.walk(source.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for call in {node for function in functions for node in ast.walk(function) if isinstance(node, ast.Call)}:
        if ast.unparse(call.func) in ("msgspec.msgpack.decode", "msgspec.json.decode"):
            yield from (keyword.value for keyword in call.keywords if keyword.arg == "type")


def test_types_are_learned_at_import_so_that_no_two_threads_learn_one_at_once() -> None:
    """Types that only a variable names, as those of policies' states, are learned under a lock."""
    within = (*PURE, "controlplane.runtime", "controlplane.gateway", "controlplane.jobs")
    wrong = [
        f"{source.where}:{found.lineno} decodes into {found.id} at each call: make a decoder beside the type"
        for source in sources().values()
        if is_within(source.name, *within)
        for found in decoded_types(source)
        if isinstance(found, ast.Name) and found.id[0].isupper()
    ]
    assert wrong == []
