#!/usr/bin/env python3
"""The public headers and the examples, in TAP. usage: check_api.py COMPLETE TRANSLATE SCALE TEALIGHT (env CC, CXX)"""
import array
import fcntl
import http.client
import json
import mmap
import os
import shlex
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import tap

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "tests/data/models/llama_sharded"
COMPLETE, TRANSLATE, SCALE, TEALIGHT = sys.argv[1:5]
GREEDY = {"temperature": 0, "max_tokens": 12}
DEAR = ("iostream", "ostream", "istream", "sstream", "fstream", "regex", "filesystem", "future", "thread", "iomanip")


def call(*args, stdin: str = "", **how) -> subprocess.CompletedProcess:
    return subprocess.run(list(map(str, args)), input=stdin, capture_output=True, text=True, timeout=120, **how)


def good(done: subprocess.CompletedProcess) -> str:
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr}"
    return done.stdout


def stdio(request: dict, program: str = TEALIGHT) -> dict:
    command = [program, "stdio", MODEL] if program == TEALIGHT else [program, MODEL]
    return json.loads(good(call(*command, stdin=json.dumps(request) + "\n")))


def check_headers() -> None:
    """Each compiles alone and includes nothing dear; the C one is C99 and C++."""
    cc, cxx = shlex.split(os.environ["CC"]), shlex.split(os.environ["CXX"])
    with tempfile.TemporaryDirectory() as folder:
        strict = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-c", "-o", folder + "/one.o"]
        for header in sorted((ROOT / "include").rglob("*.h")):
            name = header.relative_to(ROOT / "include")
            source = Path(folder, "one.cpp")
            source.write_text(f"#include <{name}>\n")
            good(call(*cxx, "-std=c++20", *strict, "-I", ROOT / "include", source))
            included = good(call(*cxx, "-std=c++20", "-M", "-I", ROOT / "include", source)).split()
            dear = [f for f in included if Path(f).name in DEAR]
            assert not dear, dear
            if header.name == "tealight.h":
                c = Path(folder, "one.c")
                c.write_text(f"#include <{name}>\n")
                good(call(*cc, "-std=c99", *strict, "-I", ROOT / "include", c))


def check_c_interface() -> None:
    lines = good(call(COMPLETE, MODEL, "The quick")).splitlines()
    expected = stdio({"prompt": "The quick", **GREEDY})
    assert json.loads(lines[-2])["choices"] == expected["choices"], lines
    assert "\n".join(lines[:-2]).rstrip("\n") == expected["choices"][0]["text"].rstrip("\n"), lines
    assert lines[-1].startswith("no embedding: "), lines
    missing = call(COMPLETE, "no/such/file", "a")
    assert missing.returncode == 1 and "no/such/file" in missing.stderr, missing


def check_function() -> None:
    requests = [{"text": "cat", "max_tokens": 9}, {"max_tokens": 9, "id": 7}, {"text": 5}, {"text": "cat", "max_tokens": 9}]
    done = call(TRANSLATE, MODEL, stdin="\n".join([json.dumps(r) for r in requests] + ["{"]) + "\n")
    answers = [json.loads(line) for line in good(done).splitlines()]
    expected = stdio({"prompt": "English: cat\nFrench:", "temperature": 0, "max_tokens": 9, "stop": ["\n"]})
    assert answers[0] == answers[3] == {"french": expected["choices"][0]["text"]}, answers
    assert answers[1]["id"] == 7 and '"text": missing' in answers[1]["error"]["message"], answers
    assert "text: expected" in answers[2]["error"]["message"] and "error" in answers[4], answers
    assert call(TRANSLATE).returncode == 2 and "usage:" in good(call(TRANSLATE, "--help"))
    assert good(call(TRANSLATE, stdin=json.dumps(requests[0]), env={**os.environ, "TEALIGHT_MODEL": str(MODEL)})).count("french") == 1


class Memory:
    """A sealed memfd, mapped."""

    def __init__(self, size: int = 1 << 16, seal: bool = True):
        self.fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        if seal:
            fcntl.fcntl(self.fd, 1033, 2)  # F_ADD_SEALS, F_SEAL_SHRINK
        self.bytes = mmap.mmap(self.fd, size)


def inherited(memory: Memory, requests: list[dict], *command) -> list[dict]:
    """Sends requests to a process that has inherited the memory."""
    done = call(*command, stdin="".join(json.dumps(r) + "\n" for r in requests), pass_fds=[memory.fd])
    return [json.loads(line) for line in good(done).splitlines()]


class Server:
    """A process whose standard input and output is a UNIX socket."""

    def __init__(self, *command):
        self.ours, theirs = socket.socketpair()
        self.process = subprocess.Popen(list(map(str, command)), stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, text=True)
        theirs.close()
        self.lines = self.ours.makefile("r")

    def ask(self, request: dict, *fds: int) -> dict:
        line = (json.dumps(request) + "\n").encode()
        self.ours.sendmsg([line], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])
        return json.loads(self.lines.readline())

    def end(self) -> str:
        self.ours.shutdown(socket.SHUT_WR)
        self.ours.close()
        self.lines.close()
        err = self.process.communicate(timeout=60)[1]
        assert self.process.returncode == 0, err
        return err


def floats(memory: Memory, shm: dict) -> tuple:
    return struct.unpack_from(f"{shm['bytes'] // 4}f", memory.bytes, shm["offset"])


def check_shared_text() -> None:
    memory, text = Memory(), "The quick"
    memory.bytes[8:8 + len(text)] = text.encode()
    shm = {"fd": memory.fd, "prompt": {"offset": 8, "bytes": len(text)}}
    expected = stdio({"prompt": text, **GREEDY})
    a, b = inherited(memory, [{**GREEDY, "id": "x", "shm": shm}, {**GREEDY, "shm": {**shm, "output": {"offset": 4096, "bytes": 1000}}}],
                     TEALIGHT, "stdio", MODEL)
    assert a["choices"] == expected["choices"] and a["id"] == "x" and "shm" not in a, a
    written = b["shm"]
    assert b["choices"][0]["text"] == "" and written["offset"] == 4096 and written["dtype"] == "u8", b
    assert memory.bytes[4096:4096 + written["bytes"]].decode() == expected["choices"][0]["text"], b


def check_shared_logits() -> None:
    memory, ids = Memory(), [1, 20, 30]
    memory.bytes[0:12] = struct.pack("3i", *ids)
    shm = {"fd": memory.fd, "tokens": {"offset": 0, "dtype": "i32", "shape": [3]}, "output": {"offset": 1024, "bytes": 4096, "kind": "logits"}}
    answer, again = inherited(memory, [{"shm": shm}, {"shm": {**shm, "output": {"offset": 8192, "bytes": 4096, "kind": "logits"}}}],
                              TEALIGHT, "stdio", MODEL)
    assert answer["shm"] == {"offset": 1024, "bytes": 384 * 4, "dtype": "f32", "shape": [384]} and answer["object"] == "logits", answer
    values = floats(memory, answer["shm"])
    assert len(set(values)) > 300 and values == floats(memory, again["shm"])
    next_token = inherited(memory, [{**GREEDY, "max_tokens": 1, "logprobs": 1, "shm": {k: v for k, v in shm.items() if k != "output"}}],
                           TEALIGHT, "stdio", MODEL)[0]
    assert next_token["choices"][0]["finish_reason"], next_token


def check_shared_errors() -> None:
    memory, open_end = Memory(4096), Memory(4096, seal=False)
    part = {"offset": 0, "bytes": 4}
    fd = {"fd": memory.fd, "prompt": part}
    logits = {**fd, "output": {"offset": 4000, "bytes": 96, "kind": "logits"}}
    cases = [({"fd": open_end.fd, "prompt": part}, "F_SEAL_SHRINK"), ({"fd": 0, "prompt": part}, "no descriptor"),
             ({"fd": 999, "prompt": part}, "no memory that can be sealed"), ({"passed": 0, "prompt": part}, "0 descriptors came"),
             ({**fd, "prompt": {"offset": 4093, "bytes": 4}}, "do not lie within"), ({**fd, "prompt": {"offset": 2**63, "bytes": 2**63}}, "do not lie within"),
             ({**fd, "prompt": {"offset": -1, "bytes": 4}}, "offset"), ({**fd, "prompt": {"offset": 0}}, "bytes"), ({**fd, "prompt": 5}, "expected an object"),
             ({"fd": memory.fd, "tokens": {"offset": 2, "dtype": "i32", "shape": [2]}}, "not aligned"),
             ({"fd": memory.fd, "tokens": {"offset": 0, "dtype": "i32", "shape": [2**40, 2**40]}}, "larger than any memory"),
             ({"fd": memory.fd, "tokens": {"offset": 0, "dtype": "i32", "shape": [1] * 9}}, "up to 8"),
             ({"fd": memory.fd, "tokens": {"offset": 0, "dtype": "f32", "shape": [1]}}, "token ids are i32"),
             ({"fd": memory.fd, "tokens": {"offset": 0, "dtype": "q4", "shape": [1]}}, "none of"), (logits, "there is room for 96"),
             ({**fd, "output": {"offset": 0, "bytes": 9, "kind": "x"}}, "none of text"), (7, "expected an object")]
    fds = {"pass_fds": [memory.fd, open_end.fd]}
    lines = "".join(json.dumps({**GREEDY, "shm": shm}) + "\n" for shm, _ in cases) + json.dumps({"prompt": "a", **GREEDY}) + "\n"
    answers = [json.loads(line) for line in good(call(TEALIGHT, "stdio", MODEL, stdin=lines, **fds)).splitlines()]
    for (shm, why), answer in zip(cases, answers):
        assert why in answer.get("error", {}).get("message", ""), (shm, answer)
    assert len(answers) == len(cases) + 1 and answers[-1]["choices"], answers[-1]


def check_passed_memory() -> None:
    """Descriptors over the socket, in the sandbox, and none left open."""
    server = Server(TEALIGHT, "stdio", MODEL)
    memory, other = Memory(), Memory()
    memory.bytes[0:9] = other.bytes[0:9] = b"The quick"
    other.bytes[0:3] = b"Two"
    shm = {"prompt": {"offset": 0, "bytes": 9}, "output": {"offset": 512, "bytes": 1000}}
    for n in range(1100):  # more than descriptors are allowed
        if n > 3 and n % 100:
            assert "error" in server.ask({"shm": {"passed": 9}}, memory.fd, other.fd)
            continue
        answer = server.ask({**GREEDY, "shm": {**shm, "passed": n % 2}}, memory.fd, other.fd)
        place = other if n % 2 else memory
        expected = stdio({"prompt": place.bytes[0:9].decode(), **GREEDY})["choices"][0]["text"] if n < 2 else None
        if n < 2:
            assert place.bytes[512:512 + answer["shm"]["bytes"]].decode() == expected, answer
        assert "shm" in answer, answer
    assert "0 descriptors came" in server.ask({"shm": {**shm, "passed": 0}})["error"]["message"]
    # A long line in several messages, the descriptor with one of them; then one without.
    line = json.dumps({**GREEDY, "x": "y" * 200_000, "shm": {**shm, "passed": 0}}).encode() + b"\n"
    server.ours.sendall(line[:100_000])
    server.ours.sendmsg([line[100_000:]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [memory.fd]))])
    server.ours.sendall(b'{"shm":{"passed":0}}\n')
    answers = [json.loads(server.lines.readline()) for _ in range(2)]
    assert "shm" in answers[0] and "0 descriptors came" in answers[1]["error"]["message"], answers
    assert server.ask({"prompt": "a", **GREEDY})["choices"]
    assert "refused" not in server.end()


def check_tensors() -> None:
    """A function scales a tensor where it lies; the same from JSON; two processes see one memory."""
    server, memory, n = Server(SCALE, MODEL), Memory(1 << 20), 100_000
    values = array.array("f", (i * 0.5 for i in range(n)))
    memory.bytes[0:4 * n] = values.tobytes()
    shm = {"passed": 0, "tensors": {"x": {"offset": 0, "dtype": "f32", "shape": [100, 1000]}}, "output": {"offset": 1 << 19, "bytes": 1 << 19}}
    answer = server.ask({"by": 3, "shm": shm}, memory.fd)
    assert answer == {"shm": {"offset": 1 << 19, "bytes": 4 * n, "dtype": "f32", "shape": [100, 1000]}}, answer
    assert floats(memory, answer["shm"]) == tuple(3 * v for v in values)
    assert "there is room" in server.ask({"by": 3, "shm": {**shm, "output": {"offset": 0, "bytes": 8}}}, memory.fd)["error"]["message"]
    assert server.ask({"by": 3, "x": [1, 2], "id": 5}) == {"id": 5, "status": 400, "content_type": "text/plain; charset=utf-8",
                                                            "body": "x must be f32, and there must be an output"}
    assert "refused" not in server.end()


def check_function_over_http() -> None:
    process = subprocess.Popen([TRANSLATE, MODEL, "--port", "0"], stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "listening on port " in line:
            break
    port = int(line.rsplit(" ", 1)[1])
    try:
        def post(body: str) -> tuple[int, dict]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("POST", "/any/path", body)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        expected = stdio({"text": "cat", "max_tokens": 9}, TRANSLATE)
        assert post('{"text":"cat","max_tokens":9}') == (200, expected)
        status, answer = post('{"max_tokens":9}')
        assert status == 400 and '"text": missing' in answer["error"]["message"], answer
        status, answer = post(json.dumps({"text": "a", "shm": {"fd": 5}}))
        assert status == 400 and "pipes and UNIX sockets alone" in answer["error"]["message"], answer
        assert post('{"text":"cat","max_tokens":9}') == (200, expected)
    finally:
        process.terminate()
        err = process.communicate(timeout=60)[1]
    assert process.returncode == 0 and "sandbox: " in err and "refused" not in err, err


def check_function_on_lambda() -> None:
    with tempfile.TemporaryDirectory() as logs:
        on_lambda(logs)
        text = "".join(f.read_text(errors="replace") for f in Path(logs).rglob("*") if f.is_file())
    assert "sandbox: " in text and "refused system call" not in text, text[-2000:]


def on_lambda(logs: str) -> None:
    done = call(sys.executable, ROOT / "tests/fake_runtime_api.py", "run", "--logs", logs, "--body", '{"text":"cat","max_tokens":4}', "--only",
                "plain,keepalive,next_reset,init_error,invocation_id,snapstart,concurrency,sigterm_idle,host_name", "--init-fail-env", "TEALIGHT_MODEL=/nonexistent", "--", TRANSLATE, MODEL)
    assert done.returncode == 0, done.stdout[-2000:]


def check_function_over_cgi() -> None:
    body = '{"text":"cat","max_tokens":9}'
    variables = {"GATEWAY_INTERFACE": "CGI/1.1", "REQUEST_METHOD": "POST", "CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(body))}
    head, _, answer = good(call(TRANSLATE, MODEL, stdin=body, env={**os.environ, **variables})).partition("\n\n")
    assert "Status: 200" in head and json.loads(answer) == stdio(json.loads(body), TRANSLATE), (head, answer)


def main() -> int:
    checks = [check_headers, check_c_interface, check_function, check_function_over_http, check_function_on_lambda, check_function_over_cgi,
              check_shared_text, check_shared_logits, check_shared_errors, check_passed_memory, check_tensors]
    return tap.run(checks)


if __name__ == "__main__":
    sys.exit(main())
