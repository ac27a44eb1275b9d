#!/usr/bin/env python3
"""2:4 sparse exports of the program, read by compressed-tensors 0.13, the last release line with sparse-24-bitmask.

Usage: check_sparse.py QUENCH FOLDER   where FOLDER holds a model folder "model" and receives everything else.
Prints a line for each export and exits 1 when one differs.
"""

import json
import pathlib
import subprocess
import sys

import torch
from compressed_tensors.compressors import ModelCompressor
from safetensors.torch import load_file

QUENCH, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
MODEL = FOLDER / "model"


def quench(*arguments):
    done = subprocess.run([QUENCH, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, arguments))}: {done.stderr}")


failures = 0
dense = load_file(MODEL / "model.safetensors")
for rule in ("2:4", "2:4_transposable"):
    for dtype in ("f32", "bf16"):
        folder = FOLDER / f"sparse-{rule.replace(':', '')}-{dtype}"
        quench("export", "--model", MODEL, "--format", "sparse24", "--sparsity", rule, "--dtype", dtype, "--output", folder)
        quench("export", "--model", folder, "--output", f"{folder}-values", "--dtype", dtype)
        ours = load_file(pathlib.Path(f"{folder}-values") / "model.safetensors")
        config = json.loads((folder / "config.json").read_text())["quantization_config"]
        compressor = ModelCompressor.from_compression_config(config)
        theirs = dict(compressor.sparsity_compressor.decompress(str(folder)))
        compared = pruned = 0
        ok = set(theirs) == set(ours)
        for name, value in theirs.items():
            ok = ok and torch.equal(value, ours[name])
            compared += 1
            if name.endswith("_proj.weight"):
                kept = value != 0
                ok = ok and int(kept.view(-1, 4).sum(1).max()) <= 2
                if rule == "2:4":
                    largest = dense[name].to(value.dtype).abs().view(-1, 4).topk(2, dim=1).values.sum()
                    ok = ok and torch.equal(value.abs().view(-1, 4).topk(2, dim=1).values.sum(), largest)
                else:
                    ok = ok and int(kept.T.reshape(-1, 4).sum(1).max()) <= 2
                pruned += 1
        ok = ok and pruned > 0
        failures += not ok
        print(f"{'ok  ' if ok else 'FAIL'} sparse24 {rule} {dtype}: {compared} tensors equal, {pruned} of them pruned", flush=True)
sys.exit(failures > 0)
