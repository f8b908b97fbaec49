#!/usr/bin/env python3
"""The AWS Lambda runtime against a scripted Runtime API and, where it is installed, AWS's own emulator; in TAP.

usage: check_lambda.py [--sanitized] TEALIGHT [SCENARIO...]      the scenarios of fake_runtime_api.py; default: all
--sanitized: a build whose memory and times say nothing; what measures them or is slow is skipped

The emulator is looked for in TEALIGHT_RIE and as aws-lambda-rie in PATH; without it those checks are skipped. To get it:
CGO_ENABLED=0 go install github.com/aws/aws-lambda-runtime-interface-emulator/cmd/aws-lambda-rie@latest
TEALIGHT_RIE_CONCURRENCY=1 also checks its mode for managed instances, which needs root and writes /var/task/bootstrap.
"""
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import fake_runtime_api as fake
import tap

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "tests/data/gguf/llama.Q4_0.gguf"
LONG = {"prompt": "hi", "max_tokens": 4000, "ignore_eos": True, "x_delay_ms": 40}
STREAM = {"prompt": "hi", "max_tokens": 12, "ignore_eos": True, "x_delay_ms": 15, "stream": True}
FAIL = {"prompt": "hi", "max_tokens": 9, "ignore_eos": True, "x_fail_after": 3, "stream": True}


NOT_SANITIZED = {"keepalive", "big_event", "next_refused", "idle", "emulator_answers"}


def scenario_options(tealight: str):
    return fake.fix(fake.options().parse_args([
        "run", "--require-all", "--timeout", "10", "--idle", "1", "--env", f"TEALIGHT_MODEL={MODEL}", "--env", "TEALIGHT_TEST_FAULTS=1",
        "--body", json.dumps({"prompt": "hi", "max_tokens": 4}), "--long-body", json.dumps(LONG), "--stream-body", json.dumps(STREAM),
        "--long-stream-body", json.dumps({**LONG, "stream": True}), "--stream-fail-body", json.dumps(FAIL),
        "--stream-env", "TEALIGHT_INVOKE_MODE=response_stream", "--init-fail-env", "TEALIGHT_MODEL=/nonexistent", "--", tealight]))


def run_scenario(options, name: str) -> str:
    options.only = name
    result, report = fake.run_all(options, quiet=True)
    assert result["passed"] == 1, "; ".join(report[0]["why"])
    return ", ".join(f"{k} {v}" for k, v in report[0]["info"].items())


def packed(tealight: str) -> str:
    """A packed model as the bootstrap: nothing but the Runtime API is given to it."""
    with tempfile.TemporaryDirectory() as folder:
        bootstrap = folder + "/bootstrap"
        subprocess.run([tealight, "pack", MODEL, "-o", bootstrap], check=True, capture_output=True, timeout=60)
        options = scenario_options(bootstrap)
        options.env = []
        return run_scenario(options, "plain") + run_scenario(options, "http_events")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Emulator:
    """The emulator with our binary as the bootstrap; `call` invokes it."""

    def __init__(self, *command: str, timeout: int = 30, **env: str):
        rie = os.environ.get("TEALIGHT_RIE") or shutil.which("aws-lambda-rie")
        if not rie:
            raise tap.Skip("no aws-lambda-rie")
        self.port = free_port()
        self.log = tempfile.TemporaryFile()
        env = {**os.environ, "TEALIGHT_MODEL": str(MODEL), "TEALIGHT_TEST_FAULTS": "1", "AWS_LAMBDA_FUNCTION_TIMEOUT": str(timeout), **env}
        self.process = subprocess.Popen(
            [rie, "--runtime-interface-emulator-address", f"127.0.0.1:{self.port}", "--runtime-api-address", f"127.0.0.1:{free_port()}",
             *command], env=env, stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True)

    def __enter__(self):
        for _ in range(500):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                time.sleep(0.02)
        raise AssertionError("the emulator does not listen")

    def __exit__(self, *_):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()

    def call(self, event) -> tuple[int, bytes, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", "/2015-03-31/functions/function/invocations",
                           event if isinstance(event, bytes) else json.dumps(event).encode(), {"Content-Type": "application/json"})
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, body, response.headers



def emulator_answers(tealight: str) -> str:
    with Emulator(tealight) as e:
        status, body, _ = e.call({"prompt": "hi", "max_tokens": 4})
        assert status == 200 and json.loads(body)["usage"]["completion_tokens"] == 4, body
        event = fake.http_event("function_url", '{"prompt":"hi","max_tokens":2}', b64=True)
        answer = json.loads(e.call(event)[1])
        assert answer["statusCode"] == 200 and json.loads(answer["body"])["usage"]["completion_tokens"] == 2, answer
        begin = time.perf_counter()
        for i in range(500):
            status, body, _ = e.call({"ping": True})
            assert status == 200 and json.loads(body) == {"status": "warm"}, (i, body)
        return f"{(time.perf_counter() - begin) / 500 * 1e6:.0f} us a round"


def emulator_errors(tealight: str) -> str:
    with Emulator(tealight) as e:
        for event, kind in [(b"{nope", "Runtime.InvalidEvent"), ({"prompt": 7}, "Runtime.BadRequest")]:
            error = json.loads(e.call(event)[1])
            assert error["errorType"] == kind and error["errorMessage"], error
        assert json.loads(e.call({"prompt": "hi", "max_tokens": 1})[1])["usage"]["completion_tokens"] == 1
    with Emulator(tealight, TEALIGHT_MODEL="/nonexistent") as e:
        status, body, _ = e.call({"prompt": "hi"})
        assert status == 502 and json.loads(body)["errorType"] == "Runtime.ModelFile", (status, body)
    return ""


def emulator_deadline(tealight: str) -> str:
    with Emulator(tealight, timeout=2) as e:
        begin = time.perf_counter()
        answer = json.loads(e.call(LONG)[1])
        assert answer["choices"][0]["finish_reason"] == "length", answer
        taken = time.perf_counter() - begin
        assert taken < 2, taken
        assert json.loads(e.call({"ping": True})[1]) == {"status": "warm"}
        return f"answered after {taken:.2f} s of 2"


def emulator_concurrency(tealight: str) -> str:
    launcher = Path("/var/task/bootstrap")
    if os.environ.get("TEALIGHT_RIE_CONCURRENCY") != "1":
        raise tap.Skip("TEALIGHT_RIE_CONCURRENCY is not 1")
    assert not launcher.exists(), f"{launcher} exists"
    launcher.parent.mkdir(exist_ok=True)
    launcher.write_text(f"#!/bin/sh\nexec '{os.path.abspath(tealight)}'\n")
    launcher.chmod(0o755)
    try:
        with Emulator(str(launcher), AWS_LAMBDA_MAX_CONCURRENCY="3", TEALIGHT_INVOKE_MODE="response_stream") as e:
            for attempt in range(200):
                status, body, _ = e.call({"prompt": "hi", "max_tokens": 4})
                if status == 200:
                    break
                time.sleep(0.05)        # "Runtime.Unavailable" until the function polls
            assert json.loads(body)["usage"]["completion_tokens"] == 4, body
            _, body, headers = e.call(STREAM)
            assert body.endswith(b"data: [DONE]\n\n") and headers["Lambda-Runtime-Function-Response-Mode"] == "streaming", (headers, body)
    finally:
        launcher.unlink()
    return ""


def main() -> int:
    args = sys.argv[1:]
    sanitized = args[0] == "--sanitized"
    tealight, names = os.path.abspath(args[sanitized]), args[sanitized + 1:]
    options = scenario_options(tealight)
    checks = [(name, lambda name=name: run_scenario(options, name)) for name in names or fake.SCEN]
    if not names:
        more = (packed, emulator_answers, emulator_errors, emulator_deadline, emulator_concurrency)
        checks += [(f.__name__, lambda f=f: f(tealight)) for f in more]

    def timed(name: str, check: Callable[[], str]) -> str:
        if sanitized and name in NOT_SANITIZED:
            raise tap.Skip("under sanitizers")
        begin = time.monotonic()
        info = check()
        return f"{time.monotonic() - begin:.1f} s {info}".rstrip()

    return tap.run([(name, lambda name=name, check=check: timed(name, check)) for name, check in checks])


if __name__ == "__main__":
    sys.exit(main())
