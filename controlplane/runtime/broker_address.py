"""The address of Redis as Celery's transport reads it."""

from urllib.parse import parse_qs, quote, unquote, urlsplit


def broker_url(redis_url: str) -> str:
    """``redis_url`` as Celery's transport spells it: Unix sockets have a scheme of their own there.

    It adds ``ssl_cert_reqs``: without it Celery would not verify certificates, unlike all other clients here.
    """
    parts = urlsplit(redis_url)
    if parts.scheme == "rediss" and "ssl_cert_reqs" not in parse_qs(parts.query):
        return f"{redis_url}{'&' if parts.query else '?'}ssl_cert_reqs=required"
    if parts.scheme != "unix":
        return redis_url
    query = parse_qs(parts.query)
    password = query["password"][0] if "password" in query else unquote(parts.password or "")
    login = f":{quote(password, safe='')}@" if password else ""
    return f"redis+socket://{login}{parts.path}?virtual_host={query.get('db', ['0'])[0]}"
