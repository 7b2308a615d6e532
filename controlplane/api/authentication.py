"""Authenticates requests: by an API token in the Authorization header, otherwise by the browser's session."""

from knox.auth import TokenAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from controlplane.api.attached import refuse_job_token
from controlplane.people import identities, tokens
from controlplane.people.addresses import client_address


class ApiToken(TokenAuthentication):
    """``Authorization: Bearer <token>``; knox's own ``Token <token>`` works too."""

    def authenticate(self, request: Request) -> tuple[object, object] | None:
        """The user and token of the request, None if it has no token. The user has no more rights than the token."""
        scheme, _, token = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() not in {"bearer", "token"} or not token.strip():
            return None
        refuse_job_token(token.strip())
        user, row = self.authenticate_credentials(token.strip().encode())
        if days := identities.overdue_days(user):
            raise AuthenticationFailed(
                f"{user.get_username()} has not signed in at the identity provider for {days} days:"
                " sign in there to use this token again."
            )
        user.role_limit, user.scopes = tokens.limit_of(row), tokens.scopes_of(row)
        tokens.token_used(row, client_address(request))
        return user, row

    def authenticate_header(self, request: Request) -> str:
        """The challenge of a 401 response."""
        return 'Bearer realm="paceline"'
