#!/usr/bin/env python3
"""Checks of `tealight serve` on a tiny model, in TAP. usage: check_serve.py TEALIGHT"""
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import tap  # noqa: E402
from serve_lib import MODEL, Server, eventually  # noqa: E402

TEALIGHT = sys.argv[1]
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO = {"messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "max_tokens": 12}
QUICK = {"prompt": "The quick", "temperature": 0, "max_tokens": 12}
LONG = {"prompt": "The quick", "ignore_eos": True, "max_tokens": 100000}


def check_health_at_once() -> None:
    """/health within 10 ms of exec, before the model is there (best of five: the machine may be busy)."""
    best = 1.0
    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder:
            path = folder + "/s"
            begin = time.monotonic()
            p = subprocess.Popen([TEALIGHT, "serve", str(MODEL), "--unix", path], stderr=subprocess.DEVNULL)
            while True:
                s = socket.socket(socket.AF_UNIX)
                try:
                    s.connect(path)
                    break
                except OSError:
                    assert time.monotonic() < begin + 5
            s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert s.recv(100).startswith(b"HTTP/1.1 200 ")
            best = min(best, time.monotonic() - begin)
            p.terminate()
            assert p.wait(10) == 0
    limit = 10 if os.environ.get("TEALIGHT_STRICT_TIMES") else 5000 if "--sanitized" in sys.argv else 200
    assert best * 1000 <= limit, f"{best * 1000:.1f} ms, more than {limit}"
    print(f"# /health {best * 1000:.1f} ms after the start of the process")


def check_small_routes() -> None:
    with Server(TEALIGHT) as s:
        assert s.get("/ready")[0] == 200 and s.get("/")[0] == 200
        models = json.loads(s.get("/v1/models")[2])
        assert models["object"] == "list" and len(models["data"]) == 1, models
        name = models["data"][0]["id"]
        for path in (f"/v1/models/{name}", f"/models/{name}", "/v1/models/" + urllib.parse.quote(str(s.model), safe="")):
            assert json.loads(s.get(path)[2])["id"] == name, path
        status, headers, body = s.call("HEAD", "/v1/models")
        assert status == 200 and body == b"" and int(headers["content-length"]) > 10
        for method, path, status, allow in [("GET", CHAT, 405, "POST"), ("POST", "/v1/models", 405, "GET"), ("DELETE", "/", 405, "GET"),
                                            ("PUT", "/v1/embeddings", 405, "POST"), ("GET", "/nope", 404, None), ("POST", "/v2", 404, None)]:
            got, headers, body = s.call(method, path, "{}" if method == "POST" else None)
            assert got == status and json.loads(body)["error"]["message"], (method, path, got)
            assert allow is None or allow in headers["allow"], headers
        assert s.call("OPTIONS", CHAT)[0] == 204
        error = json.loads(s.get("/v1/models/nope")[2])["error"]
        assert error["code"] == "model_not_found", error
        text = s.get("/metrics")[2].decode()
        for line in text.splitlines():
            assert line.startswith("# ") or float(line.split(" ")[1]) >= 0, line


def check_chat() -> None:
    with Server(TEALIGHT, "-c", 1000) as s:
        begin = int(time.time())
        one = s.post(CHAT, HELLO)
        assert one["id"].startswith("chatcmpl-") and one["object"] == "chat.completion" and begin <= one["created"] <= time.time(), one
        choice = one["choices"][0]
        assert len(one["choices"]) == 1 and choice["index"] == 0 and choice["message"]["role"] == "assistant"
        assert choice["finish_reason"] == ("length" if one["usage"]["completion_tokens"] == 12 else "stop")
        text, usage = choice["message"]["content"], one["usage"]
        assert text and usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        events = s.stream("/chat/completions", {**HELLO, "stream_options": {"include_usage": True}})
        assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert {(e["id"], e["object"], e["created"], e["model"]) for e in events} == {
            (events[0]["id"], "chat.completion.chunk", events[0]["created"], one["model"])} and events[0]["id"] != one["id"]
        assert "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-1]) == text
        assert [e["choices"][0]["finish_reason"] for e in events[:-2]] == [None] * (len(events) - 2)
        assert events[-2]["choices"][0]["delta"] == {} and events[-2]["choices"][0]["finish_reason"] == choice["finish_reason"]
        assert events[-1]["choices"] == [] and all(e["usage"] is None for e in events[:-1])
        again = events[-1]["usage"]
        assert again["prompt_tokens"] == usage["prompt_tokens"] and again["completion_tokens"] == usage["completion_tokens"]
        # What was evaluated before is used again.
        assert again["prompt_tokens_details"]["cached_tokens"] > 0, again
        talk = [{"role": "user", "content": "Hello again and again " * 10}]
        for turn in range(3):            # a conversation goes on where it was
            r = s.post(CHAT, {**HELLO, "messages": talk})
            assert turn == 0 or r["usage"]["prompt_tokens_details"]["cached_tokens"] > 64, r["usage"]
            talk += [{"role": "assistant", "content": r["choices"][0]["message"]["content"]}, {"role": "user", "content": "More"}]
        plain = s.stream(CHAT, HELLO)
        assert all(e["choices"] and "usage" not in e for e in plain)
        best = s.post(CHAT, {**HELLO, "logprobs": True, "top_logprobs": 2})["choices"][0]["logprobs"]["content"]
        assert len(best) == usage["completion_tokens"] and len(best[0]["top_logprobs"]) == 2 and bytes(best[0]["bytes"]), best[0]
        whole = s.stream(CHAT, {**HELLO, "logprobs": True})[-1]["choices"][0]["logprobs"]["content"]
        assert [t["token"] for t in whole] == [t["token"] for t in best]


def check_completions() -> None:
    with Server(TEALIGHT) as s:
        one = s.post(TEXT, QUICK)
        assert one["id"].startswith("cmpl-") and one["object"] == "text_completion"
        text = one["choices"][0]["text"]
        run = subprocess.run([TEALIGHT, "run", str(s.model), "The quick", "--temp", "0", "-n", "12", "-t", "1", "--json"], capture_output=True, text=True)
        assert json.loads(run.stdout)["choices"][0]["text"] == text
        ids = subprocess.run([TEALIGHT, "tokenize", str(s.model), "The quick", "--json"], capture_output=True, text=True).stdout
        assert s.post(TEXT, {**QUICK, "prompt": ["The quick"]})["choices"][0]["text"] == text
        if ids.startswith("{"):
            tokens = json.loads(ids)["ids"]
            for prompt in (tokens, [tokens]):
                assert s.post(TEXT, {**QUICK, "prompt": prompt})["choices"][0]["text"] == text
        assert s.post(TEXT, {**QUICK, "prompt": [5, 6, 7]})["usage"]["prompt_tokens"] == 3
        assert "".join(e["choices"][0]["text"] for e in s.stream("/completions", QUICK)) == text
        best = s.post(TEXT, {**QUICK, "logprobs": 2})["choices"][0]["logprobs"]
        n = one["usage"]["completion_tokens"]
        assert [len(best[k]) for k in ("tokens", "token_logprobs", "top_logprobs", "text_offset")] == [n] * 4, best
        assert s.post("/", QUICK)["choices"][0]["text"] == text and "message" in s.post("/", HELLO)["choices"][0]
        for i in range(4):
            assert s.post(TEXT, {**QUICK, "max_completion_tokens": i + 1})["usage"]["completion_tokens"] == i + 1


def check_refusals() -> None:
    with Server(TEALIGHT, "--max-body", 100000) as s:
        for path, body, status, code, param in [
                (CHAT, b"{", 400, None, "body"), (CHAT, b"", 400, None, None), (CHAT, b"\xff", 400, None, None), (CHAT, b"[]", 400, None, None),
                (CHAT, b"[" * 5000, 400, None, None), (CHAT, {}, 400, None, "messages"), (TEXT, {}, 400, None, "prompt"),
                (CHAT, {"messages": []}, 400, None, "messages"), (CHAT, {"messages": [{"role": "user"}]}, 400, None, "messages[0].content"),
                (CHAT, {**HELLO, "temperature": "hot"}, 400, None, "temperature"), (CHAT, {**HELLO, "max_tokens": -1}, 400, None, "max_tokens"),
                (CHAT, {**HELLO, "model": "gpt-9"}, 404, "model_not_found", "model"), (TEXT, {**QUICK, "prompt": ["a", "b"]}, 400, None, "prompt"),
                (TEXT, {**QUICK, "prompt": [10 ** 6]}, 400, None, "prompt"),
                (TEXT, {**QUICK, "logit_bias": {"999999": 1}}, 400, None, None),
                ("/v1/embeddings", {"input": "a"}, 400, None, None),
                (TEXT, {**QUICK, "prompt": "a" * 200000}, 413, "request_too_large", None)]:
            error = s.post(path, body, status)["error"]
            assert set(error) == {"message", "type", "param", "code"} and error["message"], error
            assert error["type"] == "invalid_request_error" and (code is None or error["code"] == code), error
            assert param is None or error["param"] == param, (error, param)
        for field, value in {"response_format": {"type": "json_object"}, "functions": [{"name": "f"}], "function_call": "auto",
                             "tool_choice": "required", "n": 2, "best_of": 3, "suffix": "x", "echo": True, "audio": {"voice": "a"},
                             "modalities": ["text", "audio"], "prediction": {"type": "content"}, "grammar": "root ::= x",
                             "guided_json": {}, "web_search_options": {}}.items():
            for path, base in ((CHAT, HELLO), (TEXT, QUICK)):
                error = s.post(path, {**base, field: value}, 400)["error"]
                assert error["param"] == field and error["code"] == "unsupported_parameter", error
        for field, value in {"response_format": {"type": "text"}, "tool_choice": "auto", "n": 1, "modalities": ["text"], "user": "u", "store": False,
                             "tools": [], "metadata": {"a": "b"}, "suffix": None, "echo": False, "parallel_tool_calls": True, "seed": 1}.items():
            s.post(CHAT, {**HELLO, field: value})
        long = s.post(TEXT, {**QUICK, "prompt": "word " * 15000}, 400)["error"]
        assert long["code"] == "context_length_exceeded", long


def check_huge_prompts() -> None:
    """Case 66: a prompt of very many line ends is an answer of 400 or 413."""
    with Server(TEALIGHT) as s:
        s.post(TEXT, {**QUICK, "prompt": "\n" * 2_000_000}, 400)
        s.post(CHAT, {**HELLO, "messages": [{"role": "user", "content": "\n" * 2_000_000}]}, 400)
        s.post(TEXT, json.dumps({**QUICK, "prompt": "\n" * 9_000_000}), 413)
        with s.raw(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2147483700\r\n\r\n" + b"\n" * 100000) as c:
            assert c.recv(100).startswith(b"HTTP/1.1 413 ")
        with s.raw(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n") as c:
            assert c.recv(100)[9:12] in (b"400", b"413")
        s.post(TEXT, QUICK)


def check_sampler_fields() -> None:
    """Case 74: sampler fields in any subset and order, in the chat route too."""
    fields = {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.05, "typical_p": 0.9, "repetition_penalty": 1.1, "frequency_penalty": 0.5,
              "presence_penalty": -0.5, "logit_bias": {"7": 2}, "seed": 11, "stop": ["zz"], "min_tokens": 1, "ignore_eos": True}
    rng = random.Random(74)
    with Server(TEALIGHT) as s:
        for _ in range(60):
            chosen = rng.sample(list(fields.items()), rng.randrange(len(fields) + 1))
            assert s.post(CHAT, {**dict(chosen), "messages": HELLO["messages"], "max_tokens": 3})["choices"]
            assert s.post(TEXT, {**dict(chosen), "prompt": "a", "max_tokens": 3})["choices"]


def check_odd_requests() -> None:
    with Server(TEALIGHT) as s:
        body = json.dumps(QUICK).encode()
        c = s.connect()                  # one connection, a chunked body, a body that waits
        for _ in range(3):
            c.request("POST", TEXT, iter([body[:5], body[5:]]), {"X-Request-Id": "abc"}, encode_chunked=True)
            r = c.getresponse()
            assert r.status == 200 and r.getheader("x-request-id") == "abc" and json.loads(r.read())["choices"]
        with s.raw(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)) as w:
            assert w.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
            w.sendall(body)
            assert w.recv(100).startswith(b"HTTP/1.1 200 ")
        one = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        with s.raw(one * 3 + b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") as w:
            data = b""
            while piece := w.recv(65536):
                data += piece
            assert data.count(b"HTTP/1.1 200 OK") == 4 and data.rindex(b'"ok"') > data.rindex(b"text_completion"), data
        log = s.wait_for(r"POST /v1/completions 200 \d+ bytes [\d.]+ ms abc")
        assert log
    with Server(TEALIGHT, "--access-log", "json") as s:
        s.get("/health")
        line = json.loads(s.wait_for(r'^{.*"request":.*}$')[0])
        assert all(json.loads(every) for every in s.text().splitlines())
        assert line["status"] == 200 and line["request"] == "GET /health", line


def check_keys() -> None:
    with tempfile.NamedTemporaryFile("w") as f:
        f.write("one\ntwo\n")
        f.flush()
        for args, env, key in [(["--api-key-file", f.name], {}, "two"), ([], {"TEALIGHT_API_KEY": "three"}, "three")]:
            with Server(TEALIGHT, "--cors", "*", *args, env=env) as s:
                s.post(TEXT, QUICK, Authorization=f"Bearer {key}")
                error = s.post(TEXT, QUICK, 401, Authorization="Bearer wrong")["error"]
                assert error["code"] == "invalid_api_key", error
                s.post(TEXT, QUICK, 401)
                assert s.get("/health")[0] == s.get("/ready")[0] == 200 and s.get("/metrics")[0] == 401
                status, headers, _ = s.call("OPTIONS", CHAT, headers={"Origin": "https://x", "Access-Control-Request-Headers": "a, b"})
                assert status == 204 and headers["access-control-allow-origin"] == "*" and headers["access-control-allow-headers"] == "a, b"


def check_vanishing_clients() -> None:
    with Server(TEALIGHT, "-c", 100000, "--parallel", 1) as s:
        for n, extra in enumerate([{"stream": True}, {}]):
            with s.raw() as c:
                c.sendall(post_bytes(TEXT, {**LONG, **extra}))
                if extra:
                    assert c.recv(1000)
                eventually(lambda: s.metric("generations_running") == 1)
            eventually(lambda: s.metric('generations_total{end="cancelled"}') == n + 1 and s.metric("generations_running") == 0)
        s.post(TEXT, QUICK)


def check_queue() -> None:
    with Server(TEALIGHT, "-c", 100000, "--parallel", 1, "--queue", 1) as s:
        request = post_bytes(TEXT, {**LONG, "stream": True})
        first = s.raw(request)
        assert first.recv(1000)
        for _ in range(2):                # one that hangs up while it waits makes room
            with s.raw(request):
                eventually(lambda: s.metric("generations_waiting") == 1)
            eventually(lambda: s.metric("generations_waiting") == 0)
        second = s.raw(request)
        eventually(lambda: s.metric("generations_waiting") == 1)
        status, headers, data = s.call("POST", TEXT, QUICK)
        assert status == 503 and headers["retry-after"] == "1" and json.loads(data)["error"]["code"] == "queue_full", (status, data)
        assert s.get("/ready")[0] == 503 and s.get("/health")[0] == 200
        first.close()
        second.close()
        eventually(lambda: s.get("/ready")[0] == 200)
        s.post(TEXT, QUICK)


def check_timeout() -> None:
    with Server(TEALIGHT, "-c", 100000, "--timeout", 0.5) as s:
        begin = time.monotonic()
        one = s.post(TEXT, LONG)
        assert one["choices"][0]["finish_reason"] == "length" and one["choices"][0]["text"], one
        assert s.stream(TEXT, LONG)[-1]["choices"][0]["finish_reason"] == "length"
        assert time.monotonic() - begin < 15


def check_shutdown() -> None:
    def begin(s: Server, **body) -> socket.socket:
        c = s.raw(post_bytes(TEXT, {**LONG, "stream": True, **body}))
        assert c.recv(20)
        return c

    def rest(c: socket.socket) -> bytes:
        data = b""
        while piece := c.recv(65536):
            data += piece
        return data

    with Server(TEALIGHT, "-c", 1000000) as s:        # what runs is finished
        c = begin(s, max_tokens=3000)
        s.process.terminate()
        assert b"data: [DONE]" in rest(c)
        assert s.process.wait(20) == 0
    with Server(TEALIGHT, "-c", 1000000, "--grace", 0.3) as s:     # but not for ever
        c = begin(s)
        s.process.send_signal(signal.SIGINT)
        assert b"data: [DONE]" not in rest(c)
        assert s.process.wait(20) == 0
    with Server(TEALIGHT, "-c", 1000000) as s:        # a second signal ends it at once
        c = begin(s)
        s.process.terminate()
        time.sleep(0.2)
        assert s.process.poll() is None
        s.process.terminate()
        assert s.process.wait(20) == 128 + signal.SIGTERM
        s.process.returncode = 0


def check_broken_model() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for path in (folder + "/none.gguf", folder):
            done = subprocess.run([TEALIGHT, "serve", path, "--port", "0"], capture_output=True, text=True, timeout=20)
            assert done.returncode == 1 and folder in done.stderr.splitlines()[-1], done
    for args, err in [([], "no MODEL"), (["m", "x"], "unexpected argument"), (["m", "--host", "example.com"], "names are not resolved"),
                      (["m", "--port", "70000"], "--port"), (["m", "--access-log", "x"], "--access-log")]:
        done = subprocess.run([TEALIGHT, "serve", *args], capture_output=True, text=True, timeout=20)
        assert done.returncode == 2 and err in done.stderr, done


def over_unix(path: str, request: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as c:
        c.settimeout(20)
        c.connect(path)
        c.sendall(request)
        data = b""
        while piece := c.recv(65536):
            data += piece
        return data


def post_bytes(path: str, body: dict, headers: str = "") -> bytes:
    data = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data


def check_hosts() -> None:
    """The other doors: PORT, UNIX sockets, Fn, Azure, sockets that were opened before."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Server(TEALIGHT, port=(), env={"PORT": str(port)}) as s:
        assert s.wait_for(r"listening on http://0\.0\.0\.0:(\d+)")[1] == str(port)
        s.post("/", QUICK)
    with Server(TEALIGHT, port=(), env={"FUNCTIONS_CUSTOMHANDLER_PORT": str(port)}) as s:
        assert s.wait_for(r"listening on http://127\.0\.0\.1:(\d+)")[1] == str(port)
        text = s.post("/api/anything", QUICK)["choices"][0]["text"]
        http = s.post("/anything", {"Data": {"req": {"Url": "u", "Method": "POST", "Body": json.dumps(QUICK)}}, "Metadata": {"sys": {}}})
        assert json.loads(http["Outputs"]["res"]["body"])["choices"][0]["text"] == text and http["Outputs"]["res"]["statusCode"] == 200
        item = s.post("/queue", {"Data": {"item": json.dumps(json.dumps(QUICK))}, "Metadata": {}})
        assert json.loads(item["ReturnValue"]["body"])["choices"][0]["text"] == text
        bad = s.post("/queue", {"Data": {"item": "{"}, "Metadata": {}})
        assert bad["ReturnValue"]["statusCode"] == 400, bad
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/lsnr.sock"
        with Server(TEALIGHT, port=(), env={"FN_LISTENER": "unix:" + path, "FN_FORMAT": "http-stream"}) as s:
            assert os.stat(path).st_mode & 0o777 == 0o666
            answer = over_unix(path, post_bytes("/call", QUICK, "Fn-Deadline: 2999-01-01T00:00:00.000Z\r\n"))
            assert b"Fn-Http-Status: 200\r\n" in answer and b"text_completion" in answer, answer
            assert b"Fn-Http-Status: 400\r\n" in over_unix(path, post_bytes("/call", {}))
            soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 2))
            late = over_unix(path, post_bytes("/call", {**LONG, "max_tokens": 10 ** 6}, f"Fn-Deadline: {soon}\r\n"))
            assert b'"finish_reason":"length"' in late, late[-300:]
        with Server(TEALIGHT, port=("--unix", path)) as s:
            assert b'"ok"' in over_unix(path, b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        listener = socket.create_server(("127.0.0.1", 0))
        with ActivatedServer(listener) as s:
            s.port = listener.getsockname()[1]
            assert s.get("/health")[0] == 200
        ours, theirs = socket.socketpair()
        with ActivatedServer(theirs) as s:     # one connection, passed whole
            theirs.close()
            ours.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert b'"ok"' in ours.recv(1000)
            assert s.process.wait(20) == 0


def check_one_shot() -> None:
    """CGI and the classic watchdog of OpenFaaS: one process a request."""
    def call(body: str, **env: str) -> subprocess.CompletedProcess:
        clean = {k: v for k, v in os.environ.items() if k != "PORT"}
        return subprocess.run([TEALIGHT, "-t", "1"], input=body, capture_output=True, text=True, timeout=60,
                              env={**clean, "TEALIGHT_MODEL": str(MODEL), **env})

    def cgi(method: str, path: str, body: str, **env: str) -> tuple[str, str]:
        done = call(body, GATEWAY_INTERFACE="CGI/1.1", REQUEST_METHOD=method, PATH_INFO=path, CONTENT_LENGTH=str(len(body)), **env)
        assert done.returncode == 0, done
        head, _, rest = done.stdout.partition("\n\n")      # text mode turns \r\n into \n
        return head, rest

    body = json.dumps(QUICK)
    head, rest = cgi("POST", "/v1/completions", body, CONTENT_TYPE="application/json", PORT="1")
    assert head == "Status: 200 OK\nContent-Type: application/json", head
    text = json.loads(rest)["choices"][0]["text"]
    head, rest = cgi("POST", "", json.dumps({**QUICK, "stream": True}))
    assert "text/event-stream" in head and rest.endswith("data: [DONE]\n\n"), rest
    for method, path, data, status in [("POST", "/v1/completions", "{", 400), ("GET", "/v1/models", "", 200), ("POST", "/nope", "{}", 404)]:
        head, rest = cgi(method, path, data)
        assert head.startswith(f"Status: {status} ") and json.loads(rest), (head, rest)
    assert cgi("POST", "/", body, TEALIGHT_MODEL="/nope.gguf")[0].startswith("Status: 500 ")
    done = call(body, Http_Method="POST", Http_Path="/x")
    assert done.returncode == 0 and json.loads(done.stdout)["choices"][0]["text"] == text, done
    done = call("{", Http_Method="POST")
    assert done.returncode == 1 and json.loads(done.stdout)["error"], done


class ActivatedServer(Server):
    """A server that is given a socket as systemd does it."""

    def __init__(self, sock: socket.socket):
        os.set_inheritable(sock.fileno(), True)
        with tempfile.NamedTemporaryFile("w", suffix=".sh", delete=False) as f:
            f.write(f"#!/bin/sh\nexec 3<&{sock.fileno()}\nLISTEN_PID=$$ LISTEN_FDS=1 exec {TEALIGHT} \"$@\"\n")
        os.chmod(f.name, 0o755)
        super().__init__(f.name, port=(), pass_fds=(sock.fileno(),))


def main() -> int:
    return tap.run([f for n, f in globals().items() if n.startswith("check_")])


if __name__ == "__main__":
    sys.exit(main())
