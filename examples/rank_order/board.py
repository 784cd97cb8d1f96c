"""Rounds of federated learning, reduced to bytes and waiting times, for boards or for processes of `fednet live`.

    python board.py server WORK                    server, which prints the total time of all rounds in s
    python board.py client SERVER DEVICE WORK      board

WORK is a JSON file: rounds, cohort, devices, down_byte, up_byte, compute_s. In each round the server sends `down_byte`
bytes to each board of its cohort, which waits for `compute_s` (replace this by your training) and sends `up_byte` bytes
back.
"""

import json
import socket
import struct
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PORT = 8000
HEAD = struct.Struct("!Qd")


def receive(link: socket.socket, size: int) -> bytes:
    """Receive exactly `size` bytes."""
    parts = bytearray()
    while len(parts) < size:
        part = link.recv(min(65536, size - len(parts)))
        if not part:
            raise ConnectionError("the other end has closed")
        parts += part
    return bytes(parts)


def serve(work: dict) -> None:
    """Run all rounds and print their total time."""
    listener = socket.create_server(("", PORT))
    links: dict[int, socket.socket] = {}
    while len(links) < work["devices"]:
        link, _ = listener.accept()
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        links[struct.unpack("!Q", receive(link, 8))[0]] = link

    def exchange(device: int) -> None:
        links[device].sendall(HEAD.pack(work["down_byte"], work["compute_s"]) + bytes(work["down_byte"]))
        receive(links[device], struct.unpack("!Q", receive(links[device], 8))[0])

    began = time.monotonic()
    with ThreadPoolExecutor(work["devices"]) as pool:
        for t in range(work["rounds"]):
            cohort = [(t * work["cohort"] + k) % work["devices"] for k in range(work["cohort"])]
            list(pool.map(exchange, cohort))
    print(json.dumps({"seconds": time.monotonic() - began}), flush=True)
    for link in links.values():
        link.close()


def join(server: str, device: int, up_byte: int) -> None:
    """Answer the server until it closes."""
    link = socket.create_connection((server, PORT))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.sendall(struct.pack("!Q", device))
    try:
        while True:
            size, compute_s = HEAD.unpack(receive(link, HEAD.size))
            receive(link, size)
            time.sleep(compute_s)
            link.sendall(struct.pack("!Q", up_byte) + bytes(up_byte))
    except ConnectionError:
        return


if __name__ == "__main__":
    role, where = sys.argv[1:3]
    if role == "server":
        serve(json.loads(Path(where).read_text(encoding="utf-8")))
    else:
        join(where, int(sys.argv[3]), json.loads(Path(sys.argv[4]).read_text(encoding="utf-8"))["up_byte"])
