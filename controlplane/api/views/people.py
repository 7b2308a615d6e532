"""Whoever asks: who they are, and their API tokens."""

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from drf_spectacular.utils import extend_schema
from knox.models import AuthToken
from rest_framework.generics import ListAPIView
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.api.problems import Problem
from controlplane.api.serializers.people import MeReply, NewToken, TokenRequest, TokenRow
from controlplane.jobs.roles import Role, role_of
from controlplane.jobs.services import audit


class MeView(APIView):
    """Who asks."""

    permission_classes = (IsAuthenticated,)

    @extend_schema(responses=MeReply)
    def get(self, request: Request) -> Response:
        """Your name and role."""
        return Response(MeReply({"username": request.user.get_username(), "role": role_of(request.user)}).data)


class TokensView(ListAPIView[AuthToken]):
    """One's own API tokens."""

    write_role = Role.VIEWER
    serializer_class = TokenRow
    queryset = AuthToken.objects.none()

    def get_queryset(self) -> Any:
        """Those of whoever asks, the newest first."""
        return AuthToken.objects.filter(user_id=self.request.user.pk).order_by("-created")

    @extend_schema(request=TokenRequest, responses={201: NewToken})
    def post(self, request: Request) -> Response:
        """Make a token that can do what you can do. It is shown in this reply only; its hash is kept."""
        asked = TokenRequest(data=request.data)
        asked.is_valid(raise_exception=True)
        assert isinstance(request.user, User)  # the permission let nobody else through
        with transaction.atomic():
            row, token = AuthToken.objects.create(
                user=request.user, expiry=timedelta(seconds=asked.validated_data["lifetime_s"])
            )
            audit(actor=request.user.get_username(), action="token-create", subject=f"token {row.token_key}")
        row.token = token
        return Response(NewToken(row).data, status=201)


class TokenView(APIView):
    """One of one's own API tokens."""

    write_role = Role.VIEWER

    @extend_schema(request=None, responses={204: None})
    def delete(self, request: Request, key: str) -> Response:
        """Revoke a token."""
        with transaction.atomic():
            deleted, _ = AuthToken.objects.filter(user_id=request.user.pk, token_key=key).delete()
            if not deleted:
                raise Problem(404, f"you have no token {key!r}")
            audit(actor=request.user.get_username(), action="token-revoke", subject=f"token {key}")
        return Response(status=204)
