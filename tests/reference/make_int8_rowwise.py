#!/usr/bin/env python3
"""Writes int8_rowwise.json beside this file: int8 mixed-precision training of a linear layer as TorchAO (0.18) does it.

Usage: make_int8_rowwise.py

Codes and scales by TorchAO's quantize_int8_rowwise; the GEMMs follow its Triton kernel (int8_mm.py), which needs a GPU:
s32 sums, f32(sum) * row scale * column scale, rounded to the dtype of the scales. wgrad is (x^T dy)^T, as in
int8_mixed_precision.py. Matrices are functions of their indices, so that a test computes them too
(tests/recipes/int8_rowwise_test.cpp). Values are listed as the bits of their dtype; of the codes there is a checksum.
"""

import json
import pathlib

import torch
from torchao.prototype.quantized_training.int8 import quantize_int8_rowwise

M, N, K = 24, 16, 32


def mixed(i):
    """An unsigned 32-bit number that looks random."""
    i = (i ^ (i >> 16)) * 0x85EBCA6B & 0xFFFFFFFF
    i = (i ^ (i >> 13)) * 0xC2B2AE35 & 0xFFFFFFFF
    return i ^ (i >> 16)


def matrix(rows, columns, first, dtype):
    """Eight bits of mantissa: bf16 values. Row 5 is zero."""

    def element(i):
        bits = mixed(i + first)
        return ((bits >> 24) - 128) / 2 ** (bits % 6)

    values = torch.tensor([[element(r * columns + c) for c in range(columns)] for r in range(rows)])
    values[5] = 0
    return values.to(dtype)


def checksum(codes):
    value = 0xCBF29CE484222325
    for byte in codes.contiguous().view(torch.uint8).flatten().tolist():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def bits(values):
    integers = {torch.float32: torch.int32, torch.bfloat16: torch.int16}[values.dtype]
    return values.contiguous().view(integers).flatten().tolist()


def product(a, b):
    """a @ b, both quantized."""
    left, rows = quantize_int8_rowwise(a)
    right, columns = quantize_int8_rowwise(b.T)
    sums = left.int() @ right.int().T
    return (sums.float() * rows.float().view(-1, 1) * columns.float()).to(rows.dtype)


def layer(dtype):
    x, w, dy = matrix(M, K, 1, dtype), matrix(N, K, 100_001, dtype), matrix(M, N, 200_001, dtype)
    codes, scales = quantize_int8_rowwise(x)
    columns, column_scales = quantize_int8_rowwise(x.T)
    return {
        "rows": {"codes": checksum(codes), "scales": bits(scales)},
        "columns": {"codes": checksum(columns), "scales": bits(column_scales)},
        "y": bits(product(x, w.T)),
        "dx": bits(product(dy, w)),
        "dw": bits(product(x.T, dy).T),
    }


pathlib.Path(__file__).with_name("int8_rowwise.json").write_text(
    json.dumps({"f32": layer(torch.float32), "bf16": layer(torch.bfloat16)}, separators=(",", ":")) + "\n"
)
