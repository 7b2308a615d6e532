"""Which addresses get no messages, and that a webhook's path is not shown."""

import html
import ipaddress
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.alerts import webhook
from controlplane.alerts.targets import refused
from controlplane.alerts.webhook import DeliveryFailed


@given(
    plain=st.sampled_from(["169.254.169.254", "100.100.100.200", "192.0.0.192", "224.0.0.1"]),
    wrapped=st.sampled_from(
        [
            "::{0}", "::ffff:{0}", "::ffff:0:{0}", "64:ff9b::{0}", "64:ff9b:1::{0}", "fd00::5efe:{0}",
            "fd00::200:5efe:{0}", "2002:{1}::", "2002:{1}:7::1", "2001:0:{1}::1", "2001:0:a00:1:0:0:{2}",
        ]
    ),
)  # fmt: skip
def test_an_address_is_refused_in_whatever_it_is_embedded(plain: str, wrapped: str) -> None:
    number = int(ipaddress.IPv4Address(plain))
    groups, inverted = (f"{each >> 16:x}:{each & 0xFFFF:x}" for each in (number, number ^ 0xFFFFFFFF))
    assert refused(ipaddress.ip_address(wrapped.format(plain, groups, inverted)))


@pytest.mark.parametrize("address", ["::1", "10.0.0.7", "64:ff9b::a00:7", "2002:a00:7::1", "fd00::7", "2001:db8::1"])
def test_other_addresses_are_not_refused(address: str) -> None:
    assert refused(ipaddress.ip_address(address)) == ""


def test_a_host_that_is_no_name_is_a_failure_like_any_other() -> None:
    with pytest.raises(DeliveryFailed, match=r"the host a\.\.b cannot be resolved"):
        webhook.resolved("a..b", 80)


@given(word=st.text("ab%2F&+ /", min_size=6, max_size=20), before=st.text(max_size=5))
def test_a_hidden_path_is_in_no_form_shown(word: str, before: str) -> None:
    secret = f"K{word}Z"
    url = f"https://hooks.example.org/{quote(secret, safe='')}"
    for form in (secret, quote(secret), quote(secret, safe=""), html.escape(secret), secret.replace("/", "\\/")):
        assert "".join(webhook.hidden(f"{before} {form}", url).split()).endswith("…")
