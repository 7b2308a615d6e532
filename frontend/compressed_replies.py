"""Pages and figures are compressed for browsers that accept it; what is sent otherwise is left as it is.

A page that is compressed can give away a secret in it by its size, if an attacker has a word of his own in the same
page (BREACH). Our CSRF tokens are masked anew in each page, credentials are shown once and not beside anything from
the address, and Django pads each reply by a random length.
"""

from typing import Final

from django.http import HttpRequest, HttpResponseBase
from django.middleware.gzip import GZipMiddleware

TYPES: Final = frozenset({"text/html", "application/json"})


class CompressedReplies(GZipMiddleware):
    """Compresses whole pages and JSON; streams and downloads of other kinds stay as they are."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Django's, for these kinds."""
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if response.streaming or kind not in TYPES:
            return response
        compressed: HttpResponseBase = super().process_response(request, response)
        return compressed
