#!/usr/bin/env python3
"""Checks of the release binary, in TAP. usage: check_release.py [EMULATOR] TEALIGHT HELLO

HELLO is a hello world of the same compiler and flags. EMULATOR, a static one, runs the binaries of another architecture: then
nothing is said of start-up and system calls."""
import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "bench"))
import startup  # noqa: E402
import tap  # noqa: E402
from tap import Skip  # noqa: E402

EMULATOR = sys.argv[1:-2]
MAX_BYTES = 4_000_000
MAX_START = 1.5          # times the hello world


def check_static(binary: str, _: str) -> str:
    """An ELF file without interpreter, dynamic section and symbol table."""
    elf = Path(binary).read_bytes()
    assert elf[:6] == b"\x7fELF\x02\x01", "not a 64-bit little-endian ELF file"
    phoff, shoff = struct.unpack_from("<QQ", elf, 32)
    phentsize, phnum, shentsize, shnum = struct.unpack_from("<4H", elf, 54)
    segments = {struct.unpack_from("<I", elf, phoff + i * phentsize)[0] for i in range(phnum)}
    sections = {struct.unpack_from("<I", elf, shoff + i * shentsize + 4)[0] for i in range(shnum)}
    assert not segments & {2, 3}, "has a dynamic section or an interpreter"
    assert not sections & {2, 6, 11}, "has a symbol table or a dynamic section"
    return ""


def check_size(binary: str, _: str) -> str:
    size = os.path.getsize(binary)
    assert size <= MAX_BYTES, f"{size} bytes, more than {MAX_BYTES}"
    return f"{size} bytes"


def check_startup(binary: str, hello: str) -> str:
    """`--version` against the hello world; a busy machine gets five attempts, each on interleaved medians."""
    if EMULATOR:
        raise Skip("emulated")
    for _ in range(5):
        (base, _), (ours, _) = startup.measure([[hello], [binary, "--version"]], 200)
        if ours <= MAX_START * base:
            return f"{ours:.0f} us, {ours / base:.2f}x the hello world"
    raise AssertionError(f"{ours:.0f} us, {ours / base:.2f}x the hello world's {base:.0f} us, more than {MAX_START}")


def in_empty_root(binary: str, files: list[Path], *args: str) -> subprocess.CompletedProcess:
    """Runs `/tealight ARGS` in a root directory that holds nothing but the binary and `files`: no /proc, no /sys, no /dev."""
    with tempfile.TemporaryDirectory() as root:
        shutil.copy(binary, root + "/tealight")
        for f in [*files, *EMULATOR]:
            shutil.copy(f, root)
        unshare = [] if os.geteuid() == 0 else ["unshare", "--map-root-user"]
        chroot = shutil.which("chroot", path=os.defpath + ":/usr/sbin:/sbin")
        command = [*unshare, chroot, root, *["/" + Path(e).name for e in EMULATOR], "/tealight", *args]
        done = subprocess.run(command, capture_output=True, timeout=60, env={})
    if b"cannot change root" in done.stderr or b"unshare failed" in done.stderr:
        raise Skip("may not change the root directory here")
    return done


def check_empty_root(binary: str, _: str) -> str:
    done = in_empty_root(binary, [], "--version")
    assert done.returncode == 0 and done.stdout.startswith(b"tealight "), f"--version: {done}"
    model = next((m for m in sorted(ROOT.glob("tests/data/gguf/llama*.gguf")) if "-of-" not in m.name), None)
    if not model:
        raise Skip("--version runs; there is no model in tests/data for `logits`")
    inside = in_empty_root(binary, [model], "logits", "/" + model.name, "--ids", "1,2,3", "--hash")
    outside = subprocess.run([*EMULATOR, binary, "logits", model, "--ids", "1,2,3", "--hash"], capture_output=True, timeout=60)
    assert inside.returncode == 0 and inside.stdout, f"logits: {inside}"
    assert inside.stdout == outside.stdout, f"logits: {inside.stdout} inside, {outside.stdout} outside"
    return ""


def traced(binary: str, *args: str) -> list[str]:
    """The system calls of one run, a line each, in order."""
    if EMULATOR:
        raise Skip("emulated")
    strace = shutil.which("strace")
    if not strace:
        raise Skip("no strace here")
    with tempfile.NamedTemporaryFile("r") as log:
        done = subprocess.run([strace, "-o", log.name, binary, *args], capture_output=True, timeout=120)
        if b"Operation not permitted" in done.stderr:
            raise Skip("strace may not trace here")
        assert done.returncode == 0, f"{args[0]}: {done}"
        return log.read().splitlines()


TINY = ROOT / "tests/data/gguf/llama.Q8_0.gguf"


def check_steady_calls(binary: str, _: str) -> str:
    """A thousand tokens on one thread: after the first ones no system call but the write of their text."""
    calls = traced(binary, "run", str(TINY), "a", "-n", "1000", "-c", "1100", "--temp", "0", "--ignore-eos", "-t", "1")
    writes = [i for i, c in enumerate(calls) if c.startswith("write(1,")]
    assert len(writes) > 100, f"only {len(writes)} writes"
    others = [c for c in calls[writes[2]:writes[-1]] if not c.startswith("write(1,")]
    assert not others, f"{len(others)} other calls, the first: {others[0]}"
    return f"{len(writes)} writes"


def check_mapped(binary: str, _: str) -> str:
    """Weights are mapped: what is read through system calls is small beside the file."""
    calls = traced(binary, "run", str(TINY), "a", "-n", "2", "-t", "1")
    got = sum(int(c.rpartition("= ")[2]) for c in calls if c.startswith(("read(", "pread64(", "readv(")) and c.rpartition("= ")[2].isdigit())
    assert got < 32768 and got < TINY.stat().st_size // 2, f"{got} bytes read"
    return f"{got} bytes read, {len(calls)} system calls"


# From exec to the first token and the end, one thread: page faults and system calls up to the first write. A model's own pages come
# at least 16 at a time.
TINY_FAULTS, TINY_CALLS = 400, 110
REAL_FAULTS, REAL_CALLS = 2000, 140
PRIVATE_BYTES = 20 << 20          # beside the K/V cache


def first_token(binary: str, model: Path, limit_data: int) -> resource.struct_rusage:
    """Faults and times of a run that ends with its first token, with room for so many bytes of private memory."""
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit_data, limit_data))
    args = [binary, "run", str(model), "The capital of France is", "-n", "1", "-c", "64", "--temp", "0", "-t", "1"]
    p = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=limit)
    said = p.stdout.read() if p.stdout else b""
    error = p.stderr.read() if p.stderr else b""
    _, status, usage = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    assert p.returncode == 0 and said, f"{model.name} within {limit_data >> 20} MiB of private memory: exit {p.returncode}, {error.decode()}"
    return usage


def start_budget(binary: str, model: Path, kv_bytes: int, max_faults: int, max_calls: int) -> str:
    if EMULATOR:
        raise Skip("emulated")
    first_token(binary, model, 1 << 30)         # now its pages are in memory
    usage = first_token(binary, model, PRIVATE_BYTES + kv_bytes)
    assert usage.ru_minflt <= max_faults, f"{model.name}: {usage.ru_minflt} page faults, more than {max_faults}"
    calls = traced(binary, "run", str(model), "The capital of France is", "-n", "1", "-c", "64", "--temp", "0", "-t", "1")
    n = next(i for i, c in enumerate(calls) if c.startswith("write(1,"))
    assert n <= max_calls, f"{model.name}: {n} system calls before the first token, more than {max_calls}"
    return f"{model.name}: {usage.ru_minflt} faults, {n} system calls"


def check_start_budget(binary: str, _: str) -> str:
    """The first token of a tiny model costs a bounded number of page faults and system calls, and little private memory."""
    return start_budget(binary, TINY, 1 << 20, TINY_FAULTS, TINY_CALLS)


def check_start_budget_real(binary: str, _: str) -> str:
    """The same of the models in $TEALIGHT_MODELS."""
    models = sorted(Path(os.environ.get("TEALIGHT_MODELS", "/nowhere")).glob("*.gguf"))
    if not models:
        raise Skip("no models in $TEALIGHT_MODELS")
    kv = 64 * 128 * 1024                        # at most 128 KiB a position
    return "; ".join(start_budget(binary, m, kv, REAL_FAULTS + m.stat().st_size // 65536, REAL_CALLS) for m in models)


def main() -> int:
    checks = [check_static, check_size, check_startup, check_empty_root, check_steady_calls, check_mapped, check_start_budget,
              check_start_budget_real]
    return tap.run(checks, *sys.argv[-2:])


if __name__ == "__main__":
    sys.exit(main())
