"""docs/reproduction-live.md: live figures with those of the paper, the simulation and the twin."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from controlplane.simulator.reproduction.claims import Finding
from controlplane.simulator.reproduction.document import (
    BASES,
    VERDICTS,
    counted,
    counts_line,
    figure,
    mean_of,
    spread,
    wanted,
)
from controlplane.simulator.reproduction.live.declared import OMITTED
from controlplane.simulator.reproduction.live.results import (
    BAR,
    LiveResult,
    LiveStored,
    RunFacts,
    deviation,
    digest_of_rows,
    finding,
)
from controlplane.simulator.reproduction.live.rows import LiveRow
from controlplane.simulator.reproduction.papers import PAPERS

HEAD: Final = """\
# Reproduction on real processes

Headlines of [reproduction.md](reproduction.md) again, with real gradients: a control plane, an agent, servers and
trainers of this repository, on machines and links of emulated speed, at a size that two cores can run. Kinds and
verdicts follow the rule of that document. The *twin* is the same spec on the same machines, simulated; it uses no
figure of the live run. Live may differ from its twin by a tenth: of the figure; of a ratio less 1, of that ratio; of
shares, of the batch; and of a difference or a bound, of the paper's where that is more. If it differs more,
reasons and the parts of an iteration are below.
"""

MIXED: Final = " †"
"""Behind a verdict that compares runs of different code."""

Simulated = Mapping[str, float | None]
"""By row: the figure in docs/reproduction.md."""


def document(rows: Sequence[LiveRow], stored: LiveStored, simulated: Simulated) -> str:
    """The whole document, in Markdown; ``stored`` has rows as they are declared now."""
    done = {row.name: stored.rows[row.name] for row in rows if row.name in stored.rows}
    found = {row.name: finding(row, done[row.name]) for row in rows if row.name in done}
    parts = [HEAD, _made(rows, stored, found)]
    for paper, (title, _) in PAPERS.items():
        if own := [row for row in rows if row.paper == paper and row.name in done]:
            parts.append(_paper(title, own, done, found, simulated))
    parts += [_outside(rows, done), _runs(done), _missing(rows, done)]
    return "\n".join(parts)


def figure_deviation(row: LiveRow, result: LiveResult) -> float | None:
    """Deviation of the row's figure from its twin's; None if there is no twin. For a difference near 0, relative to the
    paper's figure.
    """
    if row.untwinned:
        return None
    live, twin = result.row.values, result.twin
    if row.compared == "excess":
        return deviation(*([None if value is None else 1.0 + value for value in each] for each in (live, twin)))
    if row.compared == "part":
        return deviation(live, twin, least=1.0)
    return deviation(live, twin, least=abs(row.claim.figure) if row.claim.kind in ("difference", "at most") else 0.0)


def is_outside(row: LiveRow, result: LiveResult) -> bool:
    """Whether the row's figure differs from its twin's by more than the limit."""
    off = figure_deviation(row, result)
    return not row.untwinned and (off is None or abs(off) > BAR)


def _made(rows: Sequence[LiveRow], stored: LiveStored, found: Mapping[str, Finding]) -> str:
    seeds = f"seed {stored.first_seed}" if stored.seeds == 1 else f"seeds {stored.first_seed} to {stored.range[-1]}"
    twinned = [row for row in rows if row.name in found and not row.untwinned]
    outside = [row for row in twinned if is_outside(row, stored.rows[row.name])]
    runs = {(run.scenario, run.policy, run.seed): run for name in found for run in stored.rows[name].runs}
    far = [run for run in runs.values() if abs(run.deviation) > BAR]
    mixed = sum(not stored.rows[name].is_of_one_code for name in found)
    lines = [
        f"Made by `python manage.py reproduce --live`, {seeds}. Digest of rows, scenarios and seeds:",
        f"`{digest_of_rows(rows, stored.range)}`. Results are in [reproduction-live.json](reproduction-live.json).",
        "",
        f"{len(found)} of {len(rows)} rows were run. Of {len(twinned)} with a twin, {len(twinned) - len(outside)} are "
        f"within {BAR:.0%} of it. Of {len(runs)} runs, {len(runs) - len(far)} have iteration times within {BAR:.0%} of "
        "the twin's.",
        "",
        f"Runs are kept when code changes, and only those that a row lacks are made. So in {mixed} of the rows, "
        f"marked{MIXED}, runs of different code are compared, at different load. The list of runs at the end has both.",
        "",
        f"| kind | rows | {' | '.join(VERDICTS)} |",
        f"|---|---:|{'---:|' * len(VERDICTS)}",
        *(counts_line(basis, counted(found.values(), basis)) for basis in BASES),
    ]
    return "\n".join([*lines, ""])


def _paper(
    title: str,
    rows: Sequence[LiveRow],
    done: Mapping[str, LiveResult],
    found: Mapping[str, Finding],
    simulated: Simulated,
) -> str:
    lines = [
        f"## {title}",
        "",
        "| row | where | the paper says | kind | there | simulated | live | twin | off | verdict |",
        "|---|---|---|---|---:|---:|---|---:|---:|---|",
    ]
    notes: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        claim, result = row.claim, done[row.name]
        off = figure_deviation(row, result)
        twin = "-" if row.untwinned else mean_of(result.twin)
        known = simulated.get(row.name)
        lines.append(
            f"| {row.name} ({row.number}) | {claim.where} | {claim.statement} | {claim.basis} | {wanted(claim)} | "
            f"{figure(known) if known is not None else '-'} | {spread(found[row.name])} | {twin} | {_percent(off)} | "
            f"**{found[row.name].verdict}**{'' if result.is_of_one_code else MIXED} |"
        )
        notes[row.note.strip() + (f" No twin: {row.untwinned}." if row.untwinned else "")].append(row.name)
    lines += ["", "Numbers are those of the rows in reproduction.md. Sizes and explanations:", ""]
    lines += [f"- {', '.join(names)}: {note}" for note, names in notes.items()]
    return "\n".join([*lines, ""])


def _percent(off: float | None) -> str:
    return "-" if off is None else f"{off:+.1%}"


def _outside(rows: Sequence[LiveRow], done: Mapping[str, LiveResult]) -> str:
    """Rows that differ by more than the limit, with the parts of their iterations."""
    lines = ["## Outside the bar, and why", ""]
    for row in rows:
        if row.name not in done or not is_outside(row, done[row.name]):
            continue
        result = done[row.name]
        why = f" {row.outside}" if row.outside else ""
        ends = [figure(end(result.spread)) for end in (min, max)] if result.spread else []
        if len({*ends}) > 1:
            why += f" By its seed alone the twin is {ends[0]} to {ends[1]}."
        lines.append(f"- **{row.name}**: live {mean_of(result.row.values)}, twin {mean_of(result.twin)}.{why}")
        lines += [f"  - {_profile(run)}" for run in result.runs]
    if len(lines) == 2:
        lines.append("None of the rows that were run.")
    else:
        lines.insert(2, "Means of all iterations, in milliseconds of a worker: live, and the twin's in brackets.\n")
    return "\n".join([*lines, ""])


def _profile(run: RunFacts) -> str:
    live, twin = run.live, run.twin
    parts = ", ".join(
        f"{name} {1000 * mine:.0f} ({1000 * its:.0f})"
        for name, mine, its in (
            ("computing", live.compute_s, twin.compute_s),
            ("exchanges", live.exchange_s, twin.exchange_s),
            ("waiting", live.waiting_s, twin.waiting_s),
            ("control plane", live.control_s, twin.control_s),
        )
    )
    return f"`{run.scenario}` under {run.policy}: {parts}; iteration {_percent(run.deviation)}"


def _runs(done: Mapping[str, LiveResult]) -> str:
    runs = {(run.scenario, run.policy, run.seed): run for result in done.values() for run in result.runs}
    lines = [
        "## Runs",
        "",
        "*Load* is the number of processes that wanted a processor in the last minute, when the run ended: other work "
        "ran on these machines too. *Overran* is the part of the computing time that was not the emulated machines'. "
        "*Code* is a digest of the control plane's and the workers' sources.",
        "",
        "| scenario | policy | seed | when (UTC) | cores | load | overran | code | lasted | iteration | twin | off |",
        "|---|---|---:|---|---:|---:|---:|---|---:|---:|---:|---:|",
    ]
    lines += [_run(run) for run in runs.values()]
    return "\n".join([*lines, ""])


def _run(run: RunFacts) -> str:
    cells = (
        f"`{run.scenario}`",
        run.policy,
        str(run.seed),
        run.at,
        str(run.cores),
        f"{run.load:.1f}",
        f"{run.overran:.1%}",
        f"`{run.code}`",
        f"{run.seconds:.0f} s",
        f"{1000 * run.live.iteration_s:.0f} ms",
        f"{1000 * run.twin.iteration_s:.0f} ms",
        _percent(run.deviation),
    )
    return f"| {' | '.join(cells)} |"


def _missing(rows: Sequence[LiveRow], done: Mapping[str, LiveResult]) -> str:
    missing = [row for row in rows if row.name not in done]
    lines = ["## Not run", ""]
    lines += [f"- {row.name}: {row.claim.where}, {row.claim.statement}" for row in missing] or ["Every row was run."]
    lines += ["", "## Too large for two cores", "", *(f"- {what}: {why}." for what, why in OMITTED.items())]
    return "\n".join([*lines, ""])
