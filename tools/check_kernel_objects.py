#!/usr/bin/env python3
"""Prove that kernel objects compiled for an instruction set cannot leak its instructions into other code.

A weak symbol (an inline function of a header) in such an object may become the one copy that the whole program calls. So
these objects export plain symbols only, call out to nothing but one another and memcpy and its kin, and run nothing at start.
No kernel object at all may need the C++ library.

usage: check_kernel_objects.py ARCHIVE...     all kernel archives; names with an instruction set in them get the full check
"""
import re
import subprocess
import sys

FOR_ISA = re.compile(r"avx|amx|neon|i8mm|wasm")
SYMBOL = re.compile(r"(.*?):\s*[0-9a-f]*\s+(\S) (.+)$")
CALLS = re.compile(r"(mem(cpy|set|move)|_GLOBAL_OFFSET_TABLE_)$")
CPP_LIBRARY = re.compile(r"_ZNK?S[tsab]|_ZS[tsab]|_ZNK?St3__1|_Zn[wa]|_Zd[la]|__cxa_(?!guard_)|__gxx_")


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main() -> int:
    found = []
    archives = sys.argv[1:]
    symbols = {a: [m.groups() for m in map(SYMBOL.match, output("nm", "-A", a).splitlines()) if m] for a in archives}
    defined = {name for of in symbols.values() for _, kind, name in of if kind in "TDRB"}
    for archive, of in symbols.items():
        strict = FOR_ISA.search(archive.rsplit("/", 1)[-1])
        for place, kind, name in of:
            if kind in "Uw" and CPP_LIBRARY.match(name):
                found.append(f"{place}: needs {name} of the C++ library")
            elif strict and kind in "WVui":
                found.append(f"{place}: weak symbol {name}: other code may end up in this copy")
            elif strict and kind == "U" and name not in defined and not CALLS.match(name):
                found.append(f"{place}: calls out to {name}")
        if strict and (m := re.search(r"\.(init_array|ctors|tbss|tdata)\b", output("objdump", "-h", archive))):
            found.append(f"{archive}: has {m[0]}: code or thread-local data that comes before the choice of a set")
    print("\n".join(found) or f"{len(archives)} archives, {sum(map(len, symbols.values()))} symbols: clean")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
