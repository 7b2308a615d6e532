"""``python -m controlplane.runtime.embedded.fake_redis PORT``: fakeredis behind a loopback port, until SIGTERM."""

import sys


def main() -> None:
    """Serve until the process ends; it keeps nothing that would need closing."""
    from fakeredis import TcpFakeServer  # not at the top: it is heavy, and most machines never need it

    with TcpFakeServer(("127.0.0.1", int(sys.argv[1])), server_version=(6, 2)) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
