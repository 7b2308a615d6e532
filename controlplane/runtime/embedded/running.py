"""The private Redis of a control plane that ``up`` runs on this machine, for commands of the same user beside it."""

import re
from pathlib import Path

from controlplane.runtime.embedded.redis_server import answers


def running_redis(data_dir: Path) -> str | None:
    """The address of the Redis with its configuration in this data folder; None if none answers."""
    try:
        text = (data_dir / "redis" / "redis.conf").read_text()
    except OSError:
        return None
    socket, password = (_value(text, name) for name in ("unixsocket", "requirepass"))
    if not socket or not password:
        return None
    url = f"unix://:{password}@{socket}?db=0"
    return url if answers(url) else None


def _value(text: str, name: str) -> str:
    found = re.search(rf'^{name} "?(.+?)"?$', text, re.MULTILINE)
    return found[1] if found else ""
