"""Pagination of lists."""

from typing import Any, Final

from django.core.paginator import InvalidPage
from rest_framework.pagination import PageNumberPagination
from rest_framework.request import Request

from controlplane.api.problems import FieldError, Problem

MOST_PAGES: Final = 2**31 - 1


class Pages(PageNumberPagination):
    """``?page=2&page_size=100``."""

    page_size = 50
    max_page_size = 500
    page_size_query_param = "page_size"
    parameters = (PageNumberPagination.page_query_param, page_size_query_param)

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> Any:
        """One page of the rows.

        Raises:
            Problem: for a page that is not a number, or one after the last.
        """
        self.request = request
        paginator = self.django_paginator_class(queryset, self.get_page_size(request))
        number = self._number(request, self.page_query_param, 1, MOST_PAGES)
        try:
            self.page = paginator.page(number)
        except InvalidPage:
            raise Problem(404, f"there is no page {number}: the last one is {paginator.num_pages}") from None
        return list(self.page)

    def get_page_size(self, request: Request) -> int:
        """The page size of the query.

        Raises:
            Problem: unless it is a number from 1 to the maximum.
        """
        return self._number(request, self.page_size_query_param, self.page_size, self.max_page_size)

    def _number(self, request: Request, name: str, default: int, most: int) -> int:
        found = request.query_params.get(name)
        if found is None:
            return default
        if not (found.isascii() and found.isdecimal() and len(found) < 11 and 1 <= int(found) <= most):
            expected = f"a number from 1 to {most}"
            raise Problem(
                400, f"{name}: expected {expected}", errors=[FieldError(field=name, found=found, expected=expected)]
            )
        return int(found)

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        """The parameter's schema, with its bounds."""
        parameters: list[dict[str, Any]] = super().get_schema_operation_parameters(view)
        bounds = {
            self.page_size_query_param: {"maximum": self.max_page_size},
            self.page_query_param: {"maximum": MOST_PAGES},
        }
        for each in parameters:
            each["schema"] |= {"minimum": 1} | bounds[each["name"]]
        return parameters
