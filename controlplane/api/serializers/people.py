"""Whoever asks, and their API tokens."""

from typing import Any

from knox.models import AuthToken
from rest_framework import serializers

DAY_S = 86_400


class MeReply(serializers.Serializer[Any]):
    """Who asks, and what they may."""

    username = serializers.CharField()
    role = serializers.ChoiceField(("viewer", "operator", "admin"), allow_null=True)


class TokenRequest(serializers.Serializer[Any]):
    """An API token for oneself."""

    lifetime_s = serializers.IntegerField(min_value=1, max_value=366 * DAY_S, default=30 * DAY_S)


class TokenRow(serializers.ModelSerializer[AuthToken]):
    """An API token, without its secret."""

    id = serializers.CharField(source="token_key", read_only=True)
    created_at = serializers.DateTimeField(source="created", read_only=True)
    expires_at = serializers.DateTimeField(source="expiry", read_only=True, allow_null=True)

    class Meta:
        model = AuthToken
        fields: tuple[str, ...] = ("id", "created_at", "expires_at")


class NewToken(TokenRow):
    """An API token, in clear for this once."""

    token = serializers.CharField(read_only=True)

    class Meta(TokenRow.Meta):
        fields = (*TokenRow.Meta.fields, "token")
