"""Base classes and helpers of views.

A view accepts the query parameters that the OpenAPI document has for it, and refuses others: a misspelled one would
otherwise be ignored.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from django.contrib.auth.models import User
from django.db.models import Model
from rest_framework.generics import ListAPIView, RetrieveAPIView
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.views import APIView

from controlplane.api.filters import check_names, parameters_of
from controlplane.api.parsers import JsonParser

Row = TypeVar("Row", bound=Model)


def user_of(request: Request) -> User:
    """The user of the request; permissions have excluded anonymous requests."""
    assert isinstance(request.user, User)
    return request.user


class ApiView(APIView):
    """Refuses unknown query parameters."""

    takes: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Query parameters by method, besides those of filters, pages and ``query_serializer``."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate, check the role and the limits, then the names of the query parameters.

        Raises:
            Problem: naming an unknown parameter, and those that there are.
        """
        super().initial(request, *args, **kwargs)
        check_names(request.query_params, parameters_of(self, request.method or "GET"))


class ApiListView(ApiView, ListAPIView[Row]):
    """Rows, by page."""


class ApiDetailView(ApiView, RetrieveAPIView[Row]):
    """One row."""


class OpenView(ApiView):
    """For requests that are authenticated differently or not at all."""

    parser_classes = (JsonParser,)  # unauthenticated requests may not use a slower parser
    authentication_classes = ()
    permission_classes = (AllowAny,)
