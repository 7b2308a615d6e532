"""Which server holds which block, and what exchanging them takes: an even picture is a balanced placement."""

from collections.abc import Sequence
from typing import Any, Final

from frontend.figures.rows import Holding, Placements, View
from frontend.figures.theme import THEMES, Theme, axis, empty, faded, layout, mixed, readable_on

MOMENTS: Final = {"now": "Now", "before": "Before the last move"}
COLOURS: Final = {"time": "Time per MiB", "traffic": "Traffic"}
"""What the colour of the map is: how dear a MiB is on its server, or how much goes there and back per second."""

MAX_BLOCKS = 1_500
"""Blocks that are drawn one by one; of more, each server's smallest stand together."""

MIB = 2**20
ROOT = "all"


def block_map(placements: Placements, view: View) -> dict[str, Any]:
    """Blocks within servers, by size; colour is time of an exchange for each MiB of the server, or its traffic."""
    name, when, colour = "block-map", view.scale or "now", view.metric or "time"
    holdings = placements.now if when == "now" else placements.before
    if not holdings:
        return empty(name, _nothing(placements, when))
    theme = THEMES[view.theme]
    total = sum(holding.held_bytes for holding in holdings)
    nodes = [(ROOT, "", "", total, 0.0)]
    paces = {each.server: _traffic(each, placements) if colour == "traffic" else _ms_per_mib(each) for each in holdings}
    nodes += [node for each in holdings for node in _nodes(each, paces[each.server], most=MAX_BLOCKS // len(holdings))]
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
                "tiling": {"pad": 1},
                "marker": {"colors": [node[4] for node in nodes], **scale},
                "textfont": {"color": [readable_on(ground) for ground in grounds]},
                "text": [_rate(node[3], placements) for node in nodes],
                "textinfo": "label",
                "hovertemplate": "%{label}: %{value:.3~g} MiB%{text}<extra></extra>",
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
    """For each server: the mean time of a worker's push and pull, beside its part of the parameters."""
    name = "server-exchanges"
    measured = [each for each in placements.now if each.push_s is not None and each.pull_s is not None]
    if not measured:
        return empty(name, "Bars appear once workers have exchanged blocks with the servers.")
    theme, labels = THEMES[view.theme], [f"s{each.server}" for each in measured]
    return {
        "data": [
            _bar("Push", labels, [each.push_s or 0.0 for each in measured], theme.communication),
            _bar("Pull", labels, [each.pull_s or 0.0 for each in measured], faded(theme.communication)),
            {
                "type": "scatter",
                "mode": "markers",
                "name": "Parameters held",
                "x": labels,
                "y": [round(each.held_bytes / MIB, 4) for each in measured],
                "yaxis": "y2",
                "marker": {"symbol": "diamond", "size": 10, "color": theme.text},
                "hovertemplate": "%{x} holds %{y:.3~g} MiB<extra></extra>",
            },
        ],
        "layout": layout(
            theme,
            name=name,
            caption=_slowest(measured),
            barmode="stack",
            hovermode="closest",
            xaxis=axis(theme, type="category"),
            yaxis=axis(theme, "Exchange (ms)", rangemode="tozero"),
            yaxis2=axis(
                theme, "Held (MiB)", overlaying="y", side="right", rangemode="tozero", showgrid=False, tickmode="auto"
            ),
        ),
    }


def imbalance(holdings: Sequence[Holding]) -> float:
    """Bytes of the fullest server over the mean; 1.0 is even."""
    return over_mean([holding.held_bytes for holding in holdings])


def over_mean(sizes: Sequence[int]) -> float:
    """The largest over the mean; 1.0 where all are alike, or nothing."""
    return max(sizes) * len(sizes) / sum(sizes) if sum(sizes) else 1.0


def _nodes(holding: Holding, pace: float, *, most: int) -> list[tuple[str, str, str, int, float]]:
    """(id, label, parent, bytes, colour) of a server and its blocks, the largest first."""
    root = f"s{holding.server}"
    blocks = sorted(holding.blocks, key=lambda block: (-block[1], block[0]))
    shown, rest = blocks[:most], blocks[most:]
    nodes = [(root, root, ROOT, holding.held_bytes, pace)]
    nodes += [(f"{root}/{index}", f"block {index}", root, size, pace) for index, size in shown]
    if rest:
        nodes.append((f"{root}/rest", f"{len(rest)} smaller blocks", root, sum(size for _, size in rest), pace))
    return nodes


def _ms_per_mib(holding: Holding) -> float:
    if not holding.held_bytes or holding.push_s is None or holding.pull_s is None:
        return 0.0
    return round((holding.push_s + holding.pull_s) * 1000 / (holding.held_bytes / MIB), 4)


def _traffic(holding: Holding, placements: Placements) -> float:
    """MiB per second to the server, and as much back: every update brings each of its blocks anew."""
    return round((placements.updates_per_s or 0.0) * holding.held_bytes / MIB, 4)


def _rate(size: int, placements: Placements) -> str:
    """Of so many bytes: how often they are updated, and what travels each way for that."""
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


def _bar(name: str, labels: list[str], seconds: list[float], colour: str) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": name,
        "x": labels,
        "y": [round(each * 1000, 3) for each in seconds],
        "marker": {"color": colour},
        "hovertemplate": f"{name.lower()} with %{{x}}: %{{y:.3~g}} ms<extra></extra>",
    }


def _caption(placements: Placements, holdings: Sequence[Holding], when: str, colour: str) -> str:
    blocks = sum(len(holding.blocks) for holding in holdings)
    total = sum(holding.held_bytes for holding in holdings) / MIB
    here = f"{blocks} blocks, {total:.3g} MiB, on {len(holdings)} servers; the fullest holds {imbalance(holdings):.2f}"
    said = "what goes to a server per second, and as much back" if colour == "traffic" else "the time of an exchange"
    sentence = f"{here} times the mean. Colour is {said}{'' if colour == 'traffic' else ' for each MiB'}."
    if placements.updates_per_s is not None:
        sentence += f" Workers push {placements.updates_per_s:.3g} updates/s, each to every block."
    if when == "now" and placements.before:
        sentence += f" Before the last move the fullest held {imbalance(placements.before):.2f} times the mean."
    return sentence


def _nothing(placements: Placements, when: str) -> str:
    if when == "before" and placements.now:
        return "No block has moved: this is the first placement."
    return "The map appears when the parameters have been placed, once every server has said hello."


def _slowest(holdings: Sequence[Holding]) -> str:
    slowest = max(holdings, key=lambda each: ((each.push_s or 0.0) + (each.pull_s or 0.0), -each.server))
    took = ((slowest.push_s or 0.0) + (slowest.pull_s or 0.0)) * 1000
    return (
        f"Workers exchange with all servers side by side, so the slowest paces them: s{slowest.server}, {took:.3g} ms."
    )
