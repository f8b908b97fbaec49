"""Starting `tealight serve` on a tiny model and talking to it, for the checks of the server."""
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "tests/data/models/llama_sharded"
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"


def model_with_template(folder: str) -> Path:
    copy = Path(folder, "tiny")
    shutil.copytree(MODEL, copy)
    config = json.loads((copy / "tokenizer_config.json").read_text())
    config["chat_template"] = TEMPLATE
    (copy / "tokenizer_config.json").write_text(json.dumps(config))
    return copy


class Server:
    """A running server: `with Server(BINARY, "--parallel", 2) as s: s.post(...)`."""

    def __init__(self, binary: str, *args, model=None, env=None, ready=True, port=("--port", "0"), **popen):
        self.folder = tempfile.TemporaryDirectory()
        self.model = model or model_with_template(self.folder.name)
        self.log = open(self.folder.name + "/log", "w+")
        self.port = None
        clean = {k: v for k, v in os.environ.items() if k not in ("PORT", "LISTEN_FDS", "TEALIGHT_API_KEY")}
        self.begin = time.monotonic()
        self.process = subprocess.Popen([binary, "serve", str(self.model), "-t", "1", *port, *map(str, args)], stderr=self.log,
                                        stdin=subprocess.DEVNULL, env={**clean, **(env or {})}, **popen)
        if ready:
            self.wait_for(r"ready: ")
            self.port = int(m[1]) if (m := re.search(r"listening on http://[^ \"]*:(\d+)", self.text())) else None

    def text(self) -> str:
        return Path(self.log.name).read_text(errors="replace")

    def wait_for(self, pattern: str, seconds: float = 20) -> re.Match:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if m := re.search(pattern, self.text(), re.M):
                return m
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.text()}"
            time.sleep(0.005)
        raise AssertionError(f"no {pattern!r} in {self.text()!r}")

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def call(self, method: str, path: str, body=None, headers=None) -> tuple[int, dict, bytes]:
        c = self.connect()
        try:
            c.request(method, path, json.dumps(body) if isinstance(body, (dict, list)) else body, headers or {})
            r = c.getresponse()
            return r.status, {k.lower(): v for k, v in r.getheaders()}, r.read()
        finally:
            c.close()

    def get(self, path: str, **headers) -> tuple[int, dict, bytes]:
        return self.call("GET", path, headers=headers)

    def post(self, path: str, body, expect: int = 200, **headers):
        status, _, data = self.call("POST", path, body, headers)
        assert status == expect, f"{path}: {status}, expected {expect}: {data[:500]!r}"
        return json.loads(data)

    def stream(self, path: str, body: dict) -> list[dict]:
        """The events of a stream, which must end with the end mark; every chunk of the transfer is whole UTF-8."""
        status, headers, data = self.call("POST", path, {**body, "stream": True})
        assert status == 200 and headers["content-type"] == "text/event-stream", (status, data)
        events = data.decode("utf-8").split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""], events[-3:]
        return [json.loads(e.removeprefix("data: ")) for e in events[:-2]]

    def metric(self, name: str) -> float:
        text = self.get("/metrics")[2].decode()
        return float(re.search(rf"^tealight_{re.escape(name)} (\S+)$", text, re.M)[1])

    def memory_kb(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1])

    def raw(self, data: bytes = b"") -> socket.socket:
        s = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        s.sendall(data)
        return s

    def stop(self, expect: int = 0) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait(20)
        assert code == expect, f"exit {code}, expected {expect}: {self.text()[-2000:]}"

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.stop()
        elif self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()
        self.folder.cleanup()


def eventually(condition, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not come about"
        time.sleep(0.02)
