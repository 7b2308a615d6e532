"""Selects media types: JSON and YAML are accepted, JSON is returned."""

from typing import Any

from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request


class AlwaysJson(BaseContentNegotiation):
    """There is one representation, so the client's preference is ignored."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        """The parser of the body's media type, None if there is none; a body without a media type is JSON."""
        given = (request.content_type or "application/json").partition(";")[0].strip().lower()
        aliases = {"application/x-yaml": "application/yaml", "text/yaml": "application/yaml"}
        return next((parser for parser in parsers if parser.media_type == aliases.get(given, given)), None)

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        """JSON."""
        return renderers[0], renderers[0].media_type
