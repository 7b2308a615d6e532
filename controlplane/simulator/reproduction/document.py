"""The results of all headlines as a document: figures beside the papers', verdicts, and reasons for differences."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, get_args

from controlplane.simulator.reproduction.claims import Basis, Claim, Finding, known
from controlplane.simulator.reproduction.reasons import GROUPS, Reason, reason_of
from controlplane.simulator.reproduction.stored import Stored
from controlplane.simulator.reproduction.verdicts import Verdict
from controlplane.simulator.scenarios import find

VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)
BASES: Final[tuple[Basis, ...]] = get_args(Basis)

RULE = """\
Rows are of four kinds. *Predicted*: the paper states a figure, and no setting here was chosen to match it.
*Calibrated*: a setting was. *By construction*: no other result is possible. *Our reading*: the text has no figure, or
does not state the setting that decides it, so the bound was chosen here. Only predicted rows test a paper's result, and
only they are counted in the first table and wherever this document is quoted.

A headline is measured as a ratio against a baseline, a difference, or a number, with every policy of a scenario on the
same machines and seeds and with the same samples, unless a row says otherwise. One rule gives all verdicts, with bounds
on both sides. *Effect* (most rows): with both figures as ratios, the logarithm of the measured one over the paper's is
0.7 to 1.43: reproduced; a half to twice: partly; else not. Anything within a range that the paper gives is reproduced.
*Difference*: the measured one over the paper's, by the same bounds. *Equal*: within the row's tolerance: reproduced;
within twice that: partly; twice the tolerance is less than the distance to the figure that would contradict the paper.
*At most*: not above, and not below the row's other bound, which is 0 only for figures that cannot be negative: parts,
distances, and times. A predicted row also names the mechanism that the paper's effect comes from; if it was not at work
in every seed's runs, the row is a *not*, regardless of its figure. A seed that did not reach the point that a row needs
makes its verdict one step worse; if half of them did not, it is a *not*. The mean is of the others.
"""

CHOSEN = """\
Figures that are not reproduced are shown as they are. But not everything was fixed before the first results. These were
chosen with knowledge of the papers' figures or of results:

- LB-BSP's GPU curves for Inception-V3: its equilibrium (89, 21, 12, 6) and its gain of 54 % are inputs. Those of
  ResNet-32 follow from them by an estimated factor each for work, launches and memory.
- The speeds of the machines in A-BSP's clusters and of the federation's clients: their spread is the paper's. Other
  tenants' load was changed from two levels to a uniform one when results were known. Spark's overhead per iteration
  is an input, from A-BSP's iterations of lr in Spark and in Petuum.
- The learning rates and targets of A-BSP's jobs: such that BSP reaches the target after about as many iterations as in
  the paper. The rate of sparse LR and the target of the DNN were changed with knowledge of BSP's own curve.
- The federation's class separation, learning rate and target accuracy: chosen after trials, so that the variants
  differ. Its rows demonstrate that this can happen, but not by how much.
- Two of PSLD's headlines were reworded with knowledge of their figures on one seed.
- Thresholds of "at most" rows, and figures that a paper shows only as a curve: interpretations, named below the tables.
- PSLD's workers are machines of two GPUs that sum gradients before they push, added after a review of first results.
  After a review of the second results, communication overlaps with computation (BytePS, section 6.2), and in
  Cluster-A servers share the links of the GPUs' machines (section 6.1 has no others). No value was varied.
- Lengths of runs and warm-ups were shortened to make all of this affordable. ResNet-32 on GPUs and the levels of
  heterogeneity, except one of L3, are times only. Generated series of other tenants' load were shortened too,
  which changes them: A-BSP's from 20,000 s to 6,000 s, Cluster-B's from 30,000 s to 20,000 s (its SVM's from
  60,000 s to 40,000 s). A run that is longer ends unfinished.
- How many of PSP's workers are slow, and by how much: so that ASP makes five times BSP's updates (Fig. 1). Of the
  suitable numbers, two of sixteen was chosen with knowledge of pBSP's updates.
- The verdicts' bounds were set twice: after the first results, and tightened after a review of them.
"""

Papers = Mapping[str, tuple[str, Mapping[int, Finding]]]
"""By paper: its title, and the results by row."""


def document(papers: Papers, stored: Stored) -> str:
    """The whole document, in Markdown."""
    parts = [
        _head(papers, stored),
        "## How verdicts are given\n\n" + RULE,
        "## What was chosen with knowledge of results\n\n" + CHOSEN,
    ]
    for paper, (title, findings) in papers.items():
        parts.append(_paper(paper, title, findings))
    parts.append(_cost(stored))
    return "\n".join(parts)


def counted(findings: Iterable[Finding], basis: Basis) -> Counter[Verdict]:
    """Rows of one kind by verdict."""
    return Counter(finding.verdict for finding in findings if finding.claim.basis == basis)


def _head(papers: Papers, stored: Stored) -> str:
    first, last = stored.range[0], stored.range[-1]
    lines = [
        "# Reproduction of the papers",
        "",
        "Results of four papers, simulated in virtual time with the engine and the policies of live jobs.",
        "Below each table: calibrated values, reduced sizes, and reasons for differences. Paceline's own policies, and",
        "the jobs of rows over several, are in the last column; a *ruling* is one of [rulings.md](rulings.md).",
        "",
        f"Made by `python manage.py reproduce all`, seeds {first} to {last}; a figure is their mean. Digest of rows,",
        f"scenarios, code and seeds: `{stored.digest}`. Figures of each seed are in",
        "[reproduction.json](reproduction.json). Digest of the simulator's and the policies' code that measured them:",
        f"{_codes(stored)}. `reproduce --sample` compares it with the code at hand and measures a tenth of the rows",
        "again, others after each change of that code; a test does so.",
        "`reproduce PAPER --first-seed 100` measures with other seeds.",
        "",
        "Predicted rows, which alone count as a result of a paper:",
        "",
        f"| paper | headlines | {' | '.join(VERDICTS)} |",
        f"|---|---:|{'---:|' * len(VERDICTS)}",
    ]
    for title, findings in papers.values():
        lines.append(counts_line(title, counted(findings.values(), "predicted")))
    every = [finding for _, findings in papers.values() for finding in findings.values()]
    lines += [
        "",
        "All rows by kind:",
        "",
        f"| kind | headlines | {' | '.join(VERDICTS)} |",
        f"|---|---:|{'---:|' * len(VERDICTS)}",
        *(counts_line(basis, counted(every, basis)) for basis in BASES),
        "",
        "Why the other predicted rows are not, or not wholly, reproduced; reasons of all rows are below each table:",
        "",
        f"| why | {' | '.join(title.partition(':')[0] for title, _ in papers.values())} | all |",
        f"|---|{'---:|' * (len(papers) + 1)}",
        *_groups(papers),
    ]
    return "\n".join([*lines, ""])


def _groups(papers: Papers) -> list[str]:
    """The number of predicted rows for each kind of reason."""
    numbers: dict[str, Counter[str]] = {}
    for paper, (_, findings) in papers.items():
        predicted = {row: found for row, found in findings.items() if found.claim.basis == "predicted"}
        numbers[paper] = Counter(reason.group for reason in _reasons(paper, predicted).values())
    return [
        f"| *{group}*: {meaning} | {' | '.join(str(found[group]) for found in numbers.values())} | "
        f"{sum(found[group] for found in numbers.values())} |"
        for group, meaning in GROUPS.items()
    ]


def _reasons(paper: str, findings: Mapping[int, Finding]) -> dict[int, Reason]:
    """Reasons of rows that are not reproduced."""
    found = {row: reason_of(paper, row) for row, finding in findings.items() if finding.verdict != "reproduced"}
    return {row: reason for row, reason in found.items() if reason is not None}


def _codes(stored: Stored) -> str:
    """Digests of the code, those with the most rows first."""
    codes = sorted(stored.codes.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{f'`{code}`' if code else 'not recorded'} ({count} rows)" for code, count in codes)


def counts_line(name: str, numbers: Counter[Verdict]) -> str:
    """A row of a table of verdicts."""
    return f"| {name} | {numbers.total()} | {' | '.join(str(numbers[verdict]) for verdict in VERDICTS)} |"


def _paper(paper: str, title: str, findings: Mapping[int, Finding]) -> str:
    lines = [
        f"## {title}",
        "",
        "| | where | the paper says | kind | there | here (least to most of the seeds) | verdict | beside | ",
        "|---:|---|---|---|---:|---|---|---|",
    ]
    notes: dict[str, list[int]] = defaultdict(list)
    for number, finding in findings.items():
        claim = finding.claim
        beside = "; ".join(f"{name} {mean_of(values)}" for name, values in finding.beside) or "-"
        lines.append(
            f"| {number} | {claim.where} | {claim.statement} | {claim.basis} | {wanted(claim)} | "
            f"{spread(finding)} | **{finding.verdict}** | {beside} |"
        )
        notes[claim.note.strip()].append(number)
    reasons: dict[Reason, list[int]] = defaultdict(list)
    for row, reason in _reasons(paper, findings).items():
        reasons[reason].append(row)
    lines += ["", "Why rows are not reproduced, or not wholly:", ""]
    lines += [f"- {numbers(rows)}: *{reason.group}*. {reason.sentence}" for reason, rows in reasons.items()]
    lines += ["", "Calibrated values, reduced sizes, and explanations:", ""]
    lines += [f"- {numbers(rows)}: {note}" for note, rows in notes.items() if note]
    return "\n".join([*lines, ""])


def wanted(claim: Claim) -> str:
    """The paper's figure, and the rule if it is not that of an effect."""
    upto = f" to {figure(claim.upto)}" if claim.upto is not None else ""
    tolerance = f" within {figure(claim.tolerance)}" if claim.tolerance is not None else ""
    least = f", at least {figure(claim.least)}" if claim.least is not None else ""
    rule = "" if claim.kind == "effect" else f" ({claim.kind}{tolerance}{least})"
    return f"{figure(claim.figure)}{upto}{rule}"


def _cost(stored: Stored) -> str:
    whole = sum(stored.cost_s.values()) or 1.0
    lines = [
        "## What it costs",
        "",
        f"{stored.runs:,} runs, {whole / 60:.1f} minutes of CPU time in all, on the machine that made this document",
        f"which ran other work as well. On two idle cores it takes half as long, about {whole / 120:.0f} minutes.",
        "",
        "| scenario | title | part of the time |",
        "|---|---|---:|",
    ]
    for name, seconds in sorted(stored.cost_s.items(), key=lambda item: (-item[1], item[0])):
        lines.append(f"| `{name}` | {find(name).title} | {seconds / whole:.1%} |")
    return "\n".join([*lines, ""])


def spread(finding: Finding) -> str:
    """Mean, least and most over the seeds, and the number of missing ones."""
    if finding.claim.measure is None:
        return "-"
    values = finding.known
    if not values:
        return "not reached"
    seeds = "1 seed" if finding.missing == 1 else f"{finding.missing} seeds"
    missing = f", {seeds} did not get there" if finding.missing else ""
    idle = len(finding.values) - finding.acted
    unseen = f", mechanism not at work in {idle} of {len(finding.values)}" if idle else ""
    return f"{mean_of(values)} ({figure(min(values))} to {figure(max(values))}{missing}{unseen})"


def mean_of(values: Sequence[float | None]) -> str:
    """The mean of the values that are not None."""
    figures = known(values)
    return figure(statistics.fmean(figures)) if figures else "not reached"


def figure(value: float) -> str:
    """Two decimal places; three significant digits of small values."""
    return f"{value:.3f}" if abs(value) < 0.1 else f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"


def numbers(rows: Sequence[int]) -> str:
    """``1, 3-5``."""
    parts: list[list[int]] = []
    for row in rows:
        if parts and row == parts[-1][-1] + 1:
            parts[-1].append(row)
        else:
            parts.append([row])
    return ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)
