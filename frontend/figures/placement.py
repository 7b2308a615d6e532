"""Draws the placement of blocks on servers, and the exchange time of each server."""

from collections.abc import Sequence
from typing import Any, Final

from frontend.figures.rows import Holding, Placements, View
from frontend.figures.theme import THEMES, Theme, axis, empty, faded, layout, mixed, readable_on

TIMES: Final = {"now": "Now", "before": "Before last move"}
COLOURS: Final = {"time": "Time per MiB", "traffic": "Traffic"}
"""The metric shown as colour: exchange time per MiB of the server, or its traffic per second."""

MAX_BLOCKS = 160
"""Maximum number of blocks drawn individually, largest first; the rest would have no readable labels and are merged."""

PER_SERVER = 40

NOISE = 0.05
"""Relative changes of the exchange time below this are within measurement noise."""

MIB = 2**20
ROOT = "all"


def block_map(placements: Placements, view: View) -> dict[str, Any]:
    """Blocks within servers, by size; colour is the server's exchange time per MiB, or its traffic."""
    name, when, colour = "block-map", view.scale or "now", view.metric or "time"
    holdings = placements.now if when == "now" else placements.before
    if not holdings:
        return empty(name, _nothing(placements, when))
    theme = THEMES[view.theme]
    total = sum(holding.held_bytes for holding in holdings)
    nodes = [(ROOT, "", "", total, 0.0)]
    paces = {each.server: _traffic(each, placements) if colour == "traffic" else _ms_per_mib(each) for each in holdings}
    nodes += [
        node
        for each in holdings
        for node in _nodes(each, paces[each.server], most=max(1, min(PER_SERVER, MAX_BLOCKS // len(holdings))))
    ]
    scale = _scale(max(paces.values()), "MiB/s" if colour == "traffic" else "ms/MiB", theme)
    grounds = [mixed(theme.surface, theme.waiting, node[4] / scale["cmax"]) for node in nodes]
    return {
        "data": [
            {
                "type": "treemap",
                "ids": [node[0] for node in nodes],
                "labels": [node[1] for node in nodes],
                "parents": [node[2] for node in nodes],
                # Not rounded: blocks that add up to more than their server would not be drawn at all.
                "values": [node[3] / MIB for node in nodes],
                "branchvalues": "total",
                "sort": False,
                "pathbar": {"visible": False},
                "meta": "MiB",
                "tiling": {"pad": 3},
                "marker": {"colors": [node[4] for node in nodes], **scale},
                "textfont": {"color": [readable_on(ground) for ground in grounds], "size": 13},
                "textposition": "middle center",
                "text": [_rate(node[3], placements) for node in nodes],
                "textinfo": "label",
                "hovertemplate": "%{label}%{text}<extra></extra>",
            }
        ],
        "layout": layout(
            theme,
            name=f"{name}:{when}",
            caption=_caption(placements, holdings, when, colour),
            hovermode="closest",
            margin={"l": 4, "r": 4, "t": 8, "b": 8},
            height=340,
        ),
    }


def server_exchanges(placements: Placements, view: View) -> dict[str, Any]:
    """For each server: the mean time of a worker's push and pull, and its parameters; now or before the last move.

    Both views have the same servers and scales, so that they can be compared.
    """
    name, when = "server-exchanges", view.scale or "now"
    shown = [each for each in (placements.now if when == "now" else placements.before) if each.exchange_s is not None]
    if not shown:
        return empty(name, _no_bars(placements, when))
    theme, either = THEMES[view.theme], (*placements.now, *placements.before)
    labels = [f"s{server}" for server in sorted({each.server for each in either})]
    return {
        "data": [
            _bar("Push", shown, [each.push_s or 0.0 for each in shown], theme.communication),
            _bar("Pull", shown, [each.pull_s or 0.0 for each in shown], faded(theme.communication)),
            {
                "type": "scatter",
                "mode": "markers",
                "name": "Parameters held",
                "x": _labels(shown),
                "y": [round(each.held_bytes / MIB, 4) for each in shown],
                "yaxis": "y2",
                "marker": {"symbol": "diamond", "size": 10, "color": theme.text},
                "hovertemplate": "%{x} holds %{y:.3~g} MiB<extra></extra>",
            },
        ],
        "layout": layout(
            theme,
            name=name,
            caption=_pace(placements, when),
            barmode="stack",
            hovermode="closest",
            xaxis=axis(
                theme, type="category", categoryorder="array", categoryarray=labels, range=[-0.5, len(labels) - 0.5]
            ),
            yaxis=axis(theme, "Exchange (ms)", range=_up_to([(each.exchange_s or 0.0) * 1000 for each in either])),
            yaxis2=axis(
                theme,
                "Held (MiB)",
                overlaying="y",
                side="right",
                range=_up_to([each.held_bytes / MIB for each in either]),
                showgrid=False,
                tickmode="auto",
            ),
        ),
    }


def imbalance(holdings: Sequence[Holding]) -> float:
    """Bytes on the fullest server over the mean; 1.0 is balanced."""
    return over_mean([holding.held_bytes for holding in holdings])


def over_mean(sizes: Sequence[int]) -> float:
    """The largest over the mean; 1.0 where all are equal, or zero."""
    return max(sizes) * len(sizes) / sum(sizes) if sum(sizes) else 1.0


def _nodes(holding: Holding, pace: float, *, most: int) -> list[tuple[str, str, str, int, float]]:
    """(id, label, parent, bytes, colour) of a server and its blocks, the largest first."""
    root = f"s{holding.server}"
    blocks = sorted(holding.blocks, key=lambda block: (-block[1], block[0]))
    shown, rest = blocks[:most], blocks[most:]
    count = f"{len(blocks)} block{'' if len(blocks) == 1 else 's'}"
    nodes = [(root, f"{root}: {_bytes(holding.held_bytes)} in {count}", ROOT, holding.held_bytes, pace)]
    nodes += [(f"{root}/{index}", f"block {index}, {_bytes(size)}", root, size, pace) for index, size in shown]
    if rest:
        nodes.append(
            (
                f"{root}/rest",
                f"{len(rest)} smaller blocks, {_bytes(sum(size for _, size in rest))}",
                root,
                sum(size for _, size in rest),
                pace,
            )
        )
    return nodes


def _bytes(count: int) -> str:
    """A size with a readable unit."""
    for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


def _ms_per_mib(holding: Holding) -> float:
    if not holding.held_bytes or holding.exchange_s is None:
        return 0.0
    return round(holding.exchange_s * 1000 / (holding.held_bytes / MIB), 4)


def _traffic(holding: Holding, placements: Placements) -> float:
    """MiB per second in each direction: every update sends each of the server's blocks."""
    return round((placements.updates_per_s or 0.0) * holding.held_bytes / MIB, 4)


def _rate(size: int, placements: Placements) -> str:
    """Update rate and traffic in each direction for this many bytes."""
    rate = placements.updates_per_s
    return f", {rate:.3g} updates/s, {rate * size / MIB:.3g} MiB/s each way" if rate is not None else ""


def _scale(highest: float, unit: str, theme: Theme) -> dict[str, Any]:
    return {
        "cmin": 0.0,
        "cmax": highest or 1.0,
        "colorscale": [[0, theme.surface], [1, theme.waiting]],
        "line": {"width": 1, "color": theme.grid},
        "showscale": True,
        "colorbar": {"thickness": 10, "outlinewidth": 0, "tickfont": {"color": theme.muted}, "ticksuffix": f" {unit}"},
    }


def _bar(name: str, shown: Sequence[Holding], seconds: list[float], colour: str) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": name,
        "x": _labels(shown),
        "y": [round(each * 1000, 3) for each in seconds],
        "marker": {"color": colour},
        "hovertemplate": f"{name.lower()} with %{{x}}: %{{y:.3~g}} ms<extra></extra>",
    }


def _labels(holdings: Sequence[Holding]) -> list[str]:
    return [f"s{each.server}" for each in holdings]


def _up_to(values: Sequence[float]) -> list[float]:
    """From zero to a little above the highest."""
    return [0.0, round(1.06 * max(values), 4) or 1.0]


def _caption(placements: Placements, holdings: Sequence[Holding], when: str, colour: str) -> str:
    blocks = sum(len(holding.blocks) for holding in holdings)
    total = sum(holding.held_bytes for holding in holdings) / MIB
    here = (
        f"{blocks} blocks, {total:.3g} MiB, on {len(holdings)} servers; the largest load is {imbalance(holdings):.2f}"
    )
    measure = "traffic to a server per second, the same in each direction" if colour == "traffic" else "exchange time"
    sentence = f"{here} times the mean. Colour is {measure}{'' if colour == 'traffic' else ' per MiB'}."
    if placements.updates_per_s is not None:
        sentence += f" Workers push {placements.updates_per_s:.3g} updates/s, each to every block."
    if colour == "time" and all(each.exchange_s is None for each in holdings):
        sentence += f" No times are known{f': {placements.before_unknown}' if when == 'before' else ' yet'}."
    if when == "now" and placements.before:
        sentence += f" Before the last move the largest load was {imbalance(placements.before):.2f} times the mean."
    return sentence


def _nothing(placements: Placements, when: str) -> str:
    if when == "before" and placements.now:
        return "No block has been moved: this is the first placement."
    return "No data yet: the map appears once all servers have connected and the parameters are placed."


def _no_bars(placements: Placements, when: str) -> str:
    if not placements.now:
        return _nothing(placements, when)
    if when == "now":
        return "No data yet: bars appear after workers have exchanged blocks with the servers."
    return (_pace_before(placements) + _right_after(placements)).strip() or _nothing(placements, when)


def _pace(placements: Placements, when: str) -> str:
    """A sentence about the slowest server, and whether it became faster."""
    slowest, was = _slowest(placements.now), _slowest(placements.before)
    rule = "Workers exchange with all servers in parallel, so the slowest server sets the pace"
    if when == "now":
        text = f"{rule}: {_pace_of(slowest)}." if slowest else ""
        return text + _pace_before(placements) + _right_after(placements)
    since = f" Now it is {_pace_of(slowest)}: {_change(was, slowest)}." if slowest and was else ""
    return f"{rule}: before the last move {_pace_of(was)}.{since}{_right_after(placements)}" if was else ""


def _pace_before(placements: Placements) -> str:
    slowest, was = _slowest(placements.now), _slowest(placements.before)
    if was:
        return (
            f" Before the last move it was {_pace_of(was)}{f'; now it is {_change(was, slowest)}' if slowest else ''}."
        )
    if placements.before:
        return f" Exchange times before the last move are unknown: {placements.before_unknown}."
    return ""


def _right_after(placements: Placements) -> str:
    """The effect measured right after the move, before other changes."""
    worth = placements.worth
    if worth is None:
        return ""
    took = f" Right after the move it took {_ms(worth.after_s)}"
    took += f" instead of {_ms(worth.before_s)} right before" if worth.before_s is not None else ""
    return took + (f"; {_ms(worth.predicted_s)} was predicted." if worth.predicted_s is not None else ".")


def _slowest(holdings: Sequence[Holding]) -> Holding | None:
    measured = [each for each in holdings if each.exchange_s is not None]
    return max(measured, key=lambda each: (each.exchange_s or 0.0, -each.server), default=None)


def _pace_of(holding: Holding) -> str:
    return f"s{holding.server}, {_ms(holding.exchange_s or 0.0)}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"


def _change(was: Holding, now: Holding) -> str:
    """The relative change of the slowest exchange, or "about as long" within noise."""
    before_s, now_s = was.exchange_s or 0.0, now.exchange_s or 0.0
    part = 1 - now_s / before_s if before_s else 0.0
    if abs(part) < NOISE:
        return "about as long"
    return f"{abs(part):.0%} {'shorter' if part > 0 else 'longer'}"
