#!/usr/bin/env python3
"""Quantized folders of the program next to those of llm-compressor: one model, one scheme, the same calibration tokens, one
evaluator (the program's, word perplexity in windows of 1024 tokens). Prints a Markdown table.

Usage: compare_llmcompressor.py QUENCH FOLDER MODEL TEXT CALIBRATION [--samples N] [--length N] [--theirs] [NAME ...]
  FOLDER       receives all folders; what lies there is not computed again
  MODEL        model folder in bf16 or f32, as Transformers reads it
  TEXT         text of the perplexity
  CALIBRATION  another text, whose first N sequences (48) of N tokens (512) calibrate both
  --theirs     write llm-compressor's folders and end
  NAME         "SCHEME METHOD" of the program (default: all below)
Exits 1 where a perplexity exceeds that of llm-compressor's folder, or its bytes exceed theirs by more than 1%. Needs
llmcompressor.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np

GROUP = 64


def integers(bits, group=GROUP, symmetric=True):
    return {"num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": "group", "group_size": group}


# By the program's scheme: weights of llm-compressor, a preset or arguments.
SCHEMES = {f"int4_weight_only_g{GROUP}": integers(4), f"int3_weight_only_g{GROUP}": integers(3),
           f"int4_weight_only_g{GROUP}_asym": integers(4, symmetric=False), "nvfp4_weight_only": "NVFP4A16"}
ROWS = [(f"int4_weight_only_g{GROUP}", "gptq"), (f"int4_weight_only_g{GROUP}", "awq"), (f"int3_weight_only_g{GROUP}", "gptq"),
        (f"int3_weight_only_g{GROUP}", "awq"), ("nvfp4_weight_only", "rtn"), ("nvfp4_weight_only", "gptq"),
        ("nvfp4_weight_only", "awq"), (f"int4_weight_only_g{GROUP}_asym", "awq")]

parser = argparse.ArgumentParser(usage=__doc__)
for name in ("quench", "folder", "model", "text", "calibration"):
    parser.add_argument(name, type=lambda path: pathlib.Path(path).resolve())
parser.add_argument("--samples", type=int, default=48)
parser.add_argument("--length", type=int, default=512)
parser.add_argument("--theirs", action="store_true")
parser.add_argument("names", nargs="*", default=[" ".join(row) for row in ROWS])
given = parser.parse_intermixed_args()


def run(*arguments):
    done = subprocess.run([str(argument) for argument in arguments], capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
    return done.stdout


def tokens():
    """Calibration tokens of both, in a file that the program reads."""
    file = given.folder / "calibration.npy"
    if not file.exists():
        from transformers import AutoTokenizer
        ids = AutoTokenizer.from_pretrained(given.model)(given.calibration.read_text(), add_special_tokens=False).input_ids
        count = given.samples * given.length
        assert len(ids) >= count, f"{given.calibration} has {len(ids)} tokens, {count} are needed"
        np.save(file, np.array(ids[:count], np.int32))
    return file


def theirs(scheme, method):
    folder = given.folder / f"{scheme}-{method}-llmcompressor"
    if (folder / "config.json").exists():
        return folder
    import torch
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.gptq import GPTQModifier
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from llmcompressor.modifiers.transform.awq import AWQModifier
    from transformers import AutoModelForCausalLM
    if not torch.cuda.is_available():
        torch.Tensor.pin_memory = lambda self, device=None: self  # which its cache of activations calls
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    ids = np.load(tokens()).reshape(given.samples, given.length)
    data = Dataset.from_list([{"input_ids": row.tolist(), "attention_mask": [1] * given.length} for row in ids])
    weights = SCHEMES[scheme]
    what = {"scheme": weights, "targets": "Linear"} if isinstance(weights, str) else {
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}
    what["ignore"] = ["lm_head"]
    recipe = GPTQModifier(**what) if method == "gptq" else QuantizationModifier(**what)
    began = time.monotonic()
    model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.bfloat16)
    oneshot(model=model, recipe=[AWQModifier(), recipe] if method == "awq" else recipe, dataset=data,
            max_seq_length=given.length, num_calibration_samples=given.samples)
    partial = folder.with_suffix(".partial")
    model.save_pretrained(partial, save_compressed=True)
    for file in given.model.glob("tokenizer*"):
        shutil.copy(file, partial)
    (partial / "seconds").write_text(str(time.monotonic() - began))
    partial.rename(folder)
    return folder


def ours(scheme, method):
    folder = given.folder / f"{scheme}-{method}"
    if not (folder / "config.json").exists() or folder.stat().st_mtime < given.quench.stat().st_mtime:
        calibration = [] if method in ("rtn", "mse", "hqq") else [
            "--calibration", tokens(), "--calibration-samples", given.samples, "--calibration-seq-len", given.length]
        run(given.quench, "quantize", "--model", given.model, "--scheme", scheme, "--method", method, *calibration, "--output",
            folder)
    return folder


def perplexity(folder):
    score = folder.with_name(folder.name + ".json")
    if not score.exists() or score.stat().st_mtime < (folder / "config.json").stat().st_mtime:
        score.write_text(run(given.quench, "eval", "--model", folder, "--data", given.text, "--seq-len", 1024, "--device",
                             "cpu", "--json"))
    return json.loads(score.read_text())["word_perplexity"]


def megabytes(folder):
    return sum(file.stat().st_size for file in folder.glob("*.safetensors")) / 1e6


def main():
    given.folder.mkdir(parents=True, exist_ok=True)
    os.chdir(given.folder)  # llm-compressor's log
    rows = [tuple(name.split()) for name in given.names]
    if given.theirs:
        for row in rows:
            print(row, theirs(*row), flush=True)
        return 0
    print("| scheme | method | MB | perplexity | difference |")
    print("|---|---|---|---|---|")
    failures = 0
    for scheme, method in rows:
        pair = ours(scheme, method), theirs(scheme, method)
        (a, b), (x, y) = map(perplexity, pair), map(megabytes, pair)
        good = a <= b and x <= 1.01 * y
        failures += not good
        print(f"| `{scheme}` | {method} | {x:.1f} / {y:.1f} | {a:.2f} / {b:.2f} | {100 * (a / b - 1):+.1f}% |"
              f"{'' if good else ' FAIL'}", flush=True)
    print(f"\n{failures} failures")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
