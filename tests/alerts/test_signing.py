"""A signature holds for its body, key and time alone, whatever the headers."""

from hypothesis import given
from hypothesis import strategies as st

from controlplane.alerts.signing import TOLERANCE_S, signed, verified
from tests.alerts.rows import SECRET

KEYS = st.uuids().map(str)


@given(secret=st.text(min_size=1, max_size=40), key=KEYS, content=st.binary(max_size=200), now=st.integers(0, 2**40))
def test_a_signature_holds_for_its_body_key_and_time_alone(secret: str, key: str, content: bytes, now: int) -> None:
    try:
        headers = signed(secret, key, content, now)
    except UnicodeEncodeError:
        return
    assert verified(secret, content, headers, now + TOLERANCE_S)
    assert verified(secret, content, {name.lower(): value for name, value in headers.items()}, now)
    assert not verified(secret, content + b"x", headers, now)
    assert not verified(secret, content, headers | {"Paceline-Timestamp": str(now + 1)}, now)
    assert not verified(secret, content, headers | {"Idempotency-Key": f"{key}0"}, now)
    assert not verified(secret, content, {name: headers[name] for name in headers if name != "Idempotency-Key"}, now)
    assert not verified(secret, content, {}, now)


def test_no_part_of_a_signed_body_passes_as_its_key() -> None:
    headers = signed(SECRET, "one", b"two.three", 7)
    assert not verified(SECRET, b"three", headers | {"Idempotency-Key": "one.two"}, 7)


NAMES = st.sampled_from(["Paceline-Timestamp", "Paceline-Signature", "Idempotency-Key", "paceline-timestamp"])
HOSTILE = st.text() | st.sampled_from(["9" * 5_000, "\u00e9", "\ud800", "\u0667", "-1", "1e3", "v1=\u00e9", "7\n"])


@given(hostile=st.dictionaries(NAMES, HOSTILE))
def test_hostile_headers_are_answered_and_never_pass(hostile: dict[str, str]) -> None:
    assert not verified(SECRET, b"x", hostile, 7)
    changed = {**signed(SECRET, "one", b"x", 7), **hostile}
    if len(changed) == 3:
        assert verified(SECRET, b"x", changed, 7) == (changed == signed(SECRET, "one", b"x", 7))
    else:
        verified(SECRET, b"x", changed, 7)
