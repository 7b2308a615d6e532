"""Workloads of a user's own: ``package.module:factory``, on machines whose owner allows it."""

import importlib
from typing import Any

from controlplane.protocol.parts import SpecError
from controlplane.protocol.training import Workload as WorkloadSpec
from workers.workloads.local import Local
from workers.workloads.shape import Workload

MEMBERS = ("shapes", "init", "replica", "rule", "labels", "writers")


def load_foreign(spec: WorkloadSpec, local: Local) -> Workload:
    """What ``factory(**options)`` makes; it is code of the job, so the machine's owner must have allowed it.

    Raises:
        SpecError: where that is not allowed, or there is no such factory, or it makes no workload.
    """
    if not local.allow_code:
        expected = "a name of the catalogue: this machine runs no code of jobs (its agent was not given --allow-code)"
        raise SpecError("workload.name", spec.name, expected)
    workload = _factory(spec)(**spec.options)
    lacking = [name for name in MEMBERS if not hasattr(workload, name)]
    if lacking:
        made = f"a {type(workload).__name__} without {', '.join(lacking)}"
        raise SpecError("workload.name", made, "a workload: workers/workloads/shape.py says what it must have")
    return workload  # type: ignore[no-any-return]


def _factory(spec: WorkloadSpec) -> Any:
    module, _, name = spec.name.partition(":")
    try:
        factory = getattr(importlib.import_module(module), name, None)
    except (ImportError, ValueError) as error:
        raise SpecError("workload.name", spec.name, f"a module that can be imported here ({error})") from None
    if not callable(factory):
        raise SpecError("workload.name", spec.name, f"a callable {name!r} in module {module}")
    return factory
