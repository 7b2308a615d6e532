"""Sets security headers, and rejects requests for unknown host names."""

import logging
from typing import Final

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

from controlplane.api.problems import expects_problem, plain_response
from controlplane.jobs.documents import shown

_EMPTY: Final = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
"""Hash of the empty string: Plotly makes empty style elements and attributes, and fills them by script."""

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        f"style-src 'self' {_EMPTY}",
        f"style-src-attr 'unsafe-hashes' {_EMPTY}",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)

FEATURES: Final = (
    *("accelerometer", "camera", "display-capture", "geolocation", "gyroscope", "hid", "magnetometer"),
    *("microphone", "midi", "payment", "serial", "usb", "xr-spatial-tracking"),
)
"""Browser features that pages do not use."""

HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Permissions-Policy": ", ".join(f"{feature}=()" for feature in FEATURES),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

SENTENCE = "this host name is not in ALLOWED_HOSTS"

logger = logging.getLogger(__name__)


class Headers(MiddlewareMixin):
    """Middleware that must precede all middleware that may respond."""

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        """Reject a request for another host, which Django would log as an error with a traceback."""
        try:
            request.get_host()
        except DisallowedHost:
            found = shown(request.META.get("HTTP_HOST", ""))
            logger.info("request for the host %s refused; ALLOWED_HOSTS is %s", found, settings.ALLOWED_HOSTS)
            if expects_problem(request):
                return plain_response(400, SENTENCE)
            return HttpResponse(f"400 Bad Request: {SENTENCE}\n", status=400, content_type="text/plain; charset=utf-8")
        return None

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Set the headers that the view did not set itself."""
        for name, value in HEADERS.items():
            response.setdefault(name, value)
        return response
