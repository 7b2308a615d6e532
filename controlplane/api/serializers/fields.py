"""Serializer fields shared by several documents."""

from collections.abc import Mapping
from typing import Any, Final

from rest_framework import serializers

from controlplane.protocol.text import IN_WORDS, PLAIN, is_plain

MOST_LABELS: Final = 64
"""Maximum number of labels of a machine, as in the protocol."""


def check_plain_name(text: str) -> None:
    """Reject control characters, which would affect terminals and logs."""
    if not is_plain(text):
        raise serializers.ValidationError(IN_WORDS[PLAIN])


def check_labels(labels: Mapping[str, Any]) -> None:
    """Reject labels that no job could request."""
    if len(labels) > MOST_LABELS:
        raise serializers.ValidationError(f"at most {MOST_LABELS} labels")
    if not all(0 < len(key) <= 100 and is_plain(key) for key in labels):
        raise serializers.ValidationError(f"keys of 1 to 100 characters: {IN_WORDS[PLAIN]}")


class NameField(serializers.CharField):
    """A name, as in ``protocol.base.Name``."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"max_length": 100, "trim_whitespace": False, **options})
        self.validators.append(check_plain_name)


class LabelsField(serializers.DictField):
    """Labels of machines, as in ``protocol.base.Labels``."""

    def __init__(self, **options: Any) -> None:
        super().__init__(child=NameField(max_length=200, allow_blank=True), **options)
        self.validators.append(check_labels)
