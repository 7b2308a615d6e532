"""Describes the engine's commands as text, without their reasons: one phrase for each kind. Pure."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from controlplane.core.states import in_words
from controlplane.policies.wording import SHOWN, listing, workers
from controlplane.protocol.emulation import Emulation
from frontend.formats import milliseconds

Payload = dict[str, Any]

FLAG = re.compile(r"(?P<kind>.+)-(?P<who>[wsj]\d+)-\d+\.\d+")
"""The engine's flag keys: kind, subject and a number."""


def describe(kind: str, payload: Payload, earlier: dict[str, int] | None = None) -> str:
    """A command as text; for shares, the changes since ``earlier``."""
    if kind == "set-shares":
        return _shares(payload.get("shares", {}), earlier or {})
    phrase = PHRASES.get(kind)
    return phrase(payload) if phrase else kind


def counted(count: int, noun: str) -> str:
    """``1 worker``, ``2 workers``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _move_job(payload: Payload) -> str:
    awaited = payload.get("awaited")
    return f"job {in_words(payload.get('state', '?'))}" + (f", waiting for {awaited}" if awaited else "")


def _roster(payload: Payload) -> str:
    ranks = payload.get("ranks", [])
    return f"generation {payload.get('generation', '?')} with {counted(len(ranks), 'worker')}"


def _placement(payload: Payload) -> str:
    return f"placement {payload.get('version', '?')}: {counted(len(payload.get('blocks', [])), 'block')}"


def _move_blocks(payload: Payload) -> str:
    moves = payload.get("moves", {}).values()
    ways = Counter((source, destination) for source, destination in moves)
    parts = [f"{count} from s{source} to s{destination}" for (source, destination), count in sorted(ways.items())]
    more = f" and {len(parts) - SHOWN} more routes" if len(parts) > SHOWN else ""
    return f"{counted(len(moves), 'block')} to move: {', '.join(parts[:SHOWN])}{more}"


def _begin_incarnation(payload: Payload) -> str:
    return f"new log, incarnation {payload.get('incarnation')}"


def _roll_back(payload: Payload) -> str:
    first, last = payload.get("to_iteration", 0), payload.get("completed", 0)
    again = f"iterations {first} to {last} are" if first < last else f"iteration {first} is"
    return f"{again} repeated" if first <= last else f"restart before iteration {first}"


def _refill_blocks(payload: Payload) -> str:
    servers = " and ".join(f"s{index}" for index in payload.get("servers", []))
    return f"{servers or 'a server'} restored from workers, from version {payload.get('version', '?')} on"


def _note_updates(payload: Payload) -> str:
    late, missing = payload.get("late", {}), payload.get("missing", [])
    dropped = f"{sum(late.values())} late updates dropped so far" if late else ""
    left = ", ".join(f"w{rank} left in iteration {iteration}" for iteration, rank in missing)
    return "; ".join(part for part in (left, dropped) if part)


def _measure_placement(payload: Payload) -> str:
    before, after = payload.get("before_s"), payload.get("after_s", 0.0)
    gained = f"{before / after:.2f} times as fast as before" if before and after else "measured"
    paused = milliseconds(payload.get("paused_s", 0.0))
    return f"placement {payload.get('version', '?')}: exchanges {gained}, workers paused for at most {paused}"


def _request_slot(payload: Payload) -> str:
    return f"slot requested for {_title(payload)}"


def _release_slot(payload: Payload) -> str:
    return f"slot of {_title(payload)} released"


def _keep_checkpoint(payload: Payload) -> str:
    return f"checkpoint before iteration {payload.get('iteration', '?')} saved"


def _skip_checkpoint(payload: Payload) -> str:
    iteration = payload.get("iteration")
    return f"checkpoint before iteration {iteration} skipped" if iteration else "checkpoint skipped"


def _abandon_move(payload: Payload) -> str:
    return f"placement {payload.get('version', '?')} abandoned"


def _raise_flag(payload: Payload) -> str:
    who = _named(f"{str(payload.get('subject', 'worker'))[:1]}{payload.get('rank', '?')}")
    return f"{who} is flagged: {payload.get('kind', '')}"


def _close_flag(payload: Payload) -> str:
    named = FLAG.fullmatch(payload.get("flag", ""))
    if not named:
        return "flag closed"
    who, kind = _named(named["who"]), named["kind"]
    return (
        f"{who}: {kind} becomes a persistent finding" if payload.get("escalated") else f"{who}: {kind} finding closed"
    )


def _named(who: str) -> str:
    """``w3`` and ``s0`` unchanged; ``j0`` as "the job"."""
    return "the job" if who.startswith("j") else who


def _start_process(payload: Payload) -> str:
    return f"{_title(payload)} started"


def _stop_process(payload: Payload) -> str:
    return f"{_title(payload)} stopped"


def _move_process(payload: Payload) -> str:
    return f"{_title(payload)} is {payload.get('state', '?')}"


def _release(_: Payload) -> str:
    return "slots released"


def _policies(payload: Payload) -> str:
    choices = payload.get("choices", {})
    changes = ", ".join(f"{question} {_choice(choice)}" for question, choice in sorted(choices.items()))
    return f"from iteration {payload.get('first_iteration', '?')} on: {changes or 'the same policies'}"


def _convergence(payload: Payload) -> str:
    verdict = {"harmful": "harms convergence", "harmless": "does not harm convergence"}.get(payload.get("verdict", ""))
    smaller = payload.get("grown_from", 0)
    change = "the larger global batch" if smaller else "the change"
    found = f"{change} {verdict}" if verdict else f"whether {change} harms convergence is unknown"
    if smaller and payload.get("verdict") == "harmful":
        return f"{found}; {'back to' if payload.get('reverts') else 'proposed:'} {smaller} samples per iteration"
    earlier = ", ".join(_choice(choice) for _, choice in sorted(payload.get("choices", {}).items()))
    back = "back to" if payload.get("reverts") else "proposed:"
    return f"{found}; {back} {earlier}" if earlier else found


def _decline(payload: Payload) -> str:
    return f"request of {payload.get('actor', '?')} declined"


def _leave_out(payload: Payload) -> str:
    iteration = payload.get("iteration")
    return f"w{payload.get('rank', '?')} excluded" + ("" if iteration is None else f" before iteration {iteration}")


def _take_back(payload: Payload) -> str:
    return f"w{payload.get('rank', '?')} included again"


def _drain_server(payload: Payload) -> str:
    return f"s{payload.get('index', '?')} draining"


def _choice(choice: Payload) -> str:
    """A policy with its parameters: ``ssp (staleness 3)``."""
    settings = ", ".join(f"{name} {_setting(value)}" for name, value in choice.get("parameters", {}).items())
    return f"{choice.get('name', '?')} ({settings})" if settings else choice.get("name", "?")


def _setting(value: Any) -> str:
    return str(value.get("name", "?")) if isinstance(value, dict) else str(value)


def _hold(payload: Payload) -> str:
    waits_for = _workers(payload.get("waits_for", [])) or "others"
    return f"w{payload.get('rank', '?')} waits before iteration {payload.get('iteration', '?')} for {waits_for}"


def _cut(payload: Payload) -> str:
    done, total = payload.get("processed", 0), payload.get("total", 0)
    return f"iteration {payload.get('iteration', '?')} ends early, after {done} of {total} samples"


def _quorum(payload: Payload) -> str:
    ranks = payload.get("ranks", [])
    return f"quorum of iteration {payload.get('iteration', '?')}: {_workers(ranks) or 'no workers'}"


def _micro_batch(payload: Payload) -> str:
    pieces = f"micro-batches of {payload.get('samples', '?')} of {payload.get('whole', '?')} samples"
    return f"w{payload.get('rank', '?')} computes its share in {pieces}, {payload.get('overhead', 0.0):.0%} slower"


def _partition(payload: Payload) -> str:
    return (
        f"{payload.get('samples', 0):,} samples partitioned among {_workers(payload.get('ranks', [])) or 'no workers'}"
    )


def _move_splits(payload: Payload) -> str:
    """``from iteration 40: split 3 (359 samples) from w1 to w0``."""
    parts = [
        f"split {move['split']} ({move['stop'] - move['start']:,} samples) from w{move['giver']} to w{move['taker']}"
        for move in payload.get("moves", [])
    ]
    return f"from iteration {payload.get('iteration', '?')}: {listing(parts)}"


def _train(payload: Payload) -> str:
    return f"{_choice(payload.get('predictor', {}))} trained, round {payload.get('round', '?')}"


def _score(payload: Payload) -> str:
    """Every predictor's error, the smallest first: ``ema 4.1%, active; lstm 6.0%``."""
    scores = sorted(payload.get("scores", {}).items(), key=lambda each: (each[1].get("relative", 0.0), each[0]))
    acting = payload.get("acting")
    parts = [
        f"{name} {score.get('relative', 0.0):.1%}" + (", active" if name == acting else "") for name, score in scores
    ]
    return "prediction error: " + "; ".join(parts) if parts else "no predictor scored yet"


def _adopt(payload: Payload) -> str:
    return f"active predictor: {payload.get('acting', '?')}"


def _play(payload: Payload) -> str:
    variants = counted(len(payload.get("alternatives", {})), "variant")
    return f"autopilot: simulation {payload.get('look', '?')} of {variants}"


def _judge(payload: Payload) -> str:
    chosen = payload.get("chosen")
    if not chosen:
        return f"autopilot: kept {payload.get('present', '?')}"
    return f"autopilot {'switches' if payload.get('switches') else 'proposes to switch'} to {chosen}"


def _measure_switch(payload: Payload) -> str:
    """``autopilot: asp saves 12.0% (measured), 15% predicted``."""
    gain = 1 - payload.get("after_s", 0.0) / (payload.get("before_s") or 1.0)
    outcome = "; reverted" if payload.get("goes_back") else "" if payload.get("kept") else "; worse than before"
    predicted = f"{payload.get('predicted', 0.0):.0%} predicted"
    return f"autopilot: {payload.get('name', '?')} saves {gain:.1%} (measured), {predicted}{outcome}"


def _autopilot(payload: Payload) -> str:
    return f"autopilot set to {payload.get('mode', '?')}"


def _title(payload: Payload) -> str:
    return f"{str(payload.get('role', '?'))[:1]}{payload.get('index', '?')}"


def _workers(ranks: Iterable[int]) -> str:
    """``w0 w2 w3``, at most one line."""
    return workers(sorted(ranks))


def _shares(shares: dict[str, int], earlier: dict[str, int]) -> str:
    """``w0 64 → 93, w3 64 → 23``: only the changes, at most one line."""
    ranks = sorted(shares, key=int)
    moved = [rank for rank in ranks if rank in earlier and earlier[rank] != shares[rank]]
    if earlier and not moved:
        return "shares unchanged"
    parts = [f"w{rank} {earlier[rank]} → {shares[rank]}" for rank in moved] or [
        f"w{rank} {shares[rank]}" for rank in ranks
    ]
    return listing(parts)


PHRASES: dict[str, Callable[[Payload], str]] = {
    "move-job": _move_job,
    "move-process": _move_process,
    "start-process": _start_process,
    "stop-process": _stop_process,
    "release-slots": _release,
    "set-roster": _roster,
    "roll-back": _roll_back,
    "refill-blocks": _refill_blocks,
    "note-updates": _note_updates,
    "keep-checkpoint": _keep_checkpoint,
    "skip-checkpoint": _skip_checkpoint,
    "set-placement": _placement,
    "move-blocks": _move_blocks,
    "abandon-move": _abandon_move,
    "measure-placement": _measure_placement,
    "request-slot": _request_slot,
    "release-slot": _release_slot,
    "begin-incarnation": _begin_incarnation,
    "raise-flag": _raise_flag,
    "close-flag": _close_flag,
    "change-policies": _policies,
    "judge-convergence": _convergence,
    "decline-request": _decline,
    "leave-out": _leave_out,
    "take-back": _take_back,
    "drain-server": _drain_server,
    "hold-worker": _hold,
    "cut-iteration": _cut,
    "name-quorum": _quorum,
    "note-micro-batch": _micro_batch,
    "partition-data": _partition,
    "move-splits": _move_splits,
    "train-predictor": _train,
    "score-predictors": _score,
    "adopt-predictor": _adopt,
    "play-alternatives": _play,
    "judge-alternatives": _judge,
    "measure-switch": _measure_switch,
    "set-autopilot": _autopilot,
}
"""By command tag; share decisions are described separately, with their changes."""


def emulation_title(document: dict[str, Any] | None) -> str:
    """The emulated speed of a machine as text; empty for a real one."""
    return "" if document is None else msgspec.convert(document, Emulation).description
