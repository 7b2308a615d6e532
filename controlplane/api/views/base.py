"""What views share."""

from django.contrib.auth.models import User
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.views import APIView

from controlplane.api.parsers import JsonParser


def user_of(request: Request) -> User:
    """Who asks; the permission let nobody else through."""
    assert isinstance(request.user, User)
    return request.user


class OpenView(APIView):
    """For requests that carry their own proof, or need none."""

    parser_classes = (JsonParser,)  # whoever is not known gets no slower one
    authentication_classes = ()
    permission_classes = (AllowAny,)
