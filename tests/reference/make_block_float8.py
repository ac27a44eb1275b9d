#!/usr/bin/env python3
"""Writes block_float8.json beside this file: blockwise float8 casts as TorchAO's (0.18) reference functions make them.

Usage: make_block_float8.py

The matrix is a function of its indices, so that a test computes it too (tests/recipes/block_float8_test.cpp). Scales
are listed as the bits of f32; of the codes there is a checksum (FNV-1a of their bytes, 64 bits).
"""

import json
import pathlib

import torch
from torchao.prototype.blockwise_fp8_training import kernels

ROWS, COLUMNS = 384, 256


def mixed(i):
    """An unsigned 32-bit number that looks random."""
    i = (i ^ (i >> 16)) * 0x85EBCA6B & 0xFFFFFFFF
    i = (i ^ (i >> 13)) * 0xC2B2AE35 & 0xFFFFFFFF
    return i ^ (i >> 16)


def element(r, c):
    """Eight bits of mantissa: a bf16 value."""
    bits = mixed(r * COLUMNS + c + 1)
    return ((bits >> 24) - 128) / 2 ** (bits % 12)


def checksum(codes):
    value = 0xCBF29CE484222325
    for byte in codes.contiguous().view(torch.uint8).flatten().tolist():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def described(codes, scales):
    """Both in memory order."""
    return {"codes": checksum(codes), "scales": scales.contiguous().view(torch.int32).flatten().tolist()}


x = torch.tensor([[element(r, c) for c in range(COLUMNS)] for r in range(ROWS)], dtype=torch.bfloat16)
lhs, lhs_scales = kernels.torch_blockwise_scale_act_quant_lhs(x)
rhs, rhs_scales = kernels.torch_blockwise_scale_act_quant_rhs(x)
weight, weight_scales = kernels.torch_blockwise_scale_weight_quant(x)
pathlib.Path(__file__).with_name("block_float8.json").write_text(
    json.dumps(
        {
            "rows": described(lhs, lhs_scales.T),
            "columns": described(rhs.T, rhs_scales),
            "squares": described(weight, weight_scales),
        },
        separators=(",", ":"),
    )
    + "\n"
)
