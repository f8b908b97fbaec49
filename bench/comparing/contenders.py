"""Who is compared: command lines, and how their answers are read."""
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from comparing.machine import HERE

TIMEOUT = 1800
TEXT = HERE / "text.txt"


class Failed(Exception):
    """A measurement that did not give a figure; the text says why."""


def call(argv: list[str], env: dict[str, str] | None = None, **kw) -> subprocess.CompletedProcess:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=TIMEOUT,
                              env={**os.environ, **(env or {})}, **kw)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise Failed(f"{argv[0]}: {e}") from e
    if done.returncode != 0:
        raise Failed(f"{' '.join(argv[:3])}: exit {done.returncode}: {done.stderr.strip()[-300:]}")
    return done


class Contender:
    """One program in one way of use. `ours` is compared with the others; None from a method: it cannot do that."""
    ours = False
    cold_only = False

    def __init__(self, name: str, env: dict[str, str] | None = None):
        self.name, self.env = name, env or {}

    def files(self, model: str) -> list[str]:
        """What to drop from the page cache before a cold start."""
        return [model]

    def run(self, model: str, prompt: str, n: int, threads: int | None) -> list[str] | None:
        """Prints n greedy tokens that continue the prompt."""

    def bench(self, model: str, threads: int, prompt: int, gen: int, depth: int) -> dict[str, float]:
        """Tokens a second, once: {"prefill": , "decode": }, without what was not asked for."""
        return {}

    def load_ms(self, model: str, threads: int) -> float | None:
        """What the program itself calls loading."""

    def perplexity(self, model: str, threads: int, text: Path, context: int) -> float | None:
        """Of a text in windows of `context` tokens, the second half of each counted."""

    def server(self, model: str, threads: int, port: int, parallel: int, context: int) -> list[str] | None:
        """A server on 127.0.0.1 with so many sequences of so many tokens each."""

    extra_request: dict = {}


class Tealight(Contender):
    ours = True

    def __init__(self, name: str, binary: str, env: dict[str, str] | None = None):
        super().__init__(name, env)
        self.binary = binary

    def start(self, command: str, model: str) -> list[str]:
        return [self.binary, command, model]

    def run(self, model, prompt, n, threads):
        return [*self.start("run", model), "-p", prompt, "-n", str(n), "--temp", "0", "--ignore-eos", *(["-t", str(threads)] if threads else [])]

    def bench(self, model, threads, prompt, gen, depth):
        # Real text: what the search of the best logits saves depends on it. The peers compute the same whatever the tokens are.
        out = json.loads(call([*self.start("bench", model), "-t", str(threads), "-p", str(prompt), "-n", str(gen), "-d", str(depth), "-r", "1", "--json",
                               "--text", str(TEXT)], self.env).stdout)
        return {**({"prefill": out["pp_tps"]} if prompt else {}), **({"decode": out["tg_tps"], "weight_bytes": out["weight_bytes"]} if gen else {})}

    def load_ms(self, model, threads):
        return json.loads(call([*self.start("bench", model), "-t", str(threads), "-p", "1", "-n", "0", "-r", "1", "--json"], self.env).stdout)["load_ms"]

    def perplexity(self, model, threads, text, context):
        out = call([*self.start("logits", model), "-t", str(threads), "--json", "--perplexity", str(context), text.read_text()], self.env).stdout
        return json.loads(out)["perplexity"]

    def server(self, model, threads, port, parallel, context):
        return [*self.start("serve", model), "--host", "127.0.0.1", "--port", str(port), "-t", str(threads), "--parallel", str(parallel), "-c", str(context),
                "--access-log", "off"]


class Packed(Tealight):
    """The packed file itself is the program."""

    def __init__(self, name: str, binary: str, folder: str, env: dict[str, str] | None = None):
        super().__init__(name, binary, env)
        self.folder, self.packed = folder, {}

    def file(self, model: str) -> str:
        if model not in self.packed:
            out = os.path.join(self.folder, f"{len(self.packed)}-{Path(model).stem}.packed")
            call([self.binary, "pack", model, "-o", out])
            with open(out, "rb") as f:
                os.fsync(f.fileno())           # pages that wait to be written would count as dirty memory of who maps them
            self.packed[model] = out
        return self.packed[model]

    def files(self, model):
        return [self.file(model)]

    def start(self, command, model):
        return [self.file(model), command]


class Llama(Contender):
    """A folder of llama.cpp's programs; `lean`: its quickest start, without warm-up, repacking and a large context."""

    def __init__(self, name: str, folder: str, lean: bool = False):
        super().__init__(name)
        self.folder, self.lean, self.cold_only = folder, lean, lean

    def program(self, name: str) -> str | None:
        path = os.path.join(self.folder, "llama-" + name)
        return path if os.access(path, os.X_OK) else None

    def run(self, model, prompt, n, threads):
        if not (program := self.program("completion")):
            return None
        lean = ["--no-warmup", "--no-repack", "-fit", "off", "-c", "1024"] if self.lean else []
        return [program, "-m", model, "-p", prompt, "-n", str(n), "--temp", "0", *(["-t", str(threads)] if threads else []), "-no-cnv", "--no-display-prompt",
                "--ignore-eos", *lean]

    def bench(self, model, threads, prompt, gen, depth):
        if not (program := self.program("bench")):
            return {}
        out = json.loads(call([program, "-m", model, "-t", str(threads), "-p", str(prompt), "-n", str(gen), "-d", str(depth), "-r", "1", "-o", "json"]).stdout)
        return {"decode" if e["n_gen"] else "prefill": e["avg_ts"] for e in out}

    def load_ms(self, model, threads):
        if not (argv := self.run(model, "a", 1, threads)):
            return None
        found = re.search(r"load time\s*=\s*([\d.]+) ms", call([*argv, "--perf"]).stderr)
        return float(found[1]) if found else None

    def perplexity(self, model, threads, text, context):
        if not (program := self.program("perplexity")):
            return None
        done = call([program, "-m", model, "-t", str(threads), "-c", str(context), "-b", str(context), "-f", str(text)])
        found = re.search(r"Final estimate: PPL = ([\d.]+)", done.stdout + done.stderr)
        if not found:
            raise Failed("llama-perplexity printed no estimate")
        return float(found[1])

    def server(self, model, threads, port, parallel, context):
        if not (program := self.program("server")):
            return None
        return [program, "-m", model, "--host", "127.0.0.1", "--port", str(port), "-t", str(threads), "-np", str(parallel), "-c", str(parallel * context),
                "--no-webui", "--offline"]

    extra_request = {"cache_prompt": False}


class Candle(Contender):
    """The driver bench/candle (crates; built with the CPU's flags)."""

    def __init__(self, binary: str):
        super().__init__("candle")
        self.binary = binary

    def options(self, model: str, threads: int | None) -> list[str]:
        beside = Path(model).parent / "tokenizer.json"
        return ["-m", model, *(["-t", str(threads)] if threads else []), *(["--tokenizer", str(beside)] if beside.exists() else [])]

    def run(self, model, prompt, n, threads):
        return [self.binary, "run", *self.options(model, threads), "-p", prompt, "-n", str(n)]

    def bench(self, model, threads, prompt, gen, depth):
        if prompt and depth:
            return {}
        out = json.loads(call([self.binary, "bench", *self.options(model, threads), "-p", str(prompt), "-n", str(gen), "-d", str(depth), "-r", "1"]).stdout)
        return {**({"prefill": out["pp_tps"][0]} if prompt else {}), **({"decode": out["tg_tps"][0]} if gen else {})}

    def load_ms(self, model, threads):
        found = re.search(r" load ([\d.]+) ", call(self.run(model, "a", 1, threads)).stderr)
        return float(found[1]) if found else None


def find_tealight() -> str:
    root = Path(__file__).resolve().parent.parent.parent
    path = os.environ.get("TEALIGHT") or str(root / "build" / "tealight")
    if not os.access(path, os.X_OK):
        raise SystemExit(f"compare: {path} is no program; build it (tools/build) or name another one with TEALIGHT=")
    return path


def find_all(folder: str, isas: list[str], also: list[str]) -> tuple[list[Contender], list[str]]:
    """Everybody who is here, ours first, and a line for each peer who is not."""
    binary, missing = find_tealight(), []
    found: list[Contender] = [Tealight("tealight", binary), Packed("tealight packed", binary, folder)]
    for isa in isas:
        found.append(Tealight(f"tealight {isa}", binary, {"TEALIGHT_ISA": isa}))
    for word in also:
        name, _, path = word.partition("=")
        if not path or not os.access(path, os.X_OK):
            raise SystemExit(f"compare: --also {word}: expected NAME=PROGRAM")
        found.append(Tealight(f"tealight {name}", path))
    for variable, name in (("LLAMA_BIN", "llama.cpp"), ("LLAMA_AVX2_BIN", "llama.cpp avx2")):
        place = os.environ.get(variable) or (variable == "LLAMA_BIN" and os.path.dirname(shutil.which("llama-bench") or ""))
        if place and os.access(os.path.join(place, "llama-bench"), os.X_OK):
            found += [Llama(name, place), Llama(name + " lean", place, lean=True)]
            missing += [f"{name}: no llama-{p} in {place}" for p in ("completion", "perplexity", "server") if not found[-1].program(p)]
        else:
            missing.append(f"{name}: left out, {variable} names no folder with llama-bench")
    candle = os.environ.get("CANDLE_BIN")
    if candle and os.access(candle, os.X_OK):
        found.append(Candle(candle))
    else:
        missing.append("candle: left out, CANDLE_BIN names no program")
    return found, missing
