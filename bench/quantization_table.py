#!/usr/bin/env python3
"""Table of quantization schemes: size, perplexity, who loads them. Markdown for docs/export.md.

Usage: quantization_table.py --quench PROGRAM --model FOLDER --data FILE [--calibration FILE] [--device cpu] [--seq-len N]
                             [--samples N] [SCHEME[:METHOD[:FORMAT]] ...]

FOLDER is any model folder or run, FILE a text. Without schemes, a selection. Methods that need calibration data are left
out where no --calibration is named.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

SELECTION = [
    "int8_weight_only", "int8dyn_int8", "int8dyn_int8:smoothquant", "float8_weight_only", "float8_dynamic",
    "float8_static", "float8_dynamic_block", "int4_weight_only_g128", "int4_weight_only_g128:hqq",
    "int4_weight_only_g128:gptq", "int4_weight_only_g128:awq", "int4_weight_only_g32", "int4_weight_only_g32:hqq",
    "int4_weight_only_g32:gptq", "int4_weight_only_g32:awq", "int4_weight_only_g32_asym", "int8dyn_int4_g32",
    "float8dyn_int4_g128", "int3_weight_only_g64", "int3_weight_only_g64:gptq", "int3_weight_only_g64:awq", "mxfp8",
    "mxfp6", "mxfp4", "mxfp4:gptq", "nvfp4_weight_only", "nvfp4_weight_only:gptq", "nvfp4",
    "q8_0::gguf", "q6_k::gguf", "q4_k::gguf", "q4_0::gguf",
]
LOADERS = {
    "compressed-tensors": "vLLM, SGLang, Transformers, Quench",
    "torchao": "Transformers with torchao",
    "gguf": "llama.cpp, Quench",
    "hf": "all",
}
CALIBRATED_SCHEMES = ("float8_static", "int8static_int8", "nvfp4")
CALIBRATED_METHODS = ("gptq", "awq", "smoothquant", "smoothquant_gptq")


def run(*arguments):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def weights_size(folder):
    return sum(f.stat().st_size for f in pathlib.Path(folder).iterdir() if f.suffix in (".safetensors", ".gguf"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quench", default="build/quench")
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--calibration")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seq-len", default="0")
    parser.add_argument("--samples", default="128")
    parser.add_argument("schemes", nargs="*")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as work:
        status, _, errors = run(options.quench, "export", "--model", options.model, "--output", f"{work}/dense", "--dtype", "bf16")
        if status != 0:
            raise SystemExit(errors)
        dense = weights_size(f"{work}/dense")
        status, output, errors = run(options.quench, "eval", "--model", f"{work}/dense", "--data", options.data, "--json",
                                     "--device", options.device)
        if status != 0:
            raise SystemExit(errors)
        before = json.loads(output)["token_perplexity"]
        print("| scheme | method | format | MB | of bf16 | perplexity | change | loads in |")
        print("|---|---|---|---|---|---|---|---|")
        print(f"| bf16 | | hf | {dense / 1e6:.2f} | 1.00 | {before:.4f} | | {LOADERS['hf']} |", flush=True)
        for entry in options.schemes or SELECTION:
            scheme, method, form = (entry.split(":") + ["", ""])[:3]
            method, form = method or "rtn", form or "compressed-tensors"
            command = [options.quench, "quantize", "--model", f"{work}/dense", "--scheme", scheme, "--method", method,
                       "--format", form, "--output", f"{work}/out", "--perplexity", options.data, "--json",
                       "--device", options.device]
            if scheme in CALIBRATED_SCHEMES or method in CALIBRATED_METHODS:
                if not options.calibration:
                    continue
                command += ["--calibration", options.calibration, "--calibration-samples", options.samples,
                            "--calibration-seq-len", options.seq_len]
            status, output, errors = run(*command)
            if status != 0:
                print(f"| `{scheme}` | {method} | {form} | | | {errors.strip().splitlines()[-1]} | | |", flush=True)
                continue
            after, size = json.loads(output)["perplexity"], weights_size(f"{work}/out")
            print(f"| `{scheme}` | {method} | {form} | {size / 1e6:.2f} | {size / dense:.2f} | {after:.4f} |"
                  f" {100 * (after / before - 1):+.2f}% | {LOADERS[form]} |", flush=True)


main()
