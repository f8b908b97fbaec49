#!/usr/bin/env python3
"""The system calls of a sandboxed run, held to the list of docs/sandbox.md, in TAP. usage: check_sandbox.py TEALIGHT"""
import http.client
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tap

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "tests/data/models/llama_sharded"
REQUEST = '{"prompt":"The quick","temperature":0,"max_tokens":20,"stream":true}\n{"prompt":"brown","seed":1,"max_tokens":5}\n{"x":\n'


def documented() -> set[str]:
    """Names in the tables of the page: the first column says in backquotes what is allowed."""
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs/sandbox.md").read_text(), re.M)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def after_filter(lines: list[str]) -> list[str]:
    start = next(n for n, line in enumerate(lines) if re.search(r"seccomp\(SECCOMP_SET_MODE_FILTER.*= 0|<... seccomp resumed>.*= 0", line))
    return [m[1] for line in lines[start + 1:] if (m := re.match(r"\d+ +(\w+)\(", line))]


def traced(*args: str) -> tuple[list[str], str]:
    """Names of the calls of all threads after the filter, and standard error."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        done = subprocess.run(["strace", "-f", "-qq", "-o", log, sys.argv[1], "stdio", MODEL, *args], input=REQUEST,
                              capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        assert answers[-2]["choices"][0]["finish_reason"] and "error" in answers[-1], answers
        lines = log.read_text().splitlines()
    return after_filter(lines), done.stderr


def check_calls() -> None:
    for threads in "1", "2":
        calls, err = traced("--sandbox", "require", "-t", threads)
        assert "sandbox: no_new_privs, seccomp (" in err and "refused" not in err, err
        assert not set(calls) - documented(), set(calls) - documented()
        opened = {"openat", "open", "socket", "execve", "clone", "clone3"} & set(calls)
        assert not opened, opened


def check_serve() -> None:
    """A server with a cache: answers, stores and reuses states, and ends, within the tables."""
    with tempfile.TemporaryDirectory() as folder:
        log, cache = Path(folder, "log"), Path(folder, "cache")
        process = subprocess.Popen(["strace", "-f", "-qq", "-o", log, sys.argv[1], "serve", MODEL, "--port", "0", "--cache", cache, "--sandbox", "require"],
                                   stderr=subprocess.PIPE, text=True)
        port = next(int(m[1]) for line in process.stderr if (m := re.search(r"listening on .*:(\d+)", line)))
        body = json.dumps({"prompt": "word " * 20, "max_tokens": 3, "temperature": 0})
        answers = []
        for _ in range(3):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("POST", "/v1/completions", body)
            answers.append(json.loads(connection.getresponse().read())["choices"][0]["text"])
        assert answers[0] == answers[1] == answers[2], answers
        end = time.monotonic() + 20
        while not (cache.is_dir() and any(cache.iterdir())) and time.monotonic() < end:
            time.sleep(0.05)
        server = log.read_text().split(None, 1)[0]
        subprocess.run(["kill", server], check=True)
        err = process.communicate(timeout=60)[1]
        calls = set(after_filter(log.read_text().splitlines()))
        assert process.returncode == 0 and "refused" not in err, err
        assert any(cache.iterdir()) and {"openat", "accept4"} <= calls, calls
        assert not calls - documented(), calls - documented()


def check_modes() -> None:
    def run(*args: str, **env: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.argv[1], "stdio", MODEL, *args], input="", capture_output=True, text=True, timeout=60, env=env)
    assert run("--sandbox=off").stderr == "tealight: sandbox: off\n"
    assert run(TEALIGHT_SANDBOX="off").stderr == "tealight: sandbox: off\n"
    assert "seccomp (" in run("--sandbox=on", TEALIGHT_SANDBOX="off").stderr
    assert "seccomp (" in run().stderr
    wrong = run(TEALIGHT_SANDBOX="no")
    assert wrong.returncode == 2 and '"no" is none of off, on, require' in wrong.stderr, wrong


def main() -> int:
    sanitized = "sanitizers" in subprocess.run([sys.argv[1], "stdio", MODEL, "--sandbox=require"], input="", capture_output=True, text=True).stderr

    def possible(check: Callable[[], None]) -> None:
        if sanitized:
            raise tap.Skip("sanitizers need more calls")
        if check is not check_modes and not shutil.which("strace"):
            raise tap.Skip("no strace here")
        check()

    checks = [check_calls, check_serve, check_modes]
    return tap.run([(c.__name__.removeprefix("check_"), lambda c=c: possible(c)) for c in checks])


if __name__ == "__main__":
    sys.exit(main())
