"""The table that ``bench peers`` prints."""

from collections.abc import Sequence

from benchmarks.peers.scenes import SCENES
from benchmarks.peers.verdict import Row

HEADINGS = ("time to target", "iteration", "second half", "iterations", "waiting", "memory", "start")


def table(rows: Sequence[Row], *, target: float) -> str:
    """A block for each scene, the fastest first."""
    lines = []
    for scene in dict.fromkeys(row.scene for row in rows):
        here = [row for row in rows if row.scene == scene]
        lines += [f"{SCENES[scene].title}; accuracy {target:g}", _line("", HEADINGS, "setting")]
        measured = [row for row in here if row.figures]
        lines += [
            line_of(row) for row in sorted(measured, key=lambda row: row.figures.to_target_s if row.figures else 0.0)
        ]
        lines += [line_of(row) for row in here if not row.figures]
        lines.append("")
    return "\n".join(lines)


def line_of(row: Row) -> str:
    """One contender; why it has no figures, if it has none."""
    figures = row.figures
    if figures is None:
        return f"{row.name:26}{row.setting}{': ' if row.setting else ''}{row.absent}"
    cells = (
        f"{figures.to_target_s:.1f} s",
        f"{1e3 * figures.iteration_s:.0f} ms",
        f"{1e3 * figures.late_iteration_s:.0f} ms",
        f"{figures.iterations:.0f}",
        f"{figures.waiting:.0%}",
        f"{figures.memory_mb:,.0f} MB",
        f"{figures.start_s:.1f} s",
    )
    chosen = f"{row.setting} (best of {row.tried})" if row.tried > 1 else row.setting
    return _line(row.name, cells, chosen + row.remark + (f"; {row.invalid}" if row.invalid else ""))


def _line(name: str, cells: Sequence[str], setting: str) -> str:
    return f"{name:26}" + "".join(f"{cell:>15}" for cell in cells) + f"  {setting}"
