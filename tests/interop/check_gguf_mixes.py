#!/usr/bin/env python3
"""Mixes of GGUF types on SmolLM2-135M: types and sizes of the program's files against those of llama.cpp's own code
(tests/reference/gguf_mixes.json), and perplexities beside files of the same types that llama.cpp's quantizers fill.

Usage: check_gguf_mixes.py QUENCH FOLDER MODEL TEXT [CALIBRATION [MIX ...]]   MODEL: a folder of SmolLM2-135M(-Instruct); files
                                                    go to FOLDER. Needs gguf, numpy, xllamacpp
With CALIBRATION both quantizers get the importance matrix that the program computes on it. Prints a row for each mix, with KL
divergences from MODEL (`quench eval --reference`), and exits 1 when a type differs or the program's perplexity exceeds
llama.cpp's by more than 0.3%.
"""

import collections
import ctypes
import json
import pathlib
import shutil
import subprocess
import sys

import gguf
import numpy as np
import xllamacpp
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize

QUENCH, FOLDER, MODEL, TEXT = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4]
CALIBRATION = sys.argv[5] if len(sys.argv) > 5 else ""
MIXES = sys.argv[6:] or ["q8_0", "q6_k", "q5_k_m", "q4_k_m", "iq4_xs", "q4_0", "q3_k_m", "q2_k"]
REFERENCE = pathlib.Path(__file__).parents[1] / "reference/gguf_mixes.json"
library = ctypes.CDLL(str(next(pathlib.Path(xllamacpp.__file__).parent.glob("xllamacpp*.so"))))
library.ggml_quantize_chunk.restype = ctypes.c_size_t
library.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]


def run(*arguments):
    done = subprocess.run([QUENCH, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"quench {' '.join(map(str, arguments))}: {done.stderr}")
    return done.stdout


def expected_types(mix):
    rows = json.loads(REFERENCE.read_text())["models"]["smollm2"]["mixes"]
    types = {}
    for name, runs in rows.get(mix + "+matrix" * bool(CALIBRATION), rows[mix]).items():
        layer = 0
        for one in runs.split():
            kind, count = one.split("*")
            for _ in range(int(count)):
                types[name if name.startswith("token") else f"blk.{layer}.{name}"] = kind.rstrip("!")
                layer += 1
    return types


def write_theirs(ours, source, matrix, output):
    """The same file with the blocks of llama.cpp's quantizers."""
    shutil.copy(ours, output)
    with output.open("r+b") as file:
        for tensor in gguf.GGUFReader(ours).tensors:
            if tensor.tensor_type in (Type.F32, Type.F16, Type.BF16):
                continue
            values = np.ascontiguousarray(dequantize(source[tensor.name].data, source[tensor.name].tensor_type))
            blocks = np.zeros(tensor.n_bytes, np.uint8)
            importance = matrix.get(tensor.name)
            library.ggml_quantize_init(ctypes.c_int(tensor.tensor_type))
            library.ggml_quantize_chunk(tensor.tensor_type, values.ctypes.data, blocks.ctypes.data, 0, *values.shape,
                                        None if importance is None else importance.ctypes.data)
            file.seek(tensor.data_offset)
            file.write(blocks.tobytes())


def quality(*models):
    """Word perplexity and KL divergence from MODEL of each."""
    options = [part for model in models for part in ("--model", model)]
    results = json.loads(run("eval", *options, "--reference", MODEL, "--data", TEXT, "--seq-len", 512, "--json"))
    return [(one["word_perplexity"], one["divergence"]["mean"]) for one in (results if type(results) is list else [results])]


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    run("export", "--model", MODEL, "--format", "gguf", "--dtype", "bf16", "--overwrite", "--output", FOLDER / "base.gguf")
    source = {tensor.name: tensor for tensor in gguf.GGUFReader(FOLDER / "base.gguf").tensors}
    options, matrix, failures = [], {}, 0
    if CALIBRATION:
        run("quantize", "--model", MODEL, "--format", "gguf", "--scheme", "q8_0", "--calibration", CALIBRATION,
            "--calibration-samples", 24, "--calibration-seq-len", 512, "--save-imatrix", FOLDER / "imatrix.gguf",
            "--overwrite", "--output", FOLDER / "any.gguf")
        options = ["--imatrix", FOLDER / "imatrix.gguf"]
        found = {tensor.name: tensor.data for tensor in gguf.GGUFReader(FOLDER / "imatrix.gguf").tensors}
        matrix = {name[:-8]: np.ascontiguousarray(values[0] / found[name[:-8] + ".counts"][0])
                  for name, values in found.items() if name.endswith(".in_sum2")}
    print(f"bf16 {quality(MODEL)[0][0]:.3f}, matrix: {'24 x 512 tokens' if CALIBRATION else 'none'}")
    print(f"{'mix':8} {'MB':>7} {'quench':>8} {'llama.cpp':>9} {'ratio':>7} {'divergences':>17} {'ratio':>7}  types")
    for mix in MIXES:
        ours, theirs = FOLDER / f"{mix}.gguf", FOLDER / f"{mix}-llama.gguf"
        run("quantize", "--model", MODEL, "--format", "gguf", "--scheme", mix, "--overwrite", "--output", ours, *options)
        types = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(ours).tensors}
        expected = expected_types(mix)
        wrong = [f"{name}: {types[name]}, expected {kind}" for name, kind in expected.items() if types[name] != kind]
        write_theirs(ours, source, matrix, theirs)
        (own, own_divergence), (other, other_divergence) = quality(ours, theirs)
        good = not wrong and own <= other * 1.003
        failures += not good
        counts = ", ".join(f"{kind} {count}" for kind, count in collections.Counter(expected.values()).most_common())
        print(f"{mix:8} {ours.stat().st_size / 1e6:7.2f} {own:8.3f} {other:9.3f} {own / other:7.4f} {own_divergence:8.5f} "
              f"{other_divergence:8.5f} {own_divergence / other_divergence:7.4f}  {counts} "
              f"{wrong[0] if wrong else 'all equal'}{'' if good else '  FAIL'}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
