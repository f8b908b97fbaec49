#!/usr/bin/env python3
"""bench/compare on generated models, without peers, in TAP. usage: check_compare.py TEALIGHT"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import tap

PROGRAM = str(Path(sys.argv[1]).resolve())
ROOT = Path(__file__).resolve().parent.parent
FOLDER = tempfile.TemporaryDirectory()
MODEL, RESULT = f"{FOLDER.name}/tiny.gguf", f"{FOLDER.name}/result.json"


def compare(*args) -> subprocess.CompletedProcess:
    env = {k: v for k, v in os.environ.items() if k not in ("LLAMA_BIN", "LLAMA_AVX2_BIN", "CANDLE_BIN")}
    return subprocess.run([sys.executable, ROOT / "bench/compare", *map(str, args)], capture_output=True, text=True, timeout=250,
                          env={**env, "TEALIGHT": PROGRAM, "TMPDIR": FOLDER.name})


def check_model() -> None:
    """The generated model is loadable, repeatable, and its numbers are finite."""
    for out in (MODEL, FOLDER.name + "/again.gguf"):
        subprocess.run([sys.executable, ROOT / "bench/make_model.py", "tiny", out], check=True)
    assert Path(MODEL).read_bytes() == Path(FOLDER.name, "again.gguf").read_bytes()
    text = (ROOT / "bench/text.txt").read_text()
    out = subprocess.run([PROGRAM, "logits", MODEL, "--perplexity", "64", "--json", "-t", "1", text[:1500]], capture_output=True, text=True, check=True).stdout
    figures = json.loads(out)
    assert 500 < figures["perplexity"] < 5000 and figures["counted"] == figures["tokens"] // 64 * 31, figures     # random: about the 1,000 tokens


def check_table() -> None:
    done = compare("--models", MODEL, "--quick", "--runs", "2", "--threads", "1", "--only", "cold,speed,ppl,server,cpu", "--json", RESULT)
    assert done.returncode == 0, done.stderr
    for wanted in ("### tiny", "| tealight | tealight packed |", "first token, prompt 8, ms", "decode 16, tok/s", "perplexity", "server, 8 clients",
                   "read_4k, GB/s", "candle: left out"):
        assert wanted in done.stdout, f"no {wanted!r} in {done.stdout}"
    assert ("BUSY" in done.stdout) != ("quiet" in done.stdout), done.stdout
    rows = json.loads(Path(RESULT).read_text())["rows"]
    assert all(r["median"] > 0 for r in rows if not r["figure"].startswith("CPU")), rows
    values = {r["who"]: r["median"] for r in rows if r["figure"].startswith("perplexity")}
    assert values["tealight"] == values["tealight packed"], values


def altered(factor: float) -> str:
    """The result as if every figure of it had been `factor` times as good."""
    result = json.loads(Path(RESULT).read_text())
    for r in result["rows"]:
        f = factor if r["better"] == "higher" else 1 / factor
        r["median"], r["values"] = r["median"] * f, [v * f for v in r["values"]]
    out = f"{FOLDER.name}/altered-{factor}.json"
    Path(out).write_text(json.dumps(result))
    return out


def check_against() -> None:
    args = ("--models", MODEL, "--quick", "--runs", "1", "--threads", "1", "--only", "speed")
    worse = compare(*args, "--against", altered(50))
    assert worse.returncode == 1 and "WORSE: decode 16" in worse.stdout, worse
    better = compare(*args, "--against", altered(0.02))
    assert better.returncode == 0 and "better: decode 16" in better.stdout, better
    other = json.loads(Path(RESULT).read_text())
    other["machine"]["cpu"] = "another"
    Path(FOLDER.name, "other.json").write_text(json.dumps(other))
    refused = compare(*args, "--against", FOLDER.name + "/other.json")
    assert refused.returncode == 1 and "another machine" in refused.stderr, refused


def check_usage() -> None:
    for args, err in ((["--models", "no/such"], "no/such is not there"), (["--models", MODEL, "--only", "nope"], "known are cold"),
                      (["--models", MODEL, "--threads", "x"], "expected numbers"), ([], "--models")):
        done = compare(*args)
        assert done.returncode == 2 and err in done.stderr, done


def main() -> int:
    if not shutil.which(os.environ.get("CC", "cc").split()[0]):
        print("1..1\nok 1 - compare # SKIP no C compiler")
        return 0
    checks = [check_model, check_table, check_against, check_usage]
    failed = tap.run(checks)
    FOLDER.cleanup()
    return failed


if __name__ == "__main__":
    sys.exit(main())
