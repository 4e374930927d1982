"""A small HTTP/2 client: it sends what a hostile client sends, and reads frames."""

import socket
import ssl
import struct

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
ACK = END_STREAM = 1
END_HEADERS = 4
INITIAL_WINDOW_SIZE = 4

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DEFAULT_WINDOW = 65_535
WINDOW_MAX = 2**31 - 1

# Seconds that a send may wait for the server to read, or to enlarge the window of the connection.
SEND_TIMEOUT = 2


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def header_block(path, extra=0):
    """The headers of a gRPC call, with `extra` empty headers of two letters, none of them compressed."""
    fields = [
        (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "weir"),
        ("content-type", "application/grpc"), ("te", "trailers"),
    ]
    return literals([*fields, *((name, "") for name in two_letter_names(extra))])


def two_letter_names(count):
    """`aa`, `ab` and so on. The name `te`, which has a meaning in HTTP/2, is number 498."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    return [letters[i // 26] + letters[i % 26] for i in range(count)]


def literals(fields):
    """Literal fields of HPACK, which enter no table."""
    return b"".join(b"\0" + string(name) + string(value) for name, value in fields)


def string(text):
    """A string literal of HPACK, without Huffman codes."""
    length = len(text)
    if length < 127:
        return bytes([length]) + text.encode()
    length, size = length - 127, b"\x7f"
    while length >= 128:
        size += bytes([length & 127 | 128])
        length >>= 7
    return size + bytes([length]) + text.encode()


def tls_context():
    """TLS for HTTP/2 without a check of the server's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


class Connection:
    """A connection. `window` is the INITIAL_WINDOW_SIZE for responses; `source` is the client's address; `tls`
    is a context."""

    def __init__(self, address, window=None, source="127.0.0.1", tls=None):
        self.socket = socket.create_connection(address, SEND_TIMEOUT, source_address=(source, 0))
        if tls:
            self.socket = tls.wrap_socket(self.socket)
        self.unread = bytearray()
        # Bytes of DATA that the server still accepts on this connection.
        self.window = DEFAULT_WINDOW
        settings = b"" if window is None else struct.pack(">HI", INITIAL_WINDOW_SIZE, window)
        self.send(PREFACE + frame(SETTINGS, 0, 0, settings))

    def send(self, frames):
        self.socket.settimeout(SEND_TIMEOUT)
        self.socket.sendall(frames)

    def send_data(self, stream, data, flags=0):
        """Sends DATA as soon as the window of the connection permits."""
        while self.window < len(data):
            before = self.window
            self.receive(SEND_TIMEOUT)
            if self.window == before:
                raise TimeoutError("the window of the connection stays closed")
        self.window -= len(data)
        self.send(frame(DATA, flags, stream, data))

    def receive(self, wait=0.0):
        """The frames that have arrived, after at most `wait` seconds: kind, flags, stream. Raises
        ConnectionError when the server has closed."""
        self.socket.settimeout(wait)
        try:
            received = self.socket.recv(1 << 16)
        except (BlockingIOError, TimeoutError, ssl.SSLWantReadError):
            return []
        if not received:
            raise ConnectionError("weir has closed the connection")
        self.unread += received
        frames = []
        while len(self.unread) >= 9:
            end = 9 + int.from_bytes(self.unread[:3], "big")
            if len(self.unread) < end:
                break
            kind, flags = self.unread[3], self.unread[4]
            stream = int.from_bytes(self.unread[5:9], "big") & WINDOW_MAX
            self.answer(kind, flags, stream, bytes(self.unread[9:end]))
            frames.append((kind, flags, stream))
            del self.unread[:end]
        return frames

    def answer(self, kind, flags, stream, payload):
        """What the protocol requires for a frame."""
        if kind == SETTINGS and not flags & ACK:
            self.send(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.send(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE and stream == 0:
            self.window += int.from_bytes(payload, "big")

    def close(self):
        self.socket.close()
