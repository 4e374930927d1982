"""Free ports of loopback, near the usual numbers."""

import socket

HOST = "127.0.0.1"
# Ports that are tried from the preferred one upwards.
TRIED = 200


class Ports:
    """The ports of one demo. None of them is used by another program when it is taken."""

    def __init__(self):
        self.locks = []

    def take(self, preferred):
        """The first free port from the preferred one upwards."""
        for port in range(preferred, preferred + TRIED):
            # A UDP socket with the same number reserves the port for this demo until its child listens, and
            # while a child is down. Other demos and the tests of weir do the same.
            lock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                lock.bind((HOST, port))
                with socket.socket() as listener:
                    # Closed connections of a demo before do not block the port.
                    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    listener.bind((HOST, port))
                    listener.listen()
            except OSError:
                lock.close()
                continue
            self.locks.append(lock)
            return port
        raise SystemExit(f"no port from {preferred} to {preferred + TRIED - 1} is free on {HOST}")
