"""The measurements. Each goes round by round through all contenders (A, B, A, B ...) and gives samples to `Samples`."""
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from comparing.contenders import TEXT, Contender, Failed, call
from comparing.machine import OneCpu, Tools


@dataclass
class Plan:
    """How much is measured; `quick` is for trying things out."""
    runs: int = 5
    threads: list[int] = field(default_factory=lambda: [1, 2])
    prompts: list[int] = field(default_factory=lambda: [128, 512])
    decode: int = 64
    depths: list[int] = field(default_factory=lambda: [2048, 4096])
    depth_prompt: int = 128
    depth_decode: int = 32
    clients: list[int] = field(default_factory=lambda: [8, 32])
    requests: int = 4                 # of each client
    request_tokens: int = 48
    perplexity_context: int = 512
    cpu_tokens: int = 64


QUICK = Plan(runs=3, prompts=[64], decode=16, depths=[512], depth_prompt=32, depth_decode=8, clients=[8], requests=2, request_tokens=12,
             perplexity_context=256, cpu_tokens=16)


@dataclass
class Model:
    """A model file: what is known of it, and prompts of so many tokens."""
    path: str
    name: str
    megabytes: float
    context: int
    prompt_operations: float          # of one token of a prompt: two for each weight of the layers
    prompts: dict[int, str] = field(default_factory=dict)


def look_at(path: str, tealight: str) -> Model:
    facts = json.loads(call([tealight, "inspect", path, "--json"]).stdout)
    known = {k: v["value"] for k, v in facts.get("metadata", {}).items()} | facts.get("config", {})
    context = next((int(v) for k, v in known.items() if k.endswith(".context_length") or k == "max_position_embeddings"), 1 << 20)
    weights = sum(t["shape"][0] * t["shape"][1] for t in facts["tensors"] if len(t["shape"]) == 2 and ("blk." in t["name"] or "layers." in t["name"]))
    return Model(path, Path(path.rstrip("/")).stem, sum(t.get("bytes", 0) for t in facts["tensors"]) / 1e6, context, 2.0 * weights)


def prompt_of(model: Model, tealight: str, tokens: int) -> str:
    """The beginning of the fixed text (repeated) that has about so many tokens: never more, at most a few less."""
    if tokens not in model.prompts:
        words = (TEXT.read_text() * (1 + tokens * 12 // TEXT.stat().st_size)).split()
        count = lambda n: len(json.loads(call([tealight, "tokenize", model.path, "--json", " ".join(words[:n])]).stdout)["ids"])
        low, high = 1, min(len(words), tokens * 2)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if count(middle) <= tokens else (low, middle - 1)
        model.prompts[tokens] = " ".join(words[:low])
    return model.prompts[tokens]


class Samples:
    """(figure, model, threads, who) -> values; units and directions by figure."""

    def __init__(self):
        self.values: dict[tuple, list[float]] = {}
        self.units: dict[str, tuple[str, str]] = {}     # figure -> (unit, "higher" or "lower" is better)
        self.skipped: list[str] = []
        self.texts: dict[tuple, set[str]] = {}

    def add(self, figure: str, unit: str, better: str, model: Model, threads: int, who: Contender, value: float) -> None:
        self.units[figure] = (unit, better)
        self.values.setdefault((figure, model.name, threads, who.name), []).append(value)

    def skip(self, why: str) -> None:
        if why not in self.skipped:
            self.skipped.append(why)
            print(f"compare: skipped: {why}", file=sys.stderr)


@dataclass
class Bench:
    """All that the measurements share."""
    plan: Plan
    contenders: list[Contender]
    models: list[Model]
    tools: Tools
    samples: Samples
    tealight: str
    gone: set[tuple] = field(default_factory=set)       # (who, what, model) that failed once

    def each(self, what: str, model: Model, threads: int, rounds: int | None = None, cold: bool = False):
        """Yields every contender `rounds` times, in turn; those that failed are left out from then on."""
        rounds = rounds or self.plan.runs
        for r in range(rounds):
            print(f"compare: {model.name}, {threads or 'default'} thread(s), {what}, round {r + 1} of {rounds}", file=sys.stderr)
            for who in self.contenders:
                if (cold or not who.cold_only) and (who.name, what, model.name) not in self.gone:
                    yield who

    def give_up(self, who: Contender, what: str, model: Model, why: object) -> None:
        self.gone.add((who.name, what, model.name))
        self.samples.skip(f"{what}, {model.name}, {who.name}: {why}")


def shot(b: Bench, who: Contender, argv: list[str], options: list[str], **kw) -> dict:
    out = json.loads(call([b.tools.path("ttfb"), "-w", *options, "--", *argv], who.env, **kw).stdout, strict=False)
    if out["rc"] != 0 or out["ttfb_ms"] < 0:
        raise Failed(f"exit {out['rc']}, no text" if out["ttfb_ms"] < 0 else f"exit {out['rc']}")
    return out


def first_token(b: Bench, model: Model, threads: int, tokens: int, cache: str) -> None:
    figure = f"first token, prompt {tokens}" + (", dropped" if cache == "dropped" else "")
    prompt = prompt_of(model, b.tealight, tokens)
    for who in b.each(figure, model, threads, cold=True):
        try:
            if not (argv := who.run(model.path, prompt, 8, threads)):
                continue
            options = [o for f in who.files(model.path) for o in ("-d", f)] if cache == "dropped" else []
            out = shot(b, who, argv, options)
        except Failed as e:
            b.give_up(who, figure, model, e)
            continue
        if cache == "dropped" and not out["dropped"]:
            b.give_up(who, figure, model, "the page cache could not be dropped")
            continue
        b.samples.add(figure, "ms", "lower", model, threads, who, out["ttfb_ms"])
        b.samples.texts.setdefault((figure, model.name, threads), set()).add(out["text"].strip())
        if cache == "warm":
            b.samples.add(f"peak RSS, prompt {tokens}", "MB", "lower", model, threads, who, out["rss_kb"] / 1024)
            if out["private_kb"] >= 0:
                b.samples.add(f"private dirty, prompt {tokens}", "MB", "lower", model, threads, who, out["private_kb"] / 1024)


def measure_cold(b: Bench, model: Model, threads: int) -> None:
    first_token(b, model, threads, 8, "warm")
    first_token(b, model, threads, 8, "dropped")


def measure_ttft(b: Bench, model: Model, threads: int) -> None:
    for tokens in b.plan.prompts:
        if tokens + 8 <= model.context:
            first_token(b, model, threads, tokens, "warm")
        else:
            b.samples.skip(f"first token, prompt {tokens}, {model.name}: its context is {model.context}")


def measure_load(b: Bench, model: Model, threads: int) -> None:
    for who in b.each("load", model, threads, cold=True):
        try:
            ms = who.load_ms(model.path, threads)
        except Failed as e:
            b.give_up(who, "load", model, e)
            continue
        if ms is not None:
            b.samples.add("load, as each says", "ms", "lower", model, threads, who, ms)


def speed_at(b: Bench, model: Model, threads: int, prompt: int, gen: int, depth: int) -> None:
    if depth + max(prompt, gen) > model.context:
        return b.samples.skip(f"depth {depth}, prompt {prompt}, {model.name}: its context is {model.context}")
    what = f"speed at depth {depth}, prompt {prompt}"
    at = f" at {depth}" if depth else ""
    for who in b.each(what, model, threads):
        try:
            out = who.bench(model.path, threads, prompt, gen, depth)
        except Failed as e:
            b.give_up(who, what, model, e)
            continue
        if out.get("prefill"):
            b.samples.add(f"prefill {prompt}{at}", "tok/s", "higher", model, threads, who, out["prefill"])
        if out.get("decode"):
            b.samples.add(f"decode {gen}{at}", "tok/s", "higher", model, threads, who, out["decode"])
        if out.get("weight_bytes"):
            b.samples.values[("weight bytes", model.name, 0, "")] = [out["weight_bytes"]]


def measure_speed(b: Bench, model: Model, threads: int) -> None:
    for i, prompt in enumerate(b.plan.prompts):
        speed_at(b, model, threads, prompt, b.plan.decode if i == 0 else 0, 0)


def measure_depth(b: Bench, model: Model, threads: int) -> None:
    for depth in b.plan.depths:
        speed_at(b, model, threads, b.plan.depth_prompt, b.plan.depth_decode, depth)


def measure_cpu(b: Bench, model: Model, threads: int) -> None:
    """Processor time of a run with more tokens less that of one with few, for each token more."""
    few, many = 8, 8 + b.plan.cpu_tokens
    if many + 8 > model.context:
        return b.samples.skip(f"cpu, {model.name}: its context is {model.context}")
    prompt = prompt_of(model, b.tealight, 8)
    for who in b.each("cpu", model, threads):
        try:
            if argv := who.run(model.path, prompt, few, threads):
                spent = shot(b, who, who.run(model.path, prompt, many, threads), [])["cpu_ms"] - shot(b, who, argv, [])["cpu_ms"]
                b.samples.add("CPU time a token", "ms", "lower", model, threads, who, max(spent, 0) / (many - few))
        except Failed as e:
            b.give_up(who, "cpu", model, e)


def measure_ppl(b: Bench, model: Model, threads: int) -> None:
    """Once a contender and model: threads do not change it."""
    if threads != b.plan.threads[-1]:
        return
    context = min(b.plan.perplexity_context, model.context)
    for who in b.each("ppl", model, threads, rounds=1):
        try:
            value = who.perplexity(model.path, threads, TEXT, context)
        except Failed as e:
            b.give_up(who, "ppl", model, e)
            continue
        if value is not None:
            for t in b.plan.threads:
                b.samples.add(f"perplexity, windows of {context}", "", "lower", model, t, who, value)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Running:
    """A server process on 127.0.0.1; ended at the end, whatever happens."""

    def __init__(self, argv: list[str], env: dict[str, str], port: int):
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(argv, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        end = time.monotonic() + 120
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5) as r:
                    if r.status == 200:
                        return self
            except OSError:
                time.sleep(0.05)
        self.__exit__()
        raise Failed(f"the server did not become healthy (exit {self.process.returncode})")

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()

    def complete(self, body: dict) -> int:
        """Tokens that came."""
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as r:
            return json.loads(r.read())["usage"]["completion_tokens"]


def load_of(server: Running, clients: int, requests: int, body) -> tuple[float, list[float]]:
    """(tokens a second of all, seconds of each request); body(i) is the i-th request."""
    tokens, seconds, failures, lock = [], [], [], threading.Lock()

    def client(number: int) -> None:
        try:
            for r in range(requests):
                begin = time.monotonic()
                n = server.complete(body(number * requests + r))
                with lock:
                    tokens.append(n)
                    seconds.append(time.monotonic() - begin)
        except (OSError, ValueError, KeyError) as e:
            failures.append(e)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(clients)]
    begin = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    passed = time.monotonic() - begin
    if failures:
        raise Failed(f"a request failed: {failures[0]}")
    return sum(tokens) / passed, seconds


def measure_server(b: Bench, model: Model, threads: int) -> None:
    """Clients that ask again at once: distinct short prompts, greedy answers of a fixed length. As many sequences at a time as
    clients, at most 32; a fresh server each time."""
    p = b.plan
    start = prompt_of(model, b.tealight, 24)
    context = min(256, model.context)
    for clients in p.clients:
        what = f"server, {clients} clients"
        for who in b.each(what, model, threads, rounds=min(p.runs, 3)):
            port = free_port()
            if not (argv := who.server(model.path, threads, port, min(clients, 32), context)):
                continue
            body = lambda i: {"prompt": f"{i}: {start}", "max_tokens": p.request_tokens, "temperature": 0, "ignore_eos": True, **who.extra_request}
            try:
                with Running(argv, who.env, port) as server:
                    server.complete(body(999))
                    speed, seconds = load_of(server, clients, p.requests, body)
            except (Failed, OSError, urllib.error.URLError) as e:
                b.give_up(who, what, model, e)
                continue
            b.samples.add(f"{what}, all tokens", "tok/s", "higher", model, threads, who, speed)
            b.samples.add(f"{what}, median answer", "ms", "lower", model, threads, who, statistics.median(seconds) * 1e3)


def measure_quota(b: Bench, model: Model, threads: int) -> None:
    """Everybody chooses the number of threads, under a quota of one CPU."""
    if threads != b.plan.threads[-1]:
        return
    prompt = prompt_of(model, b.tealight, 8)
    try:
        group = OneCpu()
    except OSError as e:
        return b.samples.skip(f"quota: {e}")
    with group:
        for who in b.each("quota of one CPU", model, 0):
            try:
                if argv := who.run(model.path, prompt, 32, None):
                    out = shot(b, who, argv, [], preexec_fn=group.join)
                    b.samples.add("quota of one CPU: first token", "ms", "lower", model, 0, who, out["ttfb_ms"])
                    b.samples.add("quota of one CPU: 32 tokens", "ms", "lower", model, 0, who, out["total_ms"])
            except Failed as e:
                b.give_up(who, "quota of one CPU", model, e)


MEASURES = {"cold": measure_cold, "ttft": measure_ttft, "load": measure_load, "speed": measure_speed, "depth": measure_depth, "cpu": measure_cpu,
            "ppl": measure_ppl, "server": measure_server, "quota": measure_quota}
