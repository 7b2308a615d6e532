"""Lists in pages."""

from typing import Any

from rest_framework.pagination import PageNumberPagination
from rest_framework.request import Request

from controlplane.api.problems import FieldError, Problem


class Pages(PageNumberPagination):
    """``?page=2&page_size=100``."""

    page_size = 50
    max_page_size = 500
    page_size_query_param = "page_size"

    def get_page_size(self, request: Request) -> int:
        """The page size of the query.

        Raises:
            Problem: for anything but a number from 1 to the largest size.
        """
        found = request.query_params.get(self.page_size_query_param)
        if found is None:
            return self.page_size
        if not (found.isascii() and found.isdecimal() and len(found) < 10 and 1 <= int(found) <= self.max_page_size):
            expected = f"a number from 1 to {self.max_page_size}"
            fault = FieldError(field=self.page_size_query_param, found=found, expected=expected)
            raise Problem(400, f"page_size: expected {expected}", errors=[fault])
        return int(found)

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        """The parameter's schema, with its bounds."""
        parameters: list[dict[str, Any]] = super().get_schema_operation_parameters(view)
        bounds = {self.page_size_query_param: {"maximum": self.max_page_size}, self.page_query_param: {}}
        for each in parameters:
            each["schema"] |= {"minimum": 1} | bounds[each["name"]]
        return parameters
