#!/usr/bin/env python3
"""Writes blocked_scales.json beside this file: block scales in 128 x 4 tiles as TorchAO (0.18) makes them.

Usage: make_blocked_scales.py

"matrices" are outputs of to_blocked for bytes that are a function of their index; "mx" and "nvfp4" are the scales of
TorchAO's casts of one matrix, swizzled by the cast. Listed as checksums (FNV-1a of the bytes, 64 bits). Tests compute
the same inputs (tests/core/ops/quantize/blocked_scales_test.cpp).
"""

import json
import pathlib

import torch
from torchao.prototype.mx_formats import mx_tensor, nvfp4_tensor, utils
from torchao.prototype.mx_formats.config import ScaleCalculationMode

SHAPES = [(128, 4), (256, 8), (1, 1), (3, 5), (127, 3), (129, 4), (200, 8), (130, 13), (384, 2), (513, 66), (32, 257)]
ROWS, COLUMNS = 200, 416  # 13 scales a row for MX, 26 for NVFP4


def mixed(i):
    """An unsigned 32-bit number that looks random."""
    i = (i ^ (i >> 16)) * 0x85EBCA6B & 0xFFFFFFFF
    i = (i ^ (i >> 13)) * 0xC2B2AE35 & 0xFFFFFFFF
    return i ^ (i >> 16)


def element(i):
    """Eight bits of mantissa: a bf16 value."""
    bits = mixed(i + 1)
    return ((bits >> 24) - 128) / 2 ** (bits % 12)


def described(tensor):
    data = tensor.contiguous().view(torch.uint8).flatten().tolist()
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return {"bytes": len(data), "checksum": f"{value:016x}"}


matrices = []
for rows, columns in SHAPES:
    scales = torch.tensor([mixed(i + 1) >> 24 for i in range(rows * columns)], dtype=torch.uint8).view(rows, columns)
    blocked = utils.to_blocked(scales)
    assert torch.equal(utils.from_blocked(blocked, rows, columns), scales)
    matrices.append({"rows": rows, "columns": columns, **described(blocked)})

x = torch.tensor([element(i) for i in range(ROWS * COLUMNS)], dtype=torch.bfloat16).view(ROWS, COLUMNS)
mx = mx_tensor.MXTensor.to_mx(
    x, torch.float8_e4m3fn, 32, ScaleCalculationMode.RCEIL, is_swizzled_scales=True
)
nvfp4 = nvfp4_tensor.NVFP4Tensor.to_nvfp4(
    x,
    per_tensor_scale=nvfp4_tensor.per_tensor_amax_to_scale(x.abs().max()),
    is_swizzled_scales=True,
)
pathlib.Path(__file__).with_name("blocked_scales.json").write_text(
    json.dumps(
        {"matrices": matrices, "mx": described(mx.scale), "nvfp4": described(nvfp4.scale)},
        separators=(",", ":"),
    )
    + "\n"
)
