#!/usr/bin/env python3
"""Log-probabilities of GGUF files in the program and in llama.cpp: of the same file, whose inputs llama.cpp's CPU kernels round to
8 bits, and of the file that llama-quantize dequantizes to f32, where both compute in f32.

Usage: compare_llama_logits.py QUENCH TOOLS FOLDER TEXT MODEL [SCHEME | FILE.gguf ...]
  TOOLS   folder with llama-quantize and llama-perplexity
  FOLDER  receives the files, MODEL quantized to each scheme (default: q8_0, q4_0, q4_k_m)
  TEXT    whose first two windows of 256 tokens are read
Prints a row for each file and exits 1 where an f32 log-probability within 12 of the largest differs by more than 1e-3 (llama.cpp
stores them in steps of about 2.4e-4). Needs numpy, safetensors
"""

import pathlib
import struct
import subprocess
import sys

import numpy as np
from safetensors.numpy import load_file, save_file

QUENCH, TOOLS, FOLDER, TEXT, MODEL = (pathlib.Path(path).resolve() for path in sys.argv[1:6])
FILES = sys.argv[6:] or ["q8_0", "q4_0", "q4_k_m"]
WINDOW, WINDOWS = 256, 2
MOST, RANGE = 1e-3, 12.0


def run(*arguments):
    done = subprocess.run([str(argument) for argument in arguments], capture_output=True, text=True, errors="replace", cwd=FOLDER)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-1000:]}")


def theirs(model):
    """Tokens [windows, WINDOW] and log-probabilities of the second half of each window, from llama.cpp's file of logits."""
    run(TOOLS / "llama-perplexity", "-m", model, "-f", TEXT, "-c", WINDOW, "-b", WINDOW, "--chunks", WINDOWS, "-ctk", "f32", "-ctv",
        "f32", "-fa", "off", "--no-repack", "--kl-divergence-base", "logits.bin")
    data = (FOLDER / "logits.bin").read_bytes()
    assert data[:8] == b"_logits_", "llama-perplexity's file of logits has another form"
    window, vocabulary, windows = struct.unpack("<3i", data[8:20])
    tokens = np.frombuffer(data, np.int32, windows * window, 20).reshape(windows, window)
    width, rows = 2 * ((vocabulary + 1) // 2) + 4, window - 1 - window // 2  # of a row: scale, least value, codes
    stored = np.frombuffer(data, np.uint16, windows * rows * width, 20 + 4 * tokens.size).reshape(windows, rows, width)
    factors = np.ascontiguousarray(stored[..., :4]).view(np.float32)
    return tokens, factors[..., :1] * stored[..., 4:4 + vocabulary].astype(np.float32) + factors[..., 1:]


def ours(model, tokens):
    found = []
    for row in tokens:
        save_file({"input_ids": row[None].astype(np.int64)}, FOLDER / "ids.safetensors")
        run(QUENCH, "forward", "--model", model, "--input", "ids.safetensors", "--output", "logits.safetensors", "--overwrite",
            "--device", "cpu", "--dtype", "f32")
        logits = load_file(FOLDER / "logits.safetensors")["logits"][0, len(row) // 2:-1].astype(np.float64)
        shifted = logits - logits.max(-1, keepdims=True)
        found.append(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))
    return np.stack(found)


def differences(model, file):
    tokens, other = theirs(model)
    own = ours(file, tokens)
    near = other > other.max(-1, keepdims=True) - RANGE
    return np.abs(own - other)[near], float((own.argmax(-1) == other.argmax(-1)).mean())


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    print("| file | f32: largest difference | top-1 | as it is: largest | mean | top-1 |\n|---|---|---|---|---|---|")
    failures = 0
    for name in FILES:
        file = pathlib.Path(name).resolve() if name.endswith(".gguf") else FOLDER / f"{name}.gguf"
        if not file.exists():
            run(QUENCH, "quantize", "--model", MODEL, "--format", "gguf", "--scheme", name, "--output", file)
        wide = FOLDER / "f32.gguf"
        run(TOOLS / "llama-quantize", "--allow-requantize", "--pure", file, wide, "F32")
        (exact, top), (rounded, rounded_top) = differences(wide, file), differences(file, file)
        good = exact.max() <= MOST
        failures += not good
        print(f"| {file.name} | {exact.max():.1e} | {top:.1%} | {rounded.max():.2f} | {rounded.mean():.3f} | {rounded_top:.1%} |"
              f"{'' if good else ' FAIL'}", flush=True)
    print(f"\n{failures} failures")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
