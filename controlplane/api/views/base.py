"""Helpers shared by views."""

from django.contrib.auth.models import User
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.views import APIView

from controlplane.api.parsers import JsonParser


def user_of(request: Request) -> User:
    """The user of the request; permissions have excluded anonymous requests."""
    assert isinstance(request.user, User)
    return request.user


class OpenView(APIView):
    """For requests that are authenticated differently or not at all."""

    parser_classes = (JsonParser,)  # unauthenticated requests may not use a slower parser
    authentication_classes = ()
    permission_classes = (AllowAny,)
