#!/usr/bin/env python3
"""Fill subprojects/ from package registries, for machines that cannot reach the wrap files' own addresses.

Each file is compared with a pinned SHA-256 digest of the release that the wrap file names, so both ways
give the same sources. A subproject folder that is already there is left alone but for our build files in it.
usage: deps.py [--check]    --check: exits 1 when a folder is missing, gets none
"""
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUB = ROOT / "subprojects"
# name -> (folder named in the wrap file, crate, version, [(from, to)], digest of what is copied)
CRATES = {
    "mimalloc": ("mimalloc-3.3.2", "libmimalloc-sys", "0.1.49", [("c_src/mimalloc/v3", ".")], "cada430e287042c560b946eb7ac4fae480dcc5fa584fa215dbb18fa424c8031b"),
    "xxhash": ("xxHash-0.8.3", "xxhash-c-sys", "0.8.7", [("src/c", ".")], "3b21a2d158bae21d590a03e96220fb3bb698cbd1588dbf652a17754b2d7b178f"),
    "simdjson": ("simdjson-4.6.4", "simdjson-sys", "0.4.0-alpha.2", [("vendor/simdjson", "singleheader")], "0a3ad1cfbf51d6b4fd47f2b87061b78b48685e82928c1abbabf7e75bb1c85b32"),
    "utf8proc": ("utf8proc-2.11.0", "utf8proc-sys", "0.1.2", [("utf8proc/utf8proc.c", "utf8proc.c"), ("utf8proc/utf8proc.h", "utf8proc.h"), ("utf8proc/utf8proc_data.c", "utf8proc_data.c")], "2b478f604f47d2cd22798f27cce4a8fce99cf822a9232eff589621a352f0f390"),
}


def digest(folder: Path) -> str:
    h = hashlib.sha256()
    for p in sorted(x for x in folder.rglob("*") if x.is_file()):
        h.update(p.relative_to(folder).as_posix().encode() + b"\0" + hashlib.sha256(p.read_bytes()).digest())
    return h.hexdigest()


def refresh_overlays() -> None:
    """Copies our build files again over subprojects that were made from an older state of them."""
    for name, (folder, *_) in CRATES.items():
        for ours in (SUB / "packagefiles" / name).iterdir():
            there = SUB / folder / ours.name
            if there.parent.exists() and (not there.exists() or there.read_bytes() != ours.read_bytes()):
                shutil.copy(ours, there)


def main() -> int:
    refresh_overlays()
    todo = {n: c for n, c in CRATES.items() if not (SUB / c[0] / "meson.build").exists()}
    if not todo or "--check" in sys.argv:
        return bool(todo)
    if not shutil.which("cargo"):
        sys.exit("deps: no cargo here; let meson download the wraps, or: apt-get install cargo-web")
    with tempfile.TemporaryDirectory() as t:
        tmp = Path(t)
        (tmp / "src").mkdir()
        (tmp / "src/lib.rs").touch()
        lines = "".join(f'{c[1]} = "={c[2]}"\n' for c in todo.values())
        (tmp / "Cargo.toml").write_text(f'[package]\nname="d"\nversion="0.0.0"\nedition="2021"\n[dependencies]\n{lines}')
        subprocess.run(["cargo", "vendor", "-q", "v"], cwd=tmp, check=True, stdout=subprocess.DEVNULL)
        for name, (folder, crate, _, copies, want) in todo.items():
            new = tmp / folder
            for src, dst in copies:
                source = tmp / "v" / crate / src
                new.mkdir(exist_ok=True)
                if source.is_dir():
                    shutil.copytree(source, new / dst, dirs_exist_ok=True)
                else:
                    shutil.copy(source, new / dst)
            got = digest(new)
            if want and got != want:
                sys.exit(f"deps: {name}: digest {got}, wanted {want}")
            if not want:
                print(f"deps: {name}: {got}")
            shutil.copytree(SUB / "packagefiles" / name, new, dirs_exist_ok=True)
            shutil.move(new, SUB / folder)
            print(f"deps: {name} -> subprojects/{folder} (from crate {crate})")
    return 0


sys.exit(main())
