"""What may be a name or a path: nothing that acts on a terminal, and nothing that leads upwards."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.protocol.base import Name
from controlplane.protocol.faults import fault_of
from controlplane.protocol.messages import AgentHello
from controlplane.protocol.options import SvmlightData, WavData
from controlplane.protocol.spec import SpecError, parse_spec
from controlplane.protocol.text import PLAIN, RELATIVE_PATH, SEGMENT, is_plain, printable

ACTING = ["\x00", "\x07", "\n", "\r", "\x1b[2J", "\x7f", "\x9b31m", "\u2028", "\u202e", "\u2066"]

TINY = {"workload": "softmax-regression", "workers": 1, "batch_size": 8, "stop": {"iterations": 1}}


@pytest.mark.parametrize("acting", ACTING)
@pytest.mark.parametrize("form", ["{}", "digits{}", "{}digits", "di{}gits"])
def test_a_control_character_is_in_no_name(acting: str, form: str) -> None:
    name = form.format(acting)
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(name, Name)
    assert fault_of(refused.value).expected == "text on one line without control characters"
    for changes in ({"name": name}, {"labels": {name: "a"}}, {"labels": {"a": name}}):
        with pytest.raises(SpecError):
            parse_spec({"name": "digits", **TINY, **changes})


def test_names_of_any_language_are_taken() -> None:
    assert parse_spec({"name": "Zahlen größer 数字 é", **TINY}).name == "Zahlen größer 数字 é"


@pytest.mark.parametrize(
    "folder",
    [
        "..",
        ".",
        "../a",
        "a/..",
        "a/../b",
        "a/./b",
        "./a",
        "/a",
        "a\n",
        "\na",
        "a\n/../../etc",
        "a\n../b",
        "a\x1b[2J",
        "\n/etc",
    ],
)
def test_a_folder_to_start_from_does_not_lead_upwards_whatever_else_it_holds(folder: str) -> None:
    with pytest.raises(SpecError) as refused:
        parse_spec({"name": "digits", **TINY, "start_from": {"folder": folder}})
    assert refused.value.field == "start_from.folder"
    assert "relative path" in refused.value.expected


@pytest.mark.parametrize("folder", ["a", "a/b", "a..b", "...", ".hidden/x", "job-1-abc", "a b"])
def test_a_folder_below_is_taken(folder: str) -> None:
    parse_spec({"name": "digits", **TINY, "start_from": {"folder": folder}})


@given(st.lists(st.sampled_from(["a", "..", ".", "/", "\n", "b", "\x1b", " "]), max_size=8).map("".join))
def test_the_path_s_rule_is_that_of_its_parts(path: str) -> None:
    right = is_plain(path) and not path.startswith("/") and not {".", ".."} & set(path.split("/"))
    assert (re.search(RELATIVE_PATH, path) is not None) == right
    assert (re.search(SEGMENT, path) is not None) == (is_plain(path) and "/" not in path and path not in {".", ".."})


@given(st.text())
def test_the_rule_of_a_name_and_its_pattern_are_one(text: str) -> None:
    assert is_plain(text) == (re.search(PLAIN, text) is not None)
    assert is_plain(printable(text).replace("\n", "").replace("\t", ""))


def test_text_for_a_terminal_keeps_its_lines_and_nothing_acts() -> None:
    assert printable("a\n\tb\x1b[2J\u202e\r") == "a\n\tb\\x1b[2J\\u202e\\r"


@pytest.mark.parametrize(
    ("kind", "given_options"),
    [
        (SvmlightData, {"path": "../x", "features": 3}),
        (SvmlightData, {"path": "x", "features": 3, "held": "../../x"}),
        (WavData, {"path": "x", "words": ["..", "no"]}),
        (WavData, {"path": "x", "words": ["a/b", "no"]}),
        (WavData, {"path": "x\n"}),
    ],
)
def test_paths_in_options_stay_below_too(kind: Any, given_options: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(given_options, kind)


@pytest.mark.parametrize("field", ["name", "version", "host"])
def test_what_a_machine_calls_itself_holds_no_control_characters(field: str) -> None:
    said: dict[str, Any] = {
        "type": "agent-hello",
        "number": 1,
        "name": "m",
        "version": "1",
        "host": "h",
        "slots": [],
        "server_slots": 0,
        "labels": {},
        "cpu_count": 1,
        "memory_bytes": 1,
    }
    msgspec.convert(said, AgentHello)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(said | {field: "a\x1b[2J"}, AgentHello)
