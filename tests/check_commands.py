#!/usr/bin/env python3
"""Checks of the commands of the binary on a tiny model, in TAP. usage: check_commands.py [EMULATOR] TEALIGHT"""
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tap

PROGRAM = sys.argv[1:]
ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "tests/data/models/llama_sharded"
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
GREEDY = ["--temp", "0", "-n", "12", "-t", "1"]


def call(*args, stdin: str | None = None, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run([*PROGRAM, *map(str, args)], capture_output=True, text=True, timeout=60,
                          input=stdin if stdin is not None else "", env={**os.environ, **env})


def expect(done: subprocess.CompletedProcess, code: int, err: str = "") -> str:
    assert done.returncode == code, f"exit {done.returncode}, expected {code}: {done.stderr}"
    assert err in done.stderr, f"expected {err!r} in {done.stderr!r}"
    return done.stdout


def model_with_template(folder: str) -> Path:
    copy = Path(folder, "model")
    shutil.copytree(MODEL, copy)
    config = json.loads((copy / "tokenizer_config.json").read_text())
    config["chat_template"] = TEMPLATE
    (copy / "tokenizer_config.json").write_text(json.dumps(config))
    return copy


def check_help() -> None:
    overview = expect(call("--help"), 0)
    names = [line.split()[0] for line in overview.split("commands:\n")[1].split("\n\n")[0].splitlines()]
    assert {"run", "chat", "stdio", "bench"} <= set(names), names
    for name in names:
        text = expect(call(name, "--help"), 0)
        assert text.startswith(f"usage: tealight {name} "), text[:80]
        assert expect(call("help", name), 0) == text
    assert expect(call("--version"), 0).startswith("tealight ")


def check_wrong_usage() -> None:
    for args, err in [([], "no command given"), (["nope"], '"nope" is no command'), (["help", "nope"], "is no command"),
                      (["run"], "no MODEL given"), (["run", "m"], "no PROMPT given"), (["run", "m", "a", "b"], "more than one prompt"),
                      (["run", "m", "a", "-p", "b"], "more than one prompt"), (["run", "m", "a", "--nope"], "unknown option --nope"),
                      (["run", "m", "a", "--temp"], "needs a value"), (["run", "m", "a", "--temp", "x"], "--temperature"),
                      (["run", "m", "a", "-n", "0"], "--max-tokens"), (["run", "m", "a", "-t", "-1"], "--threads"),
                      (["run", "m", "a", "--kv", "f8"], "none of f16, f32"), (["chat", "m", "a", "b"], "more than one MESSAGE"),
                      (["chat", "m", "--json"], "--json needs a MESSAGE"), (["stdio"], "no MODEL given"),
                      (["stdio", "m", "x"], "unexpected argument"), (["bench", "m", "x"], "unexpected argument"), (["bench"], "no MODEL")]:
        expect(call(*args), 2, err)
        expect(call(*args), 2, "--help'")
    expect(call("run", "m", "a", TEALIGHT_ISA="nope"), 2, "TEALIGHT_ISA: unknown word (known: ref, avx2, avxvnni, avx512, amx, neon, i8mm)")
    for word in ["avx2", "avxvnni", "avx512", "amx", "neon", "i8mm"]:
        lacking = call("run", "m", "a", TEALIGHT_ISA=word)
        if lacking.returncode == 2:
            assert lacking.stderr == f"tealight: {word}: not supported by this CPU\n", lacking.stderr


def check_failures() -> None:
    done = call("run", "no/such/file.gguf", "hi")
    expect(done, 1, "no/such/file.gguf")
    assert done.stderr.startswith("tealight: ") and not done.stdout, done
    expect(call("run", MODEL, "-f", "no/such/file"), 1, "no/such/file")
    expect(call("run", MODEL, "word " * 50, "-c", "10"), 1, "more than the context of 10")
    expect(call("chat", MODEL, "hi"), 1, "template")


def check_run() -> None:
    text = expect(call("run", MODEL, "The quick", *GREEDY), 0)
    assert text.endswith("\n") and len(text) > 1
    assert expect(call("run", MODEL, "-p", "The quick", *GREEDY), 0) == text
    assert expect(call("run", "-m", MODEL, "The quick", *GREEDY), 0) == text
    assert expect(call("run", MODEL, "-", *GREEDY, stdin="The quick"), 0) == text
    with tempfile.NamedTemporaryFile("w") as f:
        f.write("The quick")
        f.flush()
        assert expect(call("run", MODEL, "-f", f.name, *GREEDY), 0) == text
    answer = json.loads(expect(call("run", MODEL, "The quick", *GREEDY, "--json"), 0))
    assert answer["choices"][0]["text"] in (text, text[:-1]), (answer, text)
    assert answer["usage"]["completion_tokens"] <= 12
    seeded = [expect(call("run", MODEL, "The quick", "-n", "12", "--temp", "2", "--seed", s), 0) for s in "112"]
    assert seeded[0] == seeded[1] != seeded[2], seeded


def check_stdio() -> None:
    lines = ['{"prompt":"The quick","temperature":0,"max_tokens":12,"id":1}', "{", '{"prompt":"The quick","temperature":0,"max_tokens":12,"stream":true}',
             '{"prompt":"a","odd":1,"max_tokens":1}']
    done = call("stdio", MODEL, stdin="\n".join(lines))
    answers = [json.loads(line) for line in expect(done, 0, 'unknown field "odd"').splitlines()]
    assert answers[0]["id"] == 1 and "error" in answers[1], answers
    text = answers[0]["choices"][0]["text"]
    assert text.rstrip("\n") == expect(call("run", MODEL, "The quick", *GREEDY), 0).rstrip("\n")
    stream = answers[2:-1]
    assert stream[-1]["choices"][0]["text"] == text == "".join(a["choices"][0]["text"] for a in stream[:-1]), stream
    process = subprocess.Popen([*PROGRAM, "stdio", MODEL], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdin.write((lines[0] + "\n").encode())
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["id"] == 1
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0


def check_chat() -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = model_with_template(folder)
        one = expect(call("chat", model, "Hello", *GREEDY), 0)
        same = expect(call("run", model, "user: Hello\nassistant:", *GREEDY), 0)
        assert one.strip() == same.strip(), (one, same)
        assert expect(call("chat", model, *GREEDY, stdin="Hello\n"), 0).strip() == one.strip()
        two = expect(call("chat", model, *GREEDY, "--system", "Be brief.", "-c", "100", stdin="Hello\nAnd\nagain\n"), 0)
        assert two.strip(), two
        answer = json.loads(expect(call("chat", model, "Hello", *GREEDY, "--json"), 0))
        assert answer["choices"][0]["message"]["content"].strip() == one.strip()


def read_terminal(fd: int, until: bytes) -> bytes:
    out, end = b"", time.monotonic() + 20
    while until not in out and time.monotonic() < end:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                out += os.read(fd, 4096)
            except OSError:  # the other side is gone
                break
    assert until in out, out
    return out


def check_terminal() -> None:
    """Ctrl-C ends an answer and not the chat, Ctrl-D the chat."""
    with tempfile.TemporaryDirectory() as folder:
        model = model_with_template(folder)
        pid, fd = pty.fork()
        if pid == 0:
            os.execv(PROGRAM[0], [*PROGRAM, "chat", str(model), "--temp", "0", "--ignore-eos", "-t", "1", "-c", "100000"])
        read_terminal(fd, b"> ")
        os.write(fd, b"\x03")
        read_terminal(fd, b"> ")
        os.write(fd, b"Hello\n")
        read_terminal(fd, b"Hello\r\n")
        time.sleep(0.3)
        os.write(fd, b"\x03")
        read_terminal(fd, b"\n> ")
        os.write(fd, b"\x04")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def check_bench() -> None:
    for args in (["-p", "16", "-n", "4", "-d", "8", "-r", "2"], ["-p", "0", "-n", "2"], ["-p", "4", "-n", "0"]):
        figures = json.loads(expect(call("bench", MODEL, *args, "--json"), 0))
        assert (figures["pp_tps"] > 0) == (args[1] != "0") and (figures["tg_tps"] > 0) == (args[3] != "0"), figures
        assert figures["weight_bytes"] > 0 and figures["read_bytes_per_second"] > 0 and figures["peak_rss_bytes"] > 0, figures
        assert "tok/s" in expect(call("bench", MODEL, *args), 0)


def call_packed(file: Path, *args, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run([*PROGRAM[:-1], file, *map(str, args)], capture_output=True, text=True, timeout=60, input="", env={**os.environ, **env})


def check_pack() -> None:
    with tempfile.TemporaryDirectory() as folder:
        model, file, prefix = model_with_template(folder), Path(folder, "bootstrap"), Path(folder, "prefix.json")
        prefix.write_text(json.dumps({"messages": [{"role": "system", "content": "Be brief and kind."}]}))
        system = Path(folder, "system.txt")
        system.write_text("The quick brown fox")
        done = call("pack", model, "-o", file, "--prefix", prefix, "--prefix", system, "--defaults", '{"temperature": 0, "max_tokens": 12}', "--verify")
        expect(done, 0, "2 prefixes")
        first = file.read_bytes()
        expect(call("pack", model, "-o", file, "--prefix", prefix, "--prefix", system, "--defaults", '{"temperature": 0, "max_tokens": 12}'), 0)
        assert file.read_bytes() == first, "packing is not repeatable"
        text = expect(call("run", model, "The quick brown fox jumps", *GREEDY), 0)
        assert expect(call("run", file, "The quick brown fox jumps", *GREEDY), 0) == text
        # The file itself: without a MODEL, with another one, with the environment's.
        assert expect(call_packed(file, "run", "The quick brown fox jumps", *GREEDY), 0) == text
        assert expect(call_packed(file, "run", MODEL, "The quick brown fox jumps", *GREEDY), 0) == text
        one = expect(call("chat", model, "Hello", *GREEDY, "--system", "Be brief and kind."), 0)
        assert expect(call_packed(file, "chat", "Hello", *GREEDY, "--system", "Be brief and kind."), 0) == one
        expect(call_packed(file, "run", "hi", *GREEDY, TEALIGHT_MODEL="no/such.gguf"), 1, "no/such.gguf")
        assert expect(call("run", "The quick brown fox jumps", *GREEDY, TEALIGHT_MODEL=str(file)), 0) == text
        contents = json.loads(expect(call_packed(file, "inspect", "--json"), 0))
        assert [p["name"] for p in contents["prefixes"]] == ["prefix.json", "system.txt"], contents["prefixes"]
        assert all(p["tokens"] > 3 for p in contents["prefixes"]) and contents["defaults"] == {"temperature": 0, "max_tokens": 12}
        assert "sections\n" in expect(call("inspect", file), 0)
        expect(call_packed(file, "pack", "--verify"), 0, "as they were written")
        again = Path(folder, "again")
        expect(call_packed(file, "pack", "-o", again), 0)
        assert json.loads(expect(call("inspect", again, "--json"), 0))["defaults"] == contents["defaults"]
        damaged = Path(folder, "damaged")
        at = next(s["offset"] for s in contents["sections"] if s["name"] == "tensors") + 1000
        damaged.write_bytes(first[:at] + bytes([first[at] ^ 1]) + first[at + 1:])
        expect(call("pack", "--verify", damaged), 1, 'section "tensors": it was altered')
        damaged.write_bytes(first[:at])
        expect(call("run", damaged, "hi"), 1, 'section "tensors": it is cut off')
        expect(call("pack", model), 2, "no output")
        expect(call("pack", "-o", file), 2, "no MODEL")
        expect(call("pack", model, "-o", file, "--defaults", '{"temperatur": 1}'), 1, '"temperatur"')
        expect(call("pack", model, "-o", file, "--runtime", model / "config.json"), 1, "config.json: not a 64-bit")
        expect(call("pack", model, "-o", folder + "/no/such/folder", "--prefix", prefix), 1, "no/such/folder")
        assert file.read_bytes() == first


def main() -> int:
    checks = [check_help, check_wrong_usage, check_failures, check_run, check_stdio, check_chat, check_terminal, check_bench, check_pack]
    return tap.run(checks)


if __name__ == "__main__":
    sys.exit(main())
