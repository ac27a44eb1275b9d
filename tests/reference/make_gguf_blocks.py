#!/usr/bin/env python3
"""Writes gguf_blocks.json beside this file: blocks of the Python package gguf (0.19), and a hash of their values.

Usage: make_gguf_blocks.py

`quantized`: codes of `x`. `dequantized`: per type blocks of random bytes, each under another scale (ordinary, negative, 0,
subnormal, largest half), and the 64-bit FNV-1a hash of each block's values as f32 bytes.
"""

import json
import pathlib

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize

HALVES = np.array([0x211F, 0xA51F, 0x0000, 0x8001, 0x03FF, 0x7BFF], dtype=np.uint16)
# Where a block has f16 scales.
SCALES = {Type.Q8_0: [0], Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q2_K: [80, 82],
          Type.Q3_K: [108], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208], Type.IQ4_NL: [0], Type.IQ4_XS: [0],
          Type.IQ3_S: [0], Type.IQ3_XXS: [0], Type.IQ2_S: [0], Type.IQ2_XS: [0], Type.IQ2_XXS: [0], Type.IQ1_S: [0],
          Type.IQ1_M: [], Type.TQ1_0: [52], Type.TQ2_0: [64], Type.MXFP4: [], Type.NVFP4: []}


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def put_scales(kind, blocks, random):
    for i, block in enumerate(blocks):
        for place in SCALES[kind]:
            block[place:place + 2] = HALVES[i:i + 1].view(np.uint8)
        if kind == Type.MXFP4:
            block[0] = [120, 0, 1, 2, 250, 127][i]
        if kind == Type.NVFP4:
            block[:4] = [[56, 0, 1, 126], [127, 8, 7, 64], [0, 0, 0, 0], [1, 2, 3, 4], [126, 126, 126, 126],
                         random.integers(0, 127, 4)][i]
        if kind == Type.IQ1_M:  # four bits in each of four words
            for word in range(4):
                nibble = int(HALVES[i]) >> 4 * word & 0xF
                block[49 + 2 * word] = block[49 + 2 * word] & 0xF | nibble << 4


def main():
    random = np.random.default_rng(5)
    x = random.standard_normal(256).astype(np.float32)
    x[:32] = 0
    x[40] = 30
    x[64:96] *= 1e-3
    x = np.float32(np.round(x, 5))

    reference = {"x": [float(v) for v in x], "quantized": {}, "dequantized": {}}
    for kind in (Type.Q8_0, Type.Q4_0, Type.MXFP4):
        reference["quantized"][kind.name] = quantize(x, kind).tobytes().hex()
    for kind in SCALES:
        blocks = random.integers(0, 256, (len(HALVES), GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
        put_scales(kind, blocks, random)
        with np.errstate(over="ignore"):
            values = [dequantize(block, kind).astype("<f4") for block in blocks]
        reference["dequantized"][kind.name] = {"blocks": blocks.tobytes().hex(), "hashes": [fnv1a(v.tobytes()) for v in values]}
    path = pathlib.Path(__file__).with_name("gguf_blocks.json")
    path.write_text(json.dumps(reference) + "\n")


if __name__ == "__main__":
    main()
