"""A real SMTP server that takes mail for some addresses, and refuses others as it is told."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class MailServer:
    """For which addresses mail came, and what is answered to others: the next of an address, until there are none."""

    port: int = 0
    came: list[str] = field(default_factory=list)
    refusals: dict[str, list[str]] = field(default_factory=dict)


@contextmanager
def mail_server() -> Iterator[MailServer]:
    found = MailServer()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.say("220 ready")
            addresses: list[str] = []
            while line := self.rfile.readline().decode().strip():
                match line.split(":")[0].upper():
                    case "RCPT TO":
                        address = line.partition("<")[2].partition(">")[0]
                        refusals = found.refusals.get(address, [])
                        self.say(refusals.pop(0) if refusals else "250 ok")
                        addresses.append(address)
                    case "DATA":
                        self.say("354 go on")
                        while self.rfile.readline() not in {b".\r\n", b""}:
                            pass
                        found.came += addresses
                        addresses = []
                        self.say("250 taken")
                    case "QUIT":
                        return self.say("221 bye")
                    case command:
                        addresses = [] if command == "RSET" else addresses
                        self.say("250 ok")
            return None

        def say(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        found.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
