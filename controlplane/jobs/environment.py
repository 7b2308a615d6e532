"""The environment that is stored with a job: the control plane's software, and the environment of each machine."""

import platform
from collections.abc import Collection
from functools import cache
from typing import Final

from django.db import connection

from controlplane.core.engine import ENGINE_VERSION
from controlplane.fleet.models import Agent
from controlplane.protocol import RELEASE
from controlplane.protocol.environment import release_of, system

PACKAGES: Final = ("Django", "celery", "redis", "channels", "numpy", "msgspec")


@cache
def control_plane() -> dict[str, str]:
    """The versions of this process's software by package; ``engine`` is the version of the decision rules."""
    return {
        "paceline": RELEASE,
        "engine": str(ENGINE_VERSION),
        "python": platform.python_version(),
        "platform": system(),
        "database": connection.vendor,
        **{package.lower(): release for package in PACKAGES if (release := release_of(package))},
    }


def machines_run(agents: Collection[int]) -> dict[int, dict[str, str]]:
    """For known agents: the machine's name, the agent's release, and the environment that it last reported."""
    if not agents:
        return {}
    known = Agent.objects.filter(pk__in=agents).values_list("pk", "name", "version", "environment")
    return {pk: {"machine": name, "paceline": release, **reported} for pk, name, release, reported in known}
