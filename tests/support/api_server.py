"""As much of a Kubernetes API server as reviews of tokens need: HTTPS on loopback, ``authentication.k8s.io/v1``."""

import base64
import json
import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Self

from tests.support.certificates import Certificates

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"


class ApiServer:
    """Made around a test. ``tokens`` are good until they are taken out; ``own`` is who may ask."""

    def __init__(self, certificates: Certificates, own: str = "control-plane-1") -> None:
        self.own, self.certificates = own, certificates
        self.tokens: dict[str, dict[str, Any]] = {}
        self.reviews: list[str] = []
        """Tokens, as often as they were asked about."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.certificate, certificates.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        self._server, self._thread = server, Thread(target=server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._server.server_address[1]}"

    def issue(
        self, namespace: str, account: str, pod: str | None, *, audience: str = "paceline", serial: int = 1
    ) -> str:
        """A token as the kubelet projects it into a pod; None: as ``kubectl create token`` prints it."""
        username = f"system:serviceaccount:{namespace}:{account}"
        claims = {"aud": [audience], "sub": username, "jti": f"{pod}-{serial}"}
        parts = ({"alg": "RS256"}, claims)
        encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
        token = ".".join([*encoded, "c2lnbmVk"])
        extra = {"authentication.kubernetes.io/pod-name": [pod]} if pod else {}
        self.tokens[token] = {"username": username, "extra": extra, "audiences": [audience]}
        return token

    def _review(self, body: dict[str, Any]) -> dict[str, Any]:
        assert (body["apiVersion"], body["kind"]) == ("authentication.k8s.io/v1", "TokenReview")
        token = body["spec"]["token"]
        self.reviews.append(token)
        known = self.tokens.get(token)
        if known is None:
            return {"authenticated": False, "error": "[invalid bearer token, service account token has expired]"}
        common = [each for each in known["audiences"] if each in body["spec"]["audiences"]]
        if not common:
            return {"authenticated": False, "error": "invalid audience"}
        user = {"username": known["username"], "extra": known["extra"]}
        return {"authenticated": True, "audiences": common, "user": user}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.headers["Authorization"] != f"Bearer {api.own}":
                    self._answer(401, {"kind": "Status", "code": 401})
                elif self.path != PATH:
                    self._answer(404, {"kind": "Status", "code": 404})
                else:
                    self._answer(201, body | {"status": api._review(body)})

            def _answer(self, status: int, document: dict[str, Any]) -> None:
                text = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        return Handler

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def own_token(folder: Path, text: str = "control-plane-1") -> Path:
    """The file with the control plane's own token."""
    file = folder / "own-token"
    file.write_text(f"{text}\n")
    return file
