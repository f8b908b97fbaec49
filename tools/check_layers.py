#!/usr/bin/env python3
"""Hold the source tree to its rules: layers, headers, one home for each third-party library, file size.

usage: check_layers.py [ROOT]     prints one line FILE:LINE: WHY for each finding; exits 1 when there is one
"""
import re
import sys
from pathlib import Path

# From the top down: a file may include its own folder and the rows below. Folders in one row do not know each other.
ROWS = [
    ["src/cli", "tools", "bench", "tests"],
    ["src/api"],
    ["src/host"],
    ["src/task"],
    ["src/pack"],
    ["models"],
    ["src/nn"],
    ["src/text", "src/media"],
    ["src/io"],
    ["src/tensor"],
    ["src/base"],
    ["kernels"],
    ["include"],
]
PROGRAMS = ROWS[0]                             # these may include one another, too
DEPTH = {folder: depth for depth, row in enumerate(ROWS) for folder in row}

SUFFIXES = {".h", ".hpp", ".inc", ".c", ".cpp", ".cu", ".mm"}
KERNEL_HEADERS = {"stddef.h", "stdint.h", "string.h", "math.h", "float.h", "immintrin.h", "cpuid.h", "arm_neon.h",
                  "wasm_simd128.h", "sys/auxv.h", "asm/prctl.h", "sys/syscall.h", "unistd.h", "xmmintrin.h", "emmintrin.h"}
INTRINSICS = re.compile(r"(\w*mmintrin|immintrin|x86intrin|arm_neon|arm_sve|wasm_simd128)\.h$")
# Too dear in bytes, start-up or compile time for anything that goes into the binary.
BANNED = {"iostream", "regex", "fstream", "sstream", "ostream", "istream", "iomanip", "locale", "filesystem", "future", "format"}
# Third-party header -> the files that may include it.
HOME = {"simdjson.h": r"src/base/json\.", "xxhash.h": r"src/base/hash\.", "utf8proc.h": r"src/(base|text)/",
        "mimalloc.h": r"src/tensor/", "libdeflate.h": r"src/io/", "doctest/doctest.h": r"tests/"}
MAX_LINES = 700                                # "up to about 600"; tables (FILE_tables.*) may be longer
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')


def folder_of(path: str) -> str | None:
    return next((f for f in DEPTH if path.startswith(f + "/")), None)


def check_include(path: str, folder: str, angled: bool, name: str) -> str | None:
    """Why this file may not include `name`, or None."""
    if name in HOME:
        return None if re.match(HOME[name], path) else f"{name} belongs to files {HOME[name]} alone"
    if not angled:
        to = folder_of(name)
        if to is None:
            return f'"{name}" is not spelt from the root of the repository'
        below = DEPTH[to] > DEPTH[folder] or to == folder or (to in PROGRAMS and folder in PROGRAMS)
        return None if below else f"{folder} may not include {to}"
    if folder == "kernels":
        return None if name in KERNEL_HEADERS else f"kernels include C headers, intrinsics and kernels/ only, not <{name}>"
    if INTRINSICS.search(name) and folder not in PROGRAMS:
        return f"intrinsics (<{name}>) live in kernels/ only"
    if name in BANNED and folder not in ("tests", "tools", "bench"):
        return f"<{name}> costs too many bytes or too much time"
    return None


def check_file(path: str, lines: list[str]) -> list[tuple[int, str]]:
    folder = folder_of(path)
    if folder is None:
        return [(1, "a folder that tools/check_layers.py does not know")]
    found = []
    if len(lines) > MAX_LINES and "_tables." not in path and folder != "tests":
        found.append((len(lines), f"{len(lines)} lines, more than {MAX_LINES}: split the file"))
    for number, line in enumerate(lines, 1):
        if m := INCLUDE.match(line):
            if why := check_include(path, folder, m[1] == "<", m[2]):
                found.append((number, why))
        elif re.match(r"[^/\"']*\bthrow\b(?! *;)", line) and folder != "tests" and path != "src/base/error.cpp":
            found.append((number, "errors are thrown by fail() alone"))
    return found


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    bad = 0
    for file in sorted(f for f in root.rglob("*") if f.suffix in SUFFIXES):
        path = file.relative_to(root).as_posix()
        if re.match(r"build|subprojects/|\.|models-cache/", path):
            continue
        for number, why in check_file(path, file.read_text(encoding="utf-8").splitlines()):
            print(f"{path}:{number}: {why}")
            bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main())
