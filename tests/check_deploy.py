#!/usr/bin/env python3
"""The recipes of deploy/ and the zip of a function, in TAP. usage: check_deploy.py TEALIGHT STATIC(0|1)"""
import json
import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import tap
from tap import Skip

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
TEALIGHT, STATIC = Path(sys.argv[1]).resolve(), sys.argv[2] == "1"
MODEL = ROOT / "tests/data/gguf/llama.Q8_0.gguf"


def call(*args, **how) -> subprocess.CompletedProcess:
    return subprocess.run(list(map(str, args)), capture_output=True, text=True, timeout=120, **how)


def tool(name: str) -> str:
    found = shutil.which(name)
    if not found:
        raise Skip(f"no {name} here")
    return found


def elf(machine: int) -> bytes:
    """The head of a static program and some text."""
    return struct.pack("<4s5B7xHHI3QI6H", b"\x7fELF", 2, 1, 1, 0, 0, 2, machine, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0) + bytes(56) + b"code" * 1000


def check_zip() -> None:
    """Stable bytes whatever the dates, modes and order of the inputs; both architectures; refusals."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program, one, two = folder / "packed", folder / "a.gguf", folder / "b.gguf"
        one.write_bytes(b"weights" * 100)
        two.write_bytes(b"more")
        for machine, word in (62, "x86_64"), (183, "arm64"):
            program.write_bytes(elf(machine))
            done = call(ROOT / "tools/zip", program, one, two, "-o", folder / "1.zip")
            assert done.returncode == 0 and word in done.stdout and not done.stderr, done
            os.utime(program, (1, 1))
            program.chmod(0o600)
            assert call(ROOT / "tools/zip", program, two, one, "-o", folder / "2.zip", env={**os.environ, "TZ": "Asia/Tokyo"}).returncode == 0
            assert (folder / "1.zip").read_bytes() == (folder / "2.zip").read_bytes()
            with zipfile.ZipFile(folder / "1.zip") as z:
                assert z.namelist() == ["bootstrap", "a.gguf", "b.gguf"], z.namelist()
                modes = [stat.filemode(i.external_attr >> 16) for i in z.infolist()]
                assert modes == ["-rwxr-xr-x", "-rw-r--r--", "-rw-r--r--"] and z.testzip() is None, modes
                assert z.read("bootstrap") == program.read_bytes()
        small = call(ROOT / "tools/zip", program, "-o", folder / "small.zip", "--deflate")
        assert small.returncode == 0 and (folder / "small.zip").stat().st_size < 1000, small
        program.write_bytes(elf(62).replace(struct.pack("<H", 62), struct.pack("<H", 3), 1))
        assert "machine 3" in call(ROOT / "tools/zip", program, "-o", folder / "x.zip").stderr
        assert "no 64-bit program" in call(ROOT / "tools/zip", one, "-o", folder / "x.zip").stderr
        assert "two files of one name" in call(ROOT / "tools/zip", program, one, one, "-o", folder / "x.zip").stderr
        assert not (folder / "x.zip").exists() and not list(folder.glob("*.part"))


def check_zip_runs() -> None:
    """The unpacked function answers in an empty root without privileges."""
    if not STATIC:
        raise Skip("the binary is not static")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        done = call(ROOT / "tools/zip", TEALIGHT, MODEL, "-o", folder / "function.zip")
        assert done.returncode == 0 and not done.stderr, done
        with zipfile.ZipFile(folder / "function.zip") as z:
            for entry in z.infolist():
                Path(z.extract(entry, folder)).chmod(entry.external_attr >> 16 & 0o777)
        request = '{"prompt":"The quick","temperature":0,"max_tokens":8}\n'
        outside = call(TEALIGHT, "stdio", MODEL, input=request)
        inside = call(tool("bwrap"), "--unshare-all", "--cap-drop", "ALL", "--new-session", "--die-with-parent", "--chdir", "/", "--uid", 993, "--gid", 990,
                      "--ro-bind", folder / "bootstrap", "/bootstrap", "--ro-bind", folder / MODEL.name, "/model.gguf", "--clearenv",
                      "/bootstrap", "stdio", "/model.gguf", input=request)
        if "bwrap:" in inside.stderr:
            raise Skip("bwrap may not make namespaces here")
        assert inside.returncode == 0, inside
        assert json.loads(inside.stdout)["choices"] == json.loads(outside.stdout)["choices"], (inside, outside)
        assert "sandbox: no_new_privs" in inside.stderr and "refused" not in inside.stderr, inside.stderr


def check_yaml() -> None:
    try:
        import yaml
    except ImportError:
        raise Skip("no PyYAML here") from None

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("!", lambda loader, tag, node: f"!{tag} {node.value}")
    def load(name: str) -> dict:
        return yaml.load((DEPLOY / name).read_text(), Loader)
    function = load("lambda/template.yaml")["Resources"]["Function"]["Properties"]
    assert function["Runtime"] == "provided.al2023" and function["Handler"] == "bootstrap", function
    assert function["FunctionUrlConfig"]["InvokeMode"] == "RESPONSE_STREAM", function
    assert function["Environment"]["Variables"]["TEALIGHT_INVOKE_MODE"] == "response_stream", function
    image = load("lambda/template-image.yaml")["Resources"]["Function"]
    assert image["Properties"]["PackageType"] == "Image", image
    base = (DEPLOY / "lambda" / image["Metadata"]["DockerContext"]).resolve()
    assert (base / image["Metadata"]["Dockerfile"]).is_file(), image
    container = load("knative.yaml")["spec"]["template"]["spec"]["containers"][0]
    assert container["ports"][0]["containerPort"] == 8080 and container["readinessProbe"]["httpGet"]["path"] == "/ready", container


def check_dockerfile() -> None:
    lines = [line.split() for line in (DEPLOY / "Dockerfile").read_text().splitlines() if line and line[0] != "#"]
    words = [line[0] for line in lines]
    assert words == ["FROM", "COPY", "USER", "ENV", "EXPOSE", "ENTRYPOINT"] and lines[0][1] == "scratch", lines
    assert json.loads(lines[-1][1]) == ["/bootstrap"] and lines[1][-1] == "/bootstrap", lines


def check_terraform() -> None:
    done = call(tool("terraform"), f"-chdir={DEPLOY}/lambda", "fmt", "-check", "-diff")
    assert done.returncode == 0, done.stdout + done.stderr


def check_systemd() -> None:
    verify = tool("systemd-analyze")
    with tempfile.TemporaryDirectory() as folder:
        for unit in (DEPLOY / "systemd").iterdir():
            Path(folder, unit.name).write_text(unit.read_text().replace("/usr/local/bin/tealight", str(TEALIGHT)))
        for unit in "tealight.socket", "tealight.service":
            done = call(verify, "verify", "--man=no", "--recursive-errors=no", Path(folder, unit))
            ours = [line for line in done.stderr.splitlines() if "tealight." in line and "landlock" not in line]
            assert not ours, ours


def main() -> int:
    checks = [check_zip, check_zip_runs, check_yaml, check_dockerfile, check_terraform, check_systemd]
    return tap.run(checks)


if __name__ == "__main__":
    sys.exit(main())
