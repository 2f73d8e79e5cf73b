#!/usr/bin/env python3
"""A picture of the server's page after a chat, taken with a headless Chromium.

  python3 scripts/serve_picture.py --target runs/models/qwen --drafter runs/models/smollm2 --warm 3 --tokens 60 -- \
      --weights int8 --learn-blocks 2

Starts a server, lets it learn from `--warm` prompts of a task, then asks further ones on the page
as a reader would. What stands after `--` is for the server. Nothing but Python's own library and
Chromium is needed.
"""

import argparse
import base64
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request

from serve_process import ROOT, Server, prompts


class Browser:
    """A page in a headless Chromium, driven by its debugging protocol."""

    def __init__(self, url, width, height):
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if program is None:
            raise SystemExit("there is no chromium on the path")
        self.profile = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--hide-scrollbars",
             f"--user-data-dir={self.profile.name}", f"--window-size={width},{height}", url],
            stderr=subprocess.DEVNULL)
        try:
            self.connect(url)
        except BaseException:
            self.close()
            raise

    def connect(self, url):
        noted = pathlib.Path(self.profile.name) / "DevToolsActivePort"
        until = time.time() + 60
        pages = []
        while not pages:
            if time.time() > until:
                raise SystemExit("chromium opened no page within a minute")
            time.sleep(0.1)
            if noted.exists() and noted.read_text().strip():
                port = int(noted.read_text().split()[0])
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
                    pages = [page for page in json.load(answer) if page["url"] == url]
        path = pages[0]["webSocketDebuggerUrl"].split(f":{port}", 1)[1]
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.sendall((f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                             "Sec-WebSocket-Key: b21uaWRyYWZ0IHBpY3R1cg==\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.read(1)
        self.calls = 0

    def read(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise SystemExit("chromium has gone")
            data += more
        return data

    def call(self, method, **params):
        self.calls += 1
        text = json.dumps({"id": self.calls, "method": method, "params": params}).encode()
        size = bytes([0x80 | len(text)]) if len(text) < 126 else bytes([0x80 | 126]) + struct.pack(">H", len(text))
        # A mask of zeros leaves the text as it is.
        self.socket.sendall(b"\x81" + size + bytes(4) + text)
        while True:
            length = self.read(2)[1] & 0x7F
            if length >= 126:
                length = int.from_bytes(self.read(2 if length == 126 else 8), "big")
            message = json.loads(self.read(length))
            if message.get("id") == self.calls:
                if "result" not in message:
                    raise SystemExit(f"{method}: {message['error']}")
                return message["result"]

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise SystemExit(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, condition):
        until = time.time() + 300
        while self.value(condition) is not True:
            if time.time() > until:
                raise SystemExit(f"five minutes passed, and still not: {condition}")
            time.sleep(0.1)

    def close(self):
        self.process.terminate()
        self.process.wait()


def picture(server, questions, out, size=(1200, 1330), tokens=200):
    """Asks on the page of a running server, and keeps a picture of it."""
    browser = Browser(f"http://127.0.0.1:{server.port}/", *size)
    try:
        browser.wait("document.querySelector('#model option') !== null")
        browser.value(f"at('most').value = {tokens}; true")
        for i, prompt in enumerate(questions):
            browser.value(f"at('prompt').value = {json.dumps(prompt)}; at('form').requestSubmit(); true")
            browser.wait(f"document.body.dataset.answers === '{i + 1}'")
        data = browser.call("Page.captureScreenshot", format="png")["data"]
    finally:
        browser.close()
    pathlib.Path(out).write_bytes(base64.b64decode(data))
    print(f"{out}: {os.path.getsize(out)} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--omnidraft", default=str(ROOT / "target/release/omnidraft"))
    parser.add_argument("--target", default="models/L")
    parser.add_argument("--drafter", default="models/D")
    parser.add_argument("--task", default="mini-math")
    parser.add_argument("--warm", type=int, default=100, help="prompts that it learns from first")
    parser.add_argument("--questions", type=int, default=2, help="prompts that are asked on the page")
    parser.add_argument("--tokens", type=int, default=200, help="most tokens of an answer")
    parser.add_argument("--size", type=int, nargs=2, default=[1200, 1330], help="of the window, in pixels")
    parser.add_argument("--out", default=str(ROOT / "docs/serve-page.png"))
    parser.add_argument("more", nargs="*", help="options of the server")
    args = parser.parse_args()
    every = prompts(args.task)
    with Server(args.omnidraft, "--target", args.target, "--drafter", args.drafter, *args.more) as server:
        for prompt in every[:args.warm]:
            server.ask(prompt, max_tokens=min(48, args.tokens))
        picture(server, every[args.warm:args.warm + args.questions], args.out, args.size, args.tokens)


if __name__ == "__main__":
    main()
