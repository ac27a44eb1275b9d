#!/usr/bin/env python3
"""Writes gguf_blocks.json beside this file: blocks and values of the Python package gguf (0.19).

Usage: make_gguf_blocks.py
"""

import json
import pathlib

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize

random = np.random.default_rng(5)
x = random.standard_normal(256).astype(np.float32)
x[:32] = 0
x[40] = 30
x[64:96] *= 1e-3
x = np.float32(np.round(x, 5))

reference = {"x": [float(v) for v in x], "quantized": {}, "dequantized": {}}
for kind in (Type.Q8_0, Type.Q4_0, Type.MXFP4):
    reference["quantized"][kind.name] = quantize(x, kind).tobytes().hex()
for kind, size in ((Type.Q8_0, 34), (Type.Q4_0, 18), (Type.MXFP4, 17), (Type.Q4_K, 144), (Type.Q6_K, 210),
                   (Type.Q4_1, 20), (Type.Q5_0, 22), (Type.Q5_1, 24)):
    count = 2 if size < 100 else 1
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    # Scales of an ordinary size.
    half = np.frombuffer(np.float16([0.01, 0.02]).tobytes(), dtype=np.uint8)
    if kind == Type.MXFP4:
        blocks[:, 0] = 120
    elif kind == Type.Q6_K:
        blocks[:, 208:] = half[:2]
    elif kind in (Type.Q4_K, Type.Q4_1, Type.Q5_1):
        blocks[:, :4] = half
    else:
        blocks[:, :2] = half[:2]
    values = dequantize(blocks.reshape(-1), kind)
    reference["dequantized"][kind.name] = {"blocks": blocks.tobytes().hex(), "values": [float(v) for v in values]}
path = pathlib.Path(__file__).with_name("gguf_blocks.json")
path.write_text(json.dumps(reference) + "\n")
