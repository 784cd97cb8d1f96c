"""Upload program for `fednet live`, in plain Python: each client sends bytes to the server, which counts them.

fednet live SCENARIO -- python examples/live_upload.py {role} {server} 2000000
"""

import os
import sys
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 8000


class Counter(BaseHTTPRequestHandler):
    """Handler that reads the posted data and answers with their length."""

    def do_POST(self) -> None:
        """Answer a POST."""
        left = length = int(self.headers["Content-Length"])
        while left:
            left -= len(self.rfile.read(min(left, 65536)))
        answer = str(length).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


role, server, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
if role == "server":
    ThreadingHTTPServer(("", PORT), Counter).serve_forever()
else:
    answer = urllib.request.urlopen(f"http://{server}:{PORT}", os.urandom(size)).read()
    print("the server has received", answer.decode(), "bytes")
