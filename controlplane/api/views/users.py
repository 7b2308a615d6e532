"""Users, for admins: list them, enable and disable accounts."""

from http import HTTPStatus
from typing import Any

from django.contrib.auth.models import User
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api.problems import Problem
from controlplane.api.schema import problem_responses
from controlplane.api.serializers.people import UserRow
from controlplane.api.views.base import ApiListView, ApiView, user_of
from controlplane.jobs.roles import Role
from controlplane.people.users import SwitchRefused, user_disable, user_enable, users_listed


class UsersView(ApiListView[User]):
    """Users."""

    read_role = Role.ADMIN
    serializer_class = UserRow
    queryset = User.objects.none()

    def get_queryset(self) -> Any:
        """All of them, by name."""
        return users_listed()

    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """All users by name: role, ways to sign in, valid tokens and sessions. Admins only."""
        return super().get(request, *args, **kwargs)


class UserDisableView(ApiView):
    """Disabling an account."""

    @extend_schema(request=None, responses={200: UserRow, **problem_responses(404, 409)})
    def post(self, request: Request, username: str) -> Response:
        """Disable an account: its tokens are revoked, its sessions end. Admins only."""
        user = get_object_or_404(User, username=username)
        try:
            if not user_disable(user=user, actor=user_of(request).get_username()):
                raise Problem(HTTPStatus.CONFLICT, f"the account {username!r} is already disabled")
        except SwitchRefused as refused:
            raise Problem(HTTPStatus.CONFLICT, str(refused)) from None
        return Response(UserRow(users_listed().get(pk=user.pk)).data)


class UserEnableView(ApiView):
    """Enabling an account."""

    @extend_schema(request=None, responses={200: UserRow, **problem_responses(404, 409)})
    def post(self, request: Request, username: str) -> Response:
        """Enable an account again. Admins only."""
        user = get_object_or_404(User, username=username)
        if not user_enable(user=user, actor=user_of(request).get_username()):
            raise Problem(HTTPStatus.CONFLICT, f"the account {username!r} is not disabled")
        return Response(UserRow(users_listed().get(pk=user.pk)).data)
