"""The engine's commands in words, without their reasons: one phrase for each kind. Pure."""

import re
from collections.abc import Callable, Iterable
from typing import Any

from controlplane.core.states import in_words

Payload = dict[str, Any]

FLAG = re.compile(r"(?P<kind>.+)-w(?P<rank>\d+)-\d+\.\d+")
"""How the engine names a flag: what is wrong, with whom, and a number."""

SHOWN = 8
"""So many workers fit a line."""


def describe(kind: str, payload: Payload, earlier: dict[str, int] | None = None) -> str:
    """A command in words; of shares, what changed since ``earlier``."""
    if kind == "set-shares":
        return _shares(payload.get("shares", {}), earlier or {})
    phrase = PHRASES.get(kind)
    return phrase(payload) if phrase else kind


def counted(count: int, noun: str) -> str:
    """``1 worker``, ``2 workers``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _move_job(payload: Payload) -> str:
    awaited = payload.get("awaited")
    return f"job {in_words(payload.get('state', '?'))}" + (f", awaits {awaited}" if awaited else "")


def _roster(payload: Payload) -> str:
    ranks = payload.get("ranks", [])
    verb = "counts" if len(ranks) == 1 else "count"
    return f"generation {payload.get('generation', '?')}: {counted(len(ranks), 'worker')} {verb}"


def _placement(payload: Payload) -> str:
    return f"placement {payload.get('version', '?')}: {counted(len(payload.get('blocks', [])), 'block')}"


def _raise_flag(payload: Payload) -> str:
    return f"w{payload.get('rank', '?')} is flagged: {payload.get('kind', '')}"


def _close_flag(payload: Payload) -> str:
    named = FLAG.fullmatch(payload.get("flag", ""))
    return f"w{named['rank']} is flagged no longer: {named['kind']}" if named else "flag closed"


def _start_process(payload: Payload) -> str:
    return f"{_title(payload)} is started"


def _stop_process(payload: Payload) -> str:
    return f"{_title(payload)} is stopped"


def _move_process(payload: Payload) -> str:
    return f"{_title(payload)} is {payload.get('state', '?')}"


def _release(_: Payload) -> str:
    return "slots released"


def _policies(payload: Payload) -> str:
    choices = payload.get("choices", {})
    news = ", ".join(f"{question} {_choice(choice)}" for question, choice in sorted(choices.items()))
    return f"from iteration {payload.get('first_iteration', '?')} on: {news or 'the same policies'}"


def _choice(choice: Payload) -> str:
    """A policy with what was set of it: ``ssp (staleness 3)``."""
    settings = ", ".join(f"{name} {_setting(value)}" for name, value in choice.get("parameters", {}).items())
    return f"{choice.get('name', '?')} ({settings})" if settings else choice.get("name", "?")


def _setting(value: Any) -> str:
    return str(value.get("name", "?")) if isinstance(value, dict) else str(value)


def _hold(payload: Payload) -> str:
    waits_for = _workers(payload.get("waits_for", [])) or "others"
    return f"w{payload.get('rank', '?')} waits before iteration {payload.get('iteration', '?')} for {waits_for}"


def _cut(payload: Payload) -> str:
    done, total = payload.get("processed", 0), payload.get("total", 0)
    return f"iteration {payload.get('iteration', '?')} is cut after {done} of {total} samples"


def _quorum(payload: Payload) -> str:
    ranks = payload.get("ranks", [])
    verb = "makes" if len(ranks) == 1 else "make"
    return f"{_workers(ranks) or 'nobody'} {verb} iteration {payload.get('iteration', '?')}"


def _train(payload: Payload) -> str:
    return f"{_choice(payload.get('predictor', {}))} is trained, round {payload.get('round', '?')}"


def _score(payload: Payload) -> str:
    """Every predictor's error, the least first: ``ema 4.1% off, acting; lstm 6.0% off``."""
    scores = sorted(payload.get("scores", {}).items(), key=lambda each: (each[1].get("relative", 0.0), each[0]))
    acting = payload.get("acting")
    parts = [
        f"{name} {score.get('relative', 0.0):.1%} off" + (", acting" if name == acting else "")
        for name, score in scores
    ]
    return "predicted speeds: " + "; ".join(parts) if parts else "no predictor has a score yet"


def _adopt(payload: Payload) -> str:
    return f"shares are decided with {payload.get('acting', '?')}"


def _title(payload: Payload) -> str:
    return f"{str(payload.get('role', '?'))[:1]}{payload.get('index', '?')}"


def _workers(ranks: Iterable[int]) -> str:
    """``w0 w2 w3``, and no more than fits a line."""
    names = [f"w{rank}" for rank in sorted(ranks)]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return " ".join(names[:SHOWN]) + more


def _shares(shares: dict[str, int], earlier: dict[str, int]) -> str:
    """``w0 64 → 93, w3 64 → 23``: only what changed, and no more than fits a line."""
    ranks = sorted(shares, key=int)
    moved = [rank for rank in ranks if rank in earlier and earlier[rank] != shares[rank]]
    if earlier and not moved:
        return "shares stay as they are"
    parts = [f"w{rank} {earlier[rank]} → {shares[rank]}" for rank in moved] or [
        f"w{rank} {shares[rank]}" for rank in ranks
    ]
    more = f" and {len(parts) - SHOWN} more" if len(parts) > SHOWN else ""
    return ", ".join(parts[:SHOWN]) + more


PHRASES: dict[str, Callable[[Payload], str]] = {
    "move-job": _move_job,
    "move-process": _move_process,
    "start-process": _start_process,
    "stop-process": _stop_process,
    "release-slots": _release,
    "set-roster": _roster,
    "set-placement": _placement,
    "raise-flag": _raise_flag,
    "close-flag": _close_flag,
    "change-policies": _policies,
    "hold-worker": _hold,
    "cut-iteration": _cut,
    "name-quorum": _quorum,
    "train-predictor": _train,
    "score-predictors": _score,
    "adopt-predictor": _adopt,
}
"""By the command's tag; shares have their own, since they are told by what they change."""
