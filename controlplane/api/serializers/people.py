"""Serializers of users, API tokens and sessions."""

from typing import Any

from django.contrib.auth.models import User
from drf_spectacular.utils import extend_schema_field
from knox.models import AuthToken
from rest_framework import serializers

from controlplane.api.serializers.fields import NameField
from controlplane.people.models import Session
from controlplane.people.scopes import Scope
from controlplane.people.tokens import limit_of, scopes_of
from controlplane.people.users import line_of

DAY_S = 86_400
ROLES = ("viewer", "operator", "admin")


class MeReply(serializers.Serializer[Any]):
    """The current user and role."""

    username = serializers.CharField()
    role = serializers.ChoiceField(ROLES, allow_null=True)


class OwnersQuery(serializers.Serializer[Any]):
    """Whose tokens or sessions to list."""

    of = serializers.ChoiceField(("me", "everyone"), default="me", help_text="everyone: for admins")


class TokenRequest(serializers.Serializer[Any]):
    """An API token to create for the current user."""

    name = NameField(default="unnamed")
    role = serializers.ChoiceField(ROLES, allow_null=True, default=None)
    """Maximum role of the token; null: the role of its user."""
    scopes = serializers.ListField(
        child=serializers.ChoiceField(list(Scope)),
        default=list,
        max_length=len(Scope),
        help_text="Scopes of the token; empty: everything its role permits.",
    )
    lifetime_s = serializers.IntegerField(min_value=1, max_value=366 * DAY_S, default=30 * DAY_S)


class TokenRow(serializers.ModelSerializer[AuthToken]):
    """An API token, without its secret."""

    id = serializers.CharField(source="token_key", read_only=True)
    user = serializers.CharField(source="user.username", read_only=True)
    name = serializers.SerializerMethodField()
    role = serializers.SerializerMethodField()
    scopes = serializers.SerializerMethodField()
    parent = serializers.CharField(source="grant.parent.token_key", default=None, read_only=True, allow_null=True)
    """The token with which it was created and is revoked."""
    created_at = serializers.DateTimeField(source="created", read_only=True)
    expires_at = serializers.DateTimeField(source="expiry", read_only=True, allow_null=True)
    used_at = serializers.DateTimeField(source="grant.used_at", default=None, read_only=True, allow_null=True)
    used_from = serializers.SerializerMethodField()

    class Meta:
        model = AuthToken
        fields: tuple[str, ...] = (
            *("id", "user", "name", "role", "scopes", "parent"),
            *("created_at", "expires_at", "used_at", "used_from"),
        )

    def get_name(self, row: AuthToken) -> str:
        """Empty for a token of an earlier release."""
        return row.grant.name if hasattr(row, "grant") else ""

    @extend_schema_field(serializers.ListField(child=serializers.ChoiceField(list(Scope))))
    def get_scopes(self, row: AuthToken) -> list[str]:
        """Empty: everything its role permits."""
        held = scopes_of(row) or frozenset()
        return [scope for scope in Scope if scope in held]

    def get_used_from(self, row: AuthToken) -> str:
        """The address of the last use."""
        return row.grant.used_from if hasattr(row, "grant") else ""

    @extend_schema_field(serializers.ChoiceField(ROLES, allow_null=True))
    def get_role(self, row: AuthToken) -> str | None:
        """Maximum role of the token; null: the role of its user."""
        return limit_of(row)


class NewToken(TokenRow):
    """A new API token with its secret, which is shown only once."""

    token = serializers.CharField(read_only=True)

    class Meta(TokenRow.Meta):
        fields = (*TokenRow.Meta.fields, "token")


class UserRow(serializers.Serializer[User]):
    """A user, as admins see it."""

    username = serializers.CharField(read_only=True)
    role = serializers.ChoiceField(ROLES, allow_null=True, read_only=True, help_text="Also of a disabled account.")
    active = serializers.BooleanField(read_only=True, help_text="false: disabled; it cannot sign in.")
    password = serializers.BooleanField(read_only=True, help_text="Has a password that can be used.")
    provider = serializers.BooleanField(read_only=True, help_text="Signs in at the identity provider.")
    emergency = serializers.BooleanField(read_only=True)
    joined_at = serializers.DateTimeField(read_only=True)
    last_login_at = serializers.DateTimeField(read_only=True, allow_null=True)
    tokens = serializers.IntegerField(read_only=True, help_text="Valid API tokens.")
    sessions = serializers.IntegerField(read_only=True, help_text="Signed-in browsers.")

    def to_representation(self, instance: User) -> Any:
        """A row of ``users_listed``."""
        return super().to_representation(line_of(instance))


class SessionRow(serializers.ModelSerializer[Session]):
    """A browser that is signed in."""

    id = serializers.CharField(source="number", read_only=True)
    user = serializers.CharField(source="user.username", read_only=True)
    expires_at = serializers.DateTimeField(source="expire_date", read_only=True)

    class Meta:
        model = Session
        fields = ("id", "user", "signed_in_at", "expires_at", "address", "browser")
        read_only_fields = fields
