"""REST views of the current user, API tokens and sessions."""

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from drf_spectacular.utils import extend_schema
from knox.models import AuthToken
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api.problems import Problem
from controlplane.api.schema import problem_responses
from controlplane.api.serializers.people import MeReply, NewToken, OwnersQuery, SessionRow, TokenRequest, TokenRow
from controlplane.api.views.base import ApiListView, ApiView, user_of
from controlplane.jobs.roles import ORDER, Role, may, role_of
from controlplane.people.models import Session
from controlplane.people.scopes import Scope
from controlplane.people.sessions import live_sessions, sessions_end
from controlplane.people.tokens import TokenRefused, limit_of, live_tokens, token_create, tokens_revoke


class MeView(ApiView):
    """The current user."""

    permission_classes = (IsAuthenticated,)

    @extend_schema(responses=MeReply)
    def get(self, request: Request) -> Response:
        """Your name and role."""
        return Response(MeReply({"username": request.user.get_username(), "role": role_of(request.user)}).data)


class TokensView(ApiListView[AuthToken]):
    """API tokens."""

    write_role = Role.VIEWER
    serializer_class = TokenRow
    query_serializer = OwnersQuery
    queryset = AuthToken.objects.none()

    def get_queryset(self) -> Any:
        """Those of the current user, the newest first."""
        return live_tokens(_owner(self.request))

    @extend_schema(parameters=[OwnersQuery])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Your valid API tokens, newest first; with ``of=everyone`` those of all users."""
        return super().get(request, *args, **kwargs)

    @extend_schema(request=TokenRequest, responses={201: NewToken, **problem_responses(409)})
    def post(self, request: Request) -> Response:
        """Create a token with your role or a lower one. It is shown only in this reply; only its hash is stored.

        A token made with another token expires no later than that one, and is revoked with it.
        """
        serializer = TokenRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        fields = serializer.validated_data
        user = user_of(request)
        try:
            row, secret = token_create(
                user=user,
                name=fields["name"],
                actor=user.get_username(),
                role=Role(fields["role"]) if fields["role"] else None,
                lifetime=timedelta(seconds=fields["lifetime_s"]),
                scopes=frozenset(map(Scope, fields["scopes"])),
                parent=request.auth if isinstance(request.auth, AuthToken) else None,
            )
        except TokenRefused as error:
            raise Problem(409, str(error)) from None
        row.token = secret
        return Response(NewToken(row).data, status=201)


class TokenView(ApiView):
    """One API token."""

    write_role = Role.VIEWER

    @extend_schema(request=None, responses={204: None})
    def delete(self, request: Request, key: str) -> Response:
        """Revoke one of your tokens, if its role is not above yours. Admins can revoke any user's token."""
        rows = live_tokens(_reach(request)).filter(token_key=key)
        for row in rows:
            _check_role(request, limit_of(row))
        if not tokens_revoke(rows, actor=user_of(request).get_username()):
            raise Problem(404, f"you have no token {key!r}")
        return Response(status=204)


class SessionsView(ApiListView[Session]):
    """Browsers that are signed in."""

    serializer_class = SessionRow
    query_serializer = OwnersQuery
    queryset = Session.objects.none()

    def get_queryset(self) -> Any:
        """Those of the current user, the newest first."""
        return live_sessions(_owner(self.request))

    @extend_schema(parameters=[OwnersQuery])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Your sessions, newest first; with ``of=everyone`` those of all users."""
        return super().get(request, *args, **kwargs)


class SessionView(ApiView):
    """One browser that is signed in."""

    write_role = Role.VIEWER

    @extend_schema(request=None, responses={204: None})
    def delete(self, request: Request, number: str) -> Response:
        """Sign out one of your browsers. Requires your full role. Admins can sign out any user's browser."""
        rows = live_sessions(_reach(request)).filter(number=number)
        if rows.exists():
            _check_role(request, None)
        if not sessions_end(rows, actor=user_of(request).get_username()):
            raise Problem(404, f"you have no session {number!r}")
        return Response(status=204)


def _owner(request: Request) -> User | None:
    """The user whose tokens or sessions are requested; None: all users'."""
    serializer = OwnersQuery(data=request.query_params)
    serializer.is_valid(raise_exception=True)
    user = user_of(request)
    if serializer.validated_data["of"] == "me":
        return user
    if not may(user, Role.ADMIN):
        raise Problem(403, f"of=everyone requires the role admin; your role is {role_of(user) or 'none'}")
    return None


def _reach(request: Request) -> User | None:
    """The user whose tokens or sessions the current user may end; None: all users'."""
    return None if may(user_of(request), Role.ADMIN) else user_of(request)


def _check_role(request: Request, carried: Role | None) -> None:
    """Check that a token below its user's role revokes nothing with a higher role; None: all of that role.

    Raises:
        Problem: if it would.
    """
    shown = role_of(user_of(request))
    held = role_of(User.objects.get(pk=user_of(request).pk))
    if shown == Role.ADMIN or shown is None or held is None:
        return
    ended = min(carried or held, held, key=ORDER.index)
    if ORDER.index(ended) > ORDER.index(shown):
        raise Problem(
            403, f"this requires the role {ended}; your token has the role {shown}. Use a token with your full role"
        )
