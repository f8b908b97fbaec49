#!/usr/bin/env python3
"""Writes kernels/cpu/iq_tables.h: the code books of the IQ types, which are part of the GGUF format.

They are read from the `gguf` Python package (MIT licence), the format's own reader. Usage:
tools/make_iq_tables.py > kernels/cpu/iq_tables.h"""
import math

import gguf.quants as q


def words(cls):
    """A code book entry is 4 or 8 small codes in one 16-bit word, the first code in the lowest bits."""
    raw = bytes.fromhex(cls.grid_hex.decode())
    entries, codes = cls.grid_shape
    assert len(raw) == 2 * entries, cls.__name__
    # The package packs 8 codes of 2 bits, or 4 of 3 bits in nibbles: a word of 16 bits either way.
    bits = 16 // codes
    assert bits == (2 if math.ceil(math.log2(len(cls.grid_map))) == 2 else 4), cls.__name__
    out = [raw[i] | raw[i + 1] << 8 for i in range(0, len(raw), 2)]
    assert all(w >> s & (1 << bits) - 1 < len(cls.grid_map) for w in out for s in range(0, 16, bits)), cls.__name__
    return out


def emit(kind, name, values, width, per_line):
    print(f"constexpr {kind} {name}[{len(values)}] = {{")
    for i in range(0, len(values), per_line):
        print("    " + " ".join(f"0x{v:0{width}x}," for v in values[i:i + per_line]))
    print("};")


print("// Written by tools/make_iq_tables.py; do not edit. Code books of the IQ types of GGUF.")
print("// A word holds the codes of one entry, the first in the lowest bits: 8 codes of 2 bits (IQ1, IQ2), 4 of 4 bits (IQ3).")
print("#pragma once")
print("#include <stdint.h>")
print()
print("namespace tealight::kernels {")
print()
for cls in (q.IQ1_S, q.IQ2_XXS, q.IQ2_XS, q.IQ2_S, q.IQ3_XXS, q.IQ3_S):
    name = cls.__name__.lower()
    values = ", ".join(str(int(v)) for v in cls.grid_map)
    print(f"// {cls.__name__}: a code stands for one of {{{values}}}.")
    print(f"constexpr int8_t k{cls.__name__.replace('_', '').title()}Values[{len(cls.grid_map)}] = {{{values}}};")
    emit("uint16_t", f"k{cls.__name__.replace('_', '').title()}Grid", words(cls), 4, 14)
    print()
print("// IQ2_XXS, IQ2_XS, IQ3_XXS: the signs of 8 values from 7 bits; the eighth makes their number even.")
emit("uint8_t", "kSigns", list(q.IQ2_XXS.ksigns), 2, 20)
print()
print("}  // namespace tealight::kernels")
