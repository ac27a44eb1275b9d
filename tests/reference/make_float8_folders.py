#!/usr/bin/env python3
"""Writes float8_folders.json beside this file: weights of quant_method "fp8" as Transformers dequantizes them: blocks that
the sizes do not divide, one scale a tensor, powers of two as F8_E8M0.

    pip install torch transformers
    python tests/reference/make_float8_folders.py
"""

import json
import pathlib

import torch
from transformers.integrations.finegrained_fp8 import _dequantize_fp8_weight

ROWS, COLUMNS = 6, 10


def case(block, scales):
    codes = torch.randint(0, 256, (ROWS, COLUMNS), dtype=torch.uint8)
    codes[codes & 0x7F == 0x7F] = 0  # NaN
    weight = codes.view(torch.float8_e4m3fn)
    values = _dequantize_fp8_weight(weight, scales, block, torch.float32)
    return {"weight_block_size": block, "dtype": str(scales.dtype).removeprefix("torch."), "codes": codes.flatten().tolist(),
            "scales_shape": list(scales.shape), "scales": scales.view(torch.uint8).flatten().tolist() if scales.dim() else
            scales.reshape(1).view(torch.uint8).tolist(), "values": values.flatten().tolist()}


def main():
    torch.manual_seed(3)
    cases = [case([4, 4], torch.rand(2, 3) * 0.01 + 0.001), case(None, torch.rand(()) * 0.01), case(None, torch.rand(1) * 0.01),
             case([4, 4], torch.rand(2, 3).to(torch.bfloat16)),
             case([4, 4], torch.randint(118, 130, (2, 3), dtype=torch.uint8).view(torch.float8_e8m0fnu))]
    path = pathlib.Path(__file__).with_name("float8_folders.json")
    path.write_text(json.dumps(cases).replace('{"weight_block_size"', '\n{"weight_block_size"') + "\n")


if __name__ == "__main__":
    main()
