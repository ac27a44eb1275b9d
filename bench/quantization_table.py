#!/usr/bin/env python3
"""Table of quantization schemes: size, perplexity, HellaSwag, speed of generation, who loads them. Markdown for
docs/lab/2026-11-23-quantization.md.

Usage: quantization_table.py --model FOLDER --data FILE [--quench PROGRAM] [--calibration FILE] [--hellaswag FILE]
                             [--limit N] [--device cuda] [--speed cpu,cuda] [--tokens N] [--samples N] [--seq-len N]
                             [--jobs N]
                             [SCHEME[:METHOD[:FORMAT]] ...]

FOLDER is any model folder or run with a tokenizer, FILE a text. Without schemes, a selection. Methods that need
calibration data are left out where no --calibration is named. --device runs calibration and evaluation; --speed names
the devices whose generation is timed, once for a scheme and format: the best of three continuations at batch 1. Every
folder is read back for its figures; --jobs of them are made and evaluated at a time, then generation is timed alone.
Loaders are tried where this Python has them; "-" says that one is not here, "no" that it refuses the folder, and the
reason is below the table.
"""

import argparse
import concurrent.futures
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tempfile

SELECTION = [
    "int8_weight_only", "int8dyn_int8", "int8dyn_int8:smoothquant", "float8_weight_only", "float8_dynamic",
    "float8_static", "float8_dynamic_block", "int4_weight_only_g128", "int4_weight_only_g128:hqq",
    "int4_weight_only_g128:gptq", "int4_weight_only_g128:awq", "int4_weight_only_g32", "int4_weight_only_g32:hqq",
    "int4_weight_only_g32:gptq", "int4_weight_only_g32:awq", "int4_weight_only_g32_asym", "int4_weight_only_g32::torchao",
    "int8dyn_int4_g32", "float8dyn_int4_g128", "int3_weight_only_g64", "int3_weight_only_g64:gptq",
    "int3_weight_only_g64:awq", "mxfp8", "mxfp6", "mxfp4", "mxfp4:gptq", "nvfp4_weight_only", "nvfp4_weight_only:gptq",
    "nvfp4", "q8_0::gguf", "q6_k::gguf", "q4_k::gguf", "q4_0::gguf",
]
CALIBRATED_SCHEMES = ("float8_static", "int8static_int8", "nvfp4")
CALIBRATED_METHODS = ("gptq", "awq", "smoothquant", "smoothquant_gptq")
RUNS = 3

TRANSFORMERS = """
import sys, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16)
device = "cuda" if torch.cuda.is_available() else "cpu"
with torch.no_grad():
    logits = model.to(device)(torch.arange(8, device=device)[None]).logits
assert torch.isfinite(logits).all()
"""
LLAMA_CPP = """
import pathlib, sys
from llama_cpp import Llama
model = Llama(str(next(pathlib.Path(sys.argv[1]).glob("*.gguf"))), n_ctx=32, logits_all=True, verbose=False)
model.eval(list(range(8)))
"""
# Name, packages that it needs, what it runs. A format has those that are made for it.
LOADERS = {
    "hf": [("Transformers", ["transformers"], TRANSFORMERS)],
    "compressed-tensors": [("Transformers", ["transformers", "compressed_tensors"], TRANSFORMERS)],
    "torchao": [("Transformers", ["transformers", "torchao"], TRANSFORMERS)],
    "gguf": [("llama.cpp", ["llama_cpp"], LLAMA_CPP)],
}


def run(*arguments):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def checked(*arguments):
    status, output, errors = run(*arguments)
    if status != 0:
        raise RuntimeError(last_line(errors) or f"{arguments[1]} ended with status {status}")
    return output


def last_line(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return re.sub(r"\s+", " ", lines[-1])[:200] if lines else ""


def weights_size(folder):
    return sum(f.stat().st_size for f in pathlib.Path(folder).iterdir() if f.suffix in (".safetensors", ".gguf"))


class Table:
    def __init__(self, options, work):
        self.options = options
        self.work = work
        self.devices = [d for d in options.speed.split(",") if d]
        self.reasons = []
        self.bf16 = None
        self.rates = {}  # by scheme and format: how codes were chosen does not change what reads them
        self.status = 0

    def evaluate(self, folder):
        """Token perplexity, and HellaSwag's acc_norm or None."""
        o = self.options
        command = [o.quench, "eval", "--model", folder, "--data", *o.data, "--json", "--device", o.device]
        if o.hellaswag:
            command += ["--task", "hellaswag", o.hellaswag]
        if o.limit:
            command += ["--limit", o.limit]
        result = json.loads(checked(*command))
        tasks = result.get("tasks") or {}
        return result["token_perplexity"], tasks.get("hellaswag", {}).get("acc_norm")

    def speed(self, folder, device):
        o = self.options
        rates = []
        for _ in range(RUNS):
            result = json.loads(checked(o.quench, "generate", "--model", folder, "--prompt", o.prompt, "--ignore-eos",
                                        "--max-new-tokens", o.tokens, "--device", device, "--json"))
            rates.append(result["tokens_per_second"])
        return max(rates)

    def loaders(self, folder, entry, form):
        words = ["Quench"]  # whose figures the row has
        for name, packages, code in LOADERS.get(form, []):
            if any(importlib.util.find_spec(package) is None for package in packages):
                words.append(f"{name} -")
                continue
            status, _, errors = run(sys.executable, "-c", code, folder)
            words.append(name if status == 0 else f"{name} no")
            if status != 0:
                self.reasons.append(f"`{entry}` in {name}: {last_line(errors)}")
        return ", ".join(words)

    def quality(self, entry, folder):
        """All of a row that may be found beside other rows. Makes the folder, except that of bf16, which is there."""
        made = ("", "hf") if entry == "bf16" else quantize(self.options, f"{self.work}/bf16", entry, folder)
        if made is None:
            return None
        method, form = made
        perplexity, accuracy = self.evaluate(folder)
        return dict(method=method, form=form, size=weights_size(folder), perplexity=perplexity, accuracy=accuracy,
                    loaders=self.loaders(folder, entry, form))

    def row(self, entry, found, folder):
        stored = entry.split(":")[0], found["form"]
        if stored not in self.rates:
            self.rates[stored] = [self.speed(folder, device) for device in self.devices]
        rates = self.rates[stored]
        if self.bf16 is None:
            self.bf16 = (found, rates)
        base, base_rates = self.bf16
        cells = [f"`{entry.split(':')[0]}`", found["method"], found["form"], f"{found['size'] / 1e6:.2f}",
                 f"{found['size'] / base['size']:.2f}", f"{found['perplexity']:.4f}",
                 f"{100 * (found['perplexity'] / base['perplexity'] - 1):+.2f}%"]
        if self.options.hellaswag:
            cells.append("" if found["accuracy"] is None else f"{100 * found['accuracy']:.1f}%")
        cells += [f"{rate:.1f} ({rate / slow:.2f}x)" for rate, slow in zip(rates, base_rates)]
        cells.append(found["loaders"])
        print(f"| {' | '.join(cells)} |", flush=True)

    def head(self):
        cells = ["scheme", "method", "format", "MB", "of bf16", "perplexity", "change"]
        cells += ["HellaSwag acc_norm"] if self.options.hellaswag else []
        cells += [f"tokens/s, {device}" for device in self.devices] + ["loads in"]
        print(f"| {' | '.join(cells)} |\n|{'---|' * len(cells)}")

    def failed(self, entry, error):
        self.status = 1
        self.reasons.append(f"`{entry}`: {error}")


def quantize(options, dense, entry, folder):
    """The method and the format of what is written to `folder`; None where calibration data are missing."""
    scheme, method, form = (entry.split(":") + ["", ""])[:3]
    method, form = method or "rtn", form or "compressed-tensors"
    command = [options.quench, "quantize", "--model", dense, "--scheme", scheme, "--method", method, "--format", form,
               "--output", folder, "--device", options.device]
    if scheme in CALIBRATED_SCHEMES or method in CALIBRATED_METHODS:
        if not options.calibration:
            return None
        command += ["--calibration", *options.calibration, "--calibration-samples", options.samples,
                    "--calibration-seq-len", options.seq_len]
    checked(*command)
    return method, form


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quench", default="build/quench")
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True, action="append")
    parser.add_argument("--calibration", action="append")
    parser.add_argument("--hellaswag")
    parser.add_argument("--limit", help="items of HellaSwag; all by default")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--speed", default="cpu", help="devices, separated by commas; empty: none")
    parser.add_argument("--prompt", default="The")
    parser.add_argument("--tokens", default="128")
    parser.add_argument("--seq-len", default="0")
    parser.add_argument("--samples", default="128")
    parser.add_argument("--jobs", type=int, default=1, help="schemes made and evaluated at a time")
    parser.add_argument("schemes", nargs="*")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as work:
        table = Table(options, work)
        checked(options.quench, "export", "--model", options.model, "--output", f"{work}/bf16", "--dtype", "bf16")
        table.head()
        folders = {entry: f"{work}/{entry.replace(':', '-')}" for entry in ["bf16", *(options.schemes or SELECTION)]}
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            rows = {entry: pool.submit(table.quality, entry, folder) for entry, folder in folders.items()}
            concurrent.futures.wait(rows.values())
        for entry, folder in folders.items():
            try:
                found = rows[entry].result()
                if found is not None:
                    table.row(entry, found, folder)
            except RuntimeError as error:
                table.failed(entry, error)
    if table.reasons:
        print("\n" + "\n".join(f"- {reason}" for reason in table.reasons))
    sys.exit(table.status)


main()
