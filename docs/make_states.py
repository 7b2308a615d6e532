"""``python docs/make_states.py``: writes docs/states.md from the tables in controlplane/core/states.py."""

import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from controlplane.core.states import JOB_ARROWS, PROCESS_ARROWS  # noqa: E402

HEAD = """\
# Life cycles

Made by `python docs/make_states.py` from the tables in `controlplane/core/states.py`; a test holds the two together.
Nothing changes state but along an arrow here.
"""


def diagram(title: str, arrows: Mapping[StrEnum, frozenset[StrEnum]]) -> str:
    """One table as a Mermaid state diagram; the first state is where it begins."""
    lines = [f"## {title}", "", "```mermaid", "stateDiagram-v2", f"    [*] --> {next(iter(arrows))}"]
    order = list(arrows)
    for state, after in arrows.items():
        lines += [f"    {state} --> {other}" for other in sorted(after, key=order.index)]
        lines += [] if after else [f"    {state} --> [*]"]
    return "\n".join([*lines, "```", ""])


def page() -> str:
    """The whole of docs/states.md."""
    job = diagram("A job", JOB_ARROWS)
    process = diagram("A worker or server process", PROCESS_ARROWS)
    return "\n".join([HEAD, job, process])


if __name__ == "__main__":
    (HERE / "states.md").write_text(page())
