#!/usr/bin/env python3
"""A load on `tealight serve`: many clients at once, of which some hang up at random. Greedy prompts have known answers, so a lost
or mixed one shows; the memory must stay flat. usage: load_serve.py TEALIGHT [--seconds S] [--clients N] [--model MODEL] [--sanitized: memory says nothing]"""
import argparse
import json
import random
import socket
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from serve_lib import Server, eventually  # noqa: E402


def requests_of(n: int) -> list[tuple[str, dict]]:
    out = []
    for i in range(n):
        common = {"temperature": 0, "max_tokens": 4 + 5 * i % 29, "ignore_eos": True}
        if i % 2:
            out.append(("/v1/completions", {**common, "prompt": f"The {i} quick brown foxes" + " and" * (i % 7)}))
        else:
            out.append(("/v1/chat/completions", {**common, "messages": [{"role": "user", "content": f"Tell me about number {i}." * (1 + i % 3)}]}))
    return out


def answer_of(path: str, data: bytes, stream: bool) -> str:
    """The text of an answer; every event of a stream must have come, in one answer's name."""
    chat = "chat" in path
    if not stream:
        choice = json.loads(data)["choices"][0]
        return choice["message"]["content"] if chat else choice["text"]
    events = data.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""], events[-3:]
    parsed = [json.loads(e.removeprefix("data: ")) for e in events[:-2]]
    assert len({e["id"] for e in parsed}) == 1, "events of several answers"
    assert parsed[-1]["choices"][0]["finish_reason"] == "length"
    return "".join(e["choices"][0]["delta"].get("content", "") if chat else e["choices"][0]["text"] for e in parsed)


class Load:
    def __init__(self, server: Server, expected: list[str], requests: list):
        self.server, self.expected, self.requests = server, expected, requests
        self.lock = threading.Lock()
        self.done = self.hung_up = self.busy = 0
        self.failures: list[str] = []
        self.latencies: list[float] = []

    def client(self, seed: int, end: float) -> None:
        rng, connection = random.Random(seed), None
        while time.monotonic() < end and not self.failures:
            i = rng.randrange(len(self.requests))
            path, body = self.requests[i]
            stream = rng.random() < 0.5
            data = json.dumps({**body, "stream": stream})
            try:
                if rng.random() < 0.2:
                    self.hang_up(rng, path, data)
                    continue
                if connection is None or rng.random() < 0.1:
                    connection = self.server.connect()
                begin = time.monotonic()
                connection.request("POST", path, data)
                r = connection.getresponse()
                body_bytes = r.read()
                if r.status == 503:
                    with self.lock:
                        self.busy += 1
                    time.sleep(0.05)
                    continue
                assert r.status == 200, f"{r.status}: {body_bytes[:300]!r}"
                got = answer_of(path, body_bytes, stream)
                assert got == self.expected[i], f"answer {i}: {got!r}, expected {self.expected[i]!r}"
                with self.lock:
                    self.done += 1
                    self.latencies.append(time.monotonic() - begin)
            except Exception as e:  # noqa: BLE001: reported at the end
                with self.lock:
                    self.failures.append(f"{type(e).__name__}: {e}")

    def hang_up(self, rng: random.Random, path: str, data: str) -> None:
        raw = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n{data}".encode()
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as s:
            if rng.random() < 0.3:
                s.sendall(raw[:rng.randrange(len(raw))])        # in the middle of the request
            else:
                s.sendall(raw)
                if rng.random() < 0.5:
                    s.recv(rng.randrange(1, 2000))              # in the middle of the answer
                else:
                    time.sleep(rng.random() * 0.05)
        with self.lock:
            self.hung_up += 1


def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("binary")
    p.add_argument("--seconds", type=float, default=5)
    p.add_argument("--clients", type=int, default=32)
    p.add_argument("--model")
    p.add_argument("--sanitized", action="store_true")
    args = p.parse_args()
    requests = requests_of(16)
    with Server(args.binary, "--parallel", 8, "--access-log", "off", model=args.model) as s:
        expected = [answer_of(path, s.call("POST", path, body)[2], False) for path, body in requests]
        load = Load(s, expected, requests)
        end = time.monotonic() + args.seconds
        threads = [threading.Thread(target=load.client, args=(i, end)) for i in range(args.clients)]
        for t in threads:
            t.start()
        memory = []
        while time.monotonic() < end and not load.failures:
            time.sleep(min(0.5, args.seconds / 20))
            memory.append(s.memory_kb())
        for t in threads:
            t.join()
        eventually(lambda: s.metric("generations_running") == 0 and s.metric("generations_waiting") == 0)
        cancelled = s.metric('generations_total{end="cancelled"}')
        eventually(lambda: s.metric("connections") == 1)
    early, late = max(memory[:len(memory) // 2]), max(memory[len(memory) // 2:])
    times = sorted(load.latencies) or [0]
    print(f"{args.clients} clients, {args.seconds:g} s: {load.done} answers, {load.hung_up} hung up ({cancelled:.0f} cancelled), {load.busy} sent away, "
          f"{len(load.failures)} lost or mixed; median {times[len(times) // 2] * 1000:.0f} ms, 99 % {times[len(times) * 99 // 100] * 1000:.0f} ms; "
          f"memory {early} kB in the first half, {late} kB in the second")
    for f in load.failures[:5]:
        print(f)
    flat = args.sanitized or late <= early * 1.05 + 2048
    if not flat:
        print("memory grows")
    return int(bool(load.failures) or not flat or load.done == 0)


if __name__ == "__main__":
    sys.exit(main())
