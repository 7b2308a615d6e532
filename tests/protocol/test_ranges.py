"""Every field of every message says what it takes, so that whatever is accepted can be counted with and be kept."""

import math
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest
from django.db import models
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.inspect import (
    AnyType,
    BoolType,
    DictType,
    FloatType,
    IntType,
    ListType,
    Metadata,
    StrType,
    StructType,
    TupleType,
    Type,
    UnionType,
    VarTupleType,
    type_info,
)

from controlplane.core.events import Event
from controlplane.protocol import cleaning, messages
from controlplane.protocol.base import MAX_INT32
from controlplane.protocol.codec import (
    AgentMessage,
    AgentReply,
    BadFrame,
    ServerMessage,
    ServerReply,
    WorkerMessage,
    WorkerReply,
    encode,
    from_agent,
    from_server,
    from_worker,
)
from controlplane.protocol.messages import IterationReport, ProcessEnded, ProcessName
from controlplane.protocol.pages import Tick
from controlplane.protocol.spec import SpecError, parse_spec
from controlplane.telemetry.batches import WHOLE
from controlplane.telemetry.models import Evaluation
from tests.support.examples import examples

UNIONS = (WorkerMessage, ServerMessage, AgentMessage, WorkerReply, ServerReply, AgentReply, Event)
STRUCTS = sorted({kind for union in UNIONS for kind in get_args(union)} | {Tick}, key=lambda kind: kind.__name__)

FREE = {"Workload.options", "Workload.data", "Choice.parameters", "Group.options", "Optimizer.options"}
"""Kept as they are: ``parse_spec`` looks through them."""


def leaves(kind: Type, place: str, seen: set[type]) -> Iterator[tuple[str, Type]]:
    """Every field below, by its struct and name, with its innermost types."""
    match kind:
        case Metadata(type=inner):
            yield from leaves(inner, place, seen)
        case StructType(cls=cls) if cls not in seen:
            seen.add(cls)
            for field in kind.fields:
                yield from leaves(field.type, f"{cls.__name__}.{field.name}", seen)
        case ListType(item_type=item) | VarTupleType(item_type=item):
            yield from leaves(item, place, seen)
        case TupleType(item_types=items) | UnionType(types=items):
            for item in items:
                yield from leaves(item, place, seen)
        case DictType(key_type=key, value_type=value):
            yield from leaves(key, place, seen)
            yield from leaves(value, place, seen)
        case StructType():
            return
        case _:
            yield place, kind


def all_leaves() -> list[tuple[str, Type]]:
    seen: set[type] = set()
    return [leaf for kind in STRUCTS for leaf in leaves(type_info(kind), kind.__name__, seen)]


def is_bounded(kind: Type) -> bool:
    match kind:
        case IntType() | FloatType():
            low = kind.ge if kind.ge is not None else kind.gt
            high = kind.le if kind.le is not None else kind.lt
            return None not in (low, high) and (isinstance(kind, FloatType) or -(2**63) <= low <= high < 2**63)
        case StrType():
            return kind.max_length is not None and kind.pattern is not None and "\\x00" in kind.pattern
        case AnyType():
            return False
    return True


def test_no_field_of_a_message_is_a_bare_number_or_text():
    unbounded = {place for place, kind in all_leaves() if not is_bounded(kind)}
    assert unbounded == FREE, "give them a type of protocol.base, which says what they take"


FRAMES = {WorkerMessage: from_worker, ServerMessage: from_server, AgentMessage: from_agent}
SAID = [(kind, codec) for union, codec in FRAMES.items() for kind in get_args(union)]

LONGEST = max(kind.max_length or 0 for _, kind in all_leaves() if isinstance(kind, StrType))
"""Of any text in a message."""

bad_floats = st.sampled_from([math.inf, -math.inf, math.nan])
bad_integers = bad_floats | st.sampled_from([2**63, 2**64 - 1, -(2**63)])
bad_texts = st.sampled_from([b"a\0b", b"\0", "x\ud800".encode(errors="surrogatepass"), b"y" * (LONGEST + 1)])

BAD = {FloatType: bad_floats, IntType: bad_integers, StrType: bad_texts}


def places(kind: Type, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Type]]:
    """The way to every leaf in a document of that kind in which each list and mapping has one entry."""
    match kind:
        case Metadata(type=inner):
            yield from places(inner, path)
        case StructType():
            for number, field in enumerate(kind.fields):
                yield from places(field.type, (*path, number if kind.array_like else field.encode_name))
        case ListType(item_type=item) | VarTupleType(item_type=item):
            yield from places(item, (*path, 0))
        case TupleType(item_types=items):
            for number, item in enumerate(items):
                yield from places(item, (*path, number))
        case DictType(value_type=value, key_type=key):
            yield from places(value, (*path, "key" if isinstance(key, StrType) else 1))
        case UnionType(types=types):
            yield from places(types[0], path)
        case _:
            yield path, kind


def good(kind: Type) -> Any:
    """A value that is accepted there."""
    match kind:
        case Metadata(type=inner):
            return good(inner)
        case StructType():
            values = {field.encode_name: good(field.type) for field in kind.fields}
            if kind.cls is messages.SlotOffer:
                values["emulate"] = None
            tag = {kind.tag_field: kind.tag} if kind.tag_field else {}
            return list(values.values()) if kind.array_like else tag | values
        case ListType(item_type=item) | VarTupleType(item_type=item):
            return [good(item)]
        case TupleType(item_types=items):
            return [good(item) for item in items]
        case DictType(value_type=value, key_type=key):
            return {"key" if isinstance(key, StrType) else 1: good(value)}
        case UnionType(types=types):
            return good(types[0])
        case IntType():
            return max(1, kind.ge or 0)
        case FloatType():
            return 0.5
        case StrType():
            return "a" * (kind.min_length or 1)
    return kind.values[0] if hasattr(kind, "values") else True


@pytest.mark.parametrize(("kind", "codec"), SAID, ids=lambda value: getattr(value, "__name__", ""))
def test_a_message_is_accepted_at_first(kind, codec):
    assert type(codec.decode(msgspec.msgpack.encode(good(type_info(kind))))) is kind


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_no_field_takes_what_cannot_be_kept(data):
    kind, codec = data.draw(st.sampled_from(SAID))
    document, info = good(type_info(kind)), type_info(kind)
    found = [(path, leaf) for path, leaf in places(info) if type(leaf) in BAD and "emulate" not in path]
    path, leaf = data.draw(st.sampled_from(found))
    bad = data.draw(BAD[type(leaf)])
    spot = document
    for key in path[:-1]:
        spot = spot[key]
    spot[path[-1]] = msgspec.Raw(as_text(bad)) if isinstance(bad, bytes) else bad
    with pytest.raises(BadFrame):
        codec.decode(msgspec.msgpack.encode(document))


def as_text(raw: bytes) -> bytes:
    """As msgpack has text of these bytes, whether they are text or not."""
    return b"\xdb" + len(raw).to_bytes(4, "big") + raw


def report(**changes: Any) -> bytes:
    parts = dict.fromkeys(("compute_s", "push_s", "pull_s", "waiting_s", "coordination_s"), 0.1)
    values = {"number": 1, "generation": 1, "iteration": 0, "samples": 8, "position": 0, "loss": 0.5} | parts | changes
    return encode(IterationReport(**values))


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_refused(loss):
    with pytest.raises(BadFrame, match=r"at `\$.loss`"):
        from_worker.decode(report(loss=loss))
    assert from_worker.decode(report(loss=0.0, samples=0, spoilt="nan")).spoilt == "nan"


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0, 2e9])
def test_a_duration_is_finite_not_negative_and_bounded(seconds):
    with pytest.raises(BadFrame, match=r"at `\$.compute_s`"):
        from_worker.decode(report(compute_s=seconds))


def test_a_position_beyond_64_bits_is_refused():
    with pytest.raises(BadFrame, match=r"at `\$.position`"):
        from_worker.decode(report(position=2**63))


def test_numbers_of_a_score_fit_the_columns_that_keep_them():
    columns = {field.name: field for field in Evaluation._meta.get_fields()}
    for field in msgspec.inspect.type_info(messages.Evaluation).fields:
        kind = field.type.type if isinstance(field.type, Metadata) else field.type
        if isinstance(columns.get(field.name), models.PositiveIntegerField):
            assert kind.le <= MAX_INT32, f"Evaluation.{field.name} is kept in 32 bits"


def test_whole_numbers_of_a_report_fit_the_64_bits_that_keep_them():
    whole = [field for field in msgspec.inspect.type_info(IterationReport).fields if field.name in WHOLE]
    for field in whole:
        kind = field.type.type if isinstance(field.type, Metadata) else field.type
        assert isinstance(kind, BoolType) or kind.le < 2**63, field.name
    assert {"iteration", "generation", "position", "samples", "overran"} == {field.name for field in whole}


texts_of_any_kind = st.text(st.characters(codec=None, categories=None), max_size=50).flatmap(
    lambda text: st.sampled_from([text, f"{text}\0", text * 400])
)


@given(texts_of_any_kind)
def test_what_is_cleaned_is_accepted(text):
    name = ProcessName(job=7, role="worker", index=3, instance="w3.0.1")
    for said in (
        ProcessEnded(number=4, process=name, status=-9, tail=text),
        messages.LogLines(process=name, lines=[messages.Line(level="output", text=text)]),
        messages.AgentHello(
            number=1,
            name="m1",
            version=text,
            host=text,
            slots=[],
            server_slots=0,
            labels={f"k{text}": text},
            cpu_count=1,
            memory_bytes=1,
            environment=messages.Environment(cpu=text),
        ),
    ):
        clean = cleaning.cleaned(said)
        assert from_agent.decode(encode(clean)) == clean
    said = messages.FolderApart(number=1, reason=text)
    assert from_worker.decode(encode(cleaning.cleaned(said))) == cleaning.cleaned(said)


def test_what_is_clean_stays_itself():
    said = messages.FolderApart(number=1, reason="no such folder: /données\n")
    assert cleaning.cleaned(said) is said


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("a\0", "text without"),
        ("\ud800", "text without"),
        (2**63, "64 bits"),
        (math.inf, "finite"),
        (math.nan, "finite"),
    ],
)
@pytest.mark.parametrize("place", ["options", "data"])
def test_a_spec_keeps_nothing_that_a_database_cannot(place, value, found):
    document = {"name": "a", "workers": 1, "batch_size": 1, "stop": {"iterations": 1}}
    own = {"name": "my.module:factory", place: {"deep": [{"value": value}]}}
    with pytest.raises(SpecError, match=found) as caught:
        parse_spec(document | {"workload": own})
    assert caught.value.field == f"workload.{place}.deep[0].value"
