#!/usr/bin/env python3
"""GGUF exports beside llama.cpp: perplexity and logits of the same tokens.

Usage: check_llama.py QUENCH FOLDER   where FOLDER holds a model folder "model". Needs llama-cpp-python and safetensors.
"""

import pathlib
import subprocess
import sys

import numpy as np
from llama_cpp import Llama
from safetensors.numpy import load_file, save_file

QUENCH, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
NAMES = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q6_k", "mxfp4_gguf", "int4_weight_only_g32"]
failures = 0


def quench(*arguments):
    done = subprocess.run([QUENCH, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, arguments))}: {done.stderr}")
    return done.stdout


def perplexity(logits, ids):
    shifted = logits[:-1] - logits[:-1].max(-1, keepdims=True)
    chosen = np.take_along_axis(shifted, ids[1:, None], -1)[:, 0] - np.log(np.exp(shifted).sum(-1))
    return float(np.exp(-chosen.mean()))


text = pathlib.Path("README.md").read_text()[:1500]
for name in NAMES:
    folder = FOLDER / f"llama-{name}"
    dense = name in ("f32", "f16", "bf16")
    quench("export", "--model", FOLDER / "model", "--format", "gguf", "--output", folder,
           *(["--dtype", name] if dense else ["--scheme", name, "--dtype", "f32"]))
    model = Llama(str(folder / "model.gguf"), n_ctx=512, logits_all=True, verbose=False)
    ids = np.array(model.tokenize(text.encode(), add_bos=False), dtype=np.int64)[:300]
    model.eval(ids.tolist())
    theirs = np.array(model.scores[: len(ids)], dtype=np.float32)
    save_file({"input_ids": ids[None]}, FOLDER / "ids.safetensors")
    quench("forward", "--model", folder, "--input", FOLDER / "ids.safetensors", "--output", FOLDER / "logits.safetensors",
           "--overwrite", "--device", "cpu", "--dtype", "f32")
    ours = load_file(FOLDER / "logits.safetensors")["logits"][0]
    apart = float(np.linalg.norm(theirs - ours) / np.linalg.norm(ours))
    a, b = perplexity(theirs, ids), perplexity(ours, ids)
    ok = abs(a / b - 1) < 0.005
    failures += not ok
    print(f"{'ok  ' if ok else 'FAIL'} {name}: perplexity {a:.3f}, ours {b:.3f}; logits differ by {apart:.1e}", flush=True)
print(f"{failures} failures")
sys.exit(failures > 0)
