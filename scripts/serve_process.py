"""A running `omnidraft serve` to ask, and the prompts of a task: for the scripts that measure and picture it."""

import http.client
import json
import pathlib
import re
import signal
import subprocess
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Server:
    """A server as a process of its own."""

    def __init__(self, binary, *arguments):
        command = [binary, "serve", "--port", "0", *map(str, arguments)]
        self.process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        shown = ["DIR" if before == "--state" else str(it) for before, it in zip(("", *arguments), arguments)]
        self.command = " ".join(["omnidraft", "serve", *shown])
        said = []
        for line in self.process.stderr:
            said.append(line)
            if "http://127.0.0.1:" in line and line.startswith("serving"):
                self.port = int(line.rsplit(":", 1)[1])
                break
        else:
            raise SystemExit("the server did not start:\n" + "".join(said))
        # What it says later must not fill the pipe.
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        self.built = self.about()

    def request(self, method, path, body=None, timeout=600):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        headers = {"content-type": "application/json"}
        connection.request(method, path, body and json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {text[:300]}")
        return text

    def ask(self, prompt, port=None, **options):
        body = {"messages": [{"role": "user", "content": prompt}], "temperature": 0, **options}
        return json.loads(self.request("POST", "/v1/chat/completions", body))

    def metrics(self):
        lines = self.request("GET", "/metrics").splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def about(self):
        """What it says of its program and its machine."""
        lines = self.request("GET", "/metrics").splitlines()
        line = next(line for line in lines if line.startswith("omnidraft_build_info{"))
        return dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', line))

    def memory(self):
        """Resident MiB."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()


def prompts(task, split="train"):
    path = pathlib.Path(task)
    path = path if path.is_dir() else ROOT / "datasets" / task
    rows = [json.loads(line) for line in (path / f"{split}.jsonl").read_text().split("\n") if line.strip()]
    return [row["prompt"] for row in rows]
