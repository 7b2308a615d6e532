"""Draws the topology of a job: workers, servers and machines by rack; a link's colour is its worker's waiting. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from frontend.figures.rows import View
from frontend.figures.theme import THEMES, Theme, axis, empty, layout

ROW_PX: Final = 38
MIB: Final = 2**20

STEPS: Final = ((0.1, "waits under 10%"), (0.25, "10 to 25%"), (0.5, "25 to 50%"), (1.01, "over 50%"))
"""Waiting shares and their labels; each step has its own colour and dash pattern."""

DASHES: Final = ("solid", "dash", "dashdot", "dot")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One process on its machine."""

    index: int
    machine: str
    rack: str = ""
    """Empty: its machine has no label ``rack``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerNode(Node):
    """A worker; ``waiting`` is a share of its time, None where nothing was reported."""

    waiting: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerNode(Node):
    """A parameter server and the bytes that each worker exchanges with it, each way."""

    held_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The processes of a job that are shown. Without servers, workers form a ring all-reduce."""

    workers: tuple[WorkerNode, ...]
    servers: tuple[ServerNode, ...]
    roster: int


def topology(found: Topology, view: View) -> dict[str, Any]:
    """Workers to the left and servers to the right, a row for each machine, racks one below the other."""
    name = "topology"
    if not found.workers:
        return empty(name, "No data yet: machines and links appear once the workers have started.")
    theme = THEMES[view.theme]
    nodes: list[Node] = [*found.workers, *found.servers]
    places = sorted({(node.rack, node.machine) for node in nodes})
    rows = {place: at for at, place in enumerate(places)}
    links = _links(found, rows)
    lines = [_line(step, [link for link in links if link[0] == step], theme) for step in range(len(STEPS))]
    drawn = [_nodes("Workers", [_worker_words(each) for each in found.workers], _at(found.workers, rows, 0.0), theme)]
    if found.servers:
        drawn.append(
            _nodes("Servers", [_server_words(each) for each in found.servers], _at(found.servers, rows, 1.0), theme)
        )
    return {
        "data": [*(line for line in lines if line["x"]), *drawn],
        "layout": layout(
            theme,
            name=name,
            caption=_caption(found, len(places)),
            meta={"totals": True},
            hovermode="closest",
            height=ROW_PX * len(places) + 110,
            xaxis=axis(theme, range=[-0.35, 1.35 if found.servers else 0.9], visible=False, fixedrange=True),
            yaxis=axis(
                theme,
                tickvals=list(rows.values()),
                ticktext=[machine + (f" · {rack}" if rack else "") for rack, machine in places],
                range=[len(places) - 0.4, -0.6],
                fixedrange=True,
            ),
            shapes=_borders(places, theme),
        ),
    }


def _step(waiting: float | None) -> int:
    return next(at for at, (upto, _) in enumerate(STEPS) if (waiting or 0.0) < upto)


Link = tuple[int, tuple[float, float], tuple[float, float], str]


def _links(found: Topology, rows: dict[tuple[str, str], int]) -> list[Link]:
    """(step, from, to, label) of each link; in a ring, from each worker to the next."""
    workers = dict(zip(found.workers, _at(found.workers, rows, 0.0), strict=True))
    if found.servers:
        servers = list(zip(found.servers, _at(found.servers, rows, 1.0), strict=True))
        return [
            (_step(worker.waiting), at, to, f"w{worker.index} with s{server.index}: {_size(server)} each way")
            for worker, at in workers.items()
            for server, to in servers
        ]
    ring = list(workers.items())
    if len(ring) < 2:
        return []
    return [
        (_step(worker.waiting), at, to, f"w{worker.index} to w{other.index}")
        for (worker, at), (other, to) in zip(ring, [*ring[1:], ring[0]], strict=True)
    ]


def _line(step: int, links: Sequence[Link], theme: Theme) -> dict[str, Any]:
    """All links of one step as one trace; those among workers are bent to the right to distinguish them."""
    x: list[float | None] = []
    y: list[float | None] = []
    text: list[str] = []
    for _, (x0, y0), (x1, y1), words in links:
        middle = (x0 + x1) / 2 + (0.25 + 0.06 * abs(y1 - y0) if x0 < 0.5 and x1 < 0.5 else 0.0)
        x += [x0, middle, x1, None]
        y += [y0, (y0 + y1) / 2, y1, None]
        text += [words, words, words, ""]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": STEPS[step][1],
        "x": x,
        "y": y,
        "text": text,
        "line": {
            "color": (theme.communication, theme.compute, theme.category(1), theme.waiting)[step],
            "width": 1.5 + step / 2,
            "dash": DASHES[step],
        },
        "hovertemplate": "%{text}<extra></extra>",
    }


def _nodes(
    name: str, words: Sequence[tuple[str, str]], at: Sequence[tuple[float, float]], theme: Theme
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": name,
        "x": [x for x, _ in at],
        "y": [y for _, y in at],
        "text": [label for label, _ in words],
        "customdata": [sentence for _, sentence in words],
        "textposition": "middle left" if name == "Workers" else "middle right",
        "textfont": {"color": theme.text},
        "marker": {"size": 14, "symbol": "circle" if name == "Workers" else "square", "color": theme.text},
        "hovertemplate": "%{customdata}<extra></extra>",
        "cliponaxis": False,
    }


def _at(nodes: Sequence[Node], rows: dict[tuple[str, str], int], x: float) -> list[tuple[float, float]]:
    """The position of each node: nodes on one machine are stacked within its row."""
    placed: dict[tuple[str, str], list[int]] = {}
    for node in nodes:
        placed.setdefault((node.rack, node.machine), []).append(node.index)
    found = []
    for node in nodes:
        here = placed[node.rack, node.machine]
        offset = (here.index(node.index) - (len(here) - 1) / 2) * min(0.22, 0.8 / len(here))
        found.append((x, round(rows[node.rack, node.machine] + offset, 4)))
    return found


def _borders(places: Sequence[tuple[str, str]], theme: Theme) -> list[dict[str, Any]]:
    """A line between racks."""
    between = [at + 0.5 for at in range(len(places) - 1) if places[at][0] != places[at + 1][0]]
    line = {"color": theme.muted, "width": 1, "dash": "dot"}
    return [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": at, "y1": at, "line": line} for at in between]


def _worker_words(worker: WorkerNode) -> tuple[str, str]:
    waits = "" if worker.waiting is None else f", waiting {worker.waiting:.0%} of its time"
    return f"w{worker.index}", f"w{worker.index} on {worker.machine}{waits}"


def _server_words(server: ServerNode) -> tuple[str, str]:
    return f"s{server.index}", f"s{server.index} on {server.machine}: {_size(server)}"


def _size(server: ServerNode) -> str:
    return f"{server.held_bytes / MIB:.3g} MiB"


def _caption(found: Topology, machines: int) -> str:
    racks = {node.rack for node in (*found.workers, *found.servers) if node.rack}
    where = f"{machines} machine{'' if machines == 1 else 's'}" + (f" in {len(racks)} racks" if len(racks) > 1 else "")
    some = "" if len(found.workers) >= found.roster else f" ({len(found.workers)} of {found.roster} workers are shown)"
    most = max(found.workers, key=lambda each: (each.waiting or 0.0, -each.index))
    talk = "Every worker exchanges with every server" if found.servers else "Workers form a ring all-reduce"
    waits = f" w{most.index} waits most, {most.waiting:.0%} of its time." if most.waiting else ""
    return (
        f"{where}{some}. {talk}; the colour of a line shows how much its worker waits.{waits} "
        "Lines follow from the placement: traffic between two processes is not measured. Racks come from label rack."
    )
