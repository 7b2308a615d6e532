"""``python -m controlplane.runtime.embedded.fake_redis PORT``: fakeredis behind a loopback port, until SIGTERM.

Its server closes a connection after every error reply, and so would close one after each script that it does not
know yet. So all scripts are loaded before any client connects.
"""

import sys
import threading
from pathlib import Path

import redis

SCRIPTS = Path(__file__).resolve().parents[1] / "lua"


def main() -> None:
    """Serve until the process ends; it keeps nothing that would need closing."""
    from fakeredis import TcpFakeServer  # not at the top: it is heavy, and most machines never need it

    port = int(sys.argv[1])
    with TcpFakeServer(("127.0.0.1", port), server_version=(6, 2)) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        with redis.Redis(port=port, protocol=2) as client:
            for script in SCRIPTS.glob("*.lua"):
                client.script_load(script.read_text())
        serving.join()


if __name__ == "__main__":
    main()
