"""The configured OpenID Connect provider, its claims about a user, and the refusal of a sign-in."""

from dataclasses import dataclass

from django.conf import settings

from controlplane.people.configured import Provider


class SignInRefused(Exception):
    """The sign-in failed; the text is for the user who tried."""

    def __init__(self, sentence: str, *, status: int = 403, cure: str = "") -> None:
        super().__init__(sentence)
        self.status, self.cure = status, cure


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The provider's claims about a user."""

    subject: str
    name: str
    groups: tuple[str, ...]
    email: str


def provider() -> Provider:
    """The configured provider."""
    if settings.OIDC is None:
        raise SignInRefused("No identity provider is configured here.", status=404)
    found: Provider = settings.OIDC
    return found
