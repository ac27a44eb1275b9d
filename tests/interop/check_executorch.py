#!/usr/bin/env python3
"""Exports of the program in ExecuTorch: `optimum-cli export executorch` under its recipe xnnpack, then the .pte's greedy
tokens and logits beside ours.

Usage: check_executorch.py QUENCH FOLDER [NAME ...]   where FOLDER holds a model folder "model" and receives everything else.
Runs in an environment with executorch and optimum-executorch. A NAME is "hf", "hf-llama3" (with Llama 3's rescaling of
positions) or a scheme that TorchAO's layout stores.
Prints a line for each and exits 1 when one differs, or when a linear layer was not left to XNNPACK.
"""

import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys

# optimum-cli and flatc, which the export calls by name.
os.environ["PATH"] = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from executorch.exir._serialize import _deserialize_pte_binary
from executorch.runtime import Runtime
from safetensors.numpy import load_file, save_file

QUENCH, FOLDER, NAMES = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
MODEL = FOLDER / "model"
PROMPT, CONTINUATION = 48, 32  # tokens
# Bounds for the relative difference of logits. XNNPACK rounds inputs to 8 bits by arithmetic of its own, so that codes
# next to ties differ by one, and with them a token in eight at most.
READS = {"hf": 1e-5, "hf-llama3": 1e-5, "int8dyn_int4_g32": 5e-2}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64, "rope_theta": 10000.0}
PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::linear", "aten::convolution", "torchao::")
failures = 0


def report(name, ok, text):
    global failures
    failures += not ok
    print(f"{'ok  ' if ok else 'FAIL'} executorch {name}: {text}", flush=True)


def run(*command):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout


def own_logits(model, ids):
    save_file({"input_ids": np.array([ids], dtype=np.int64)}, FOLDER / "ids.safetensors")
    run(QUENCH, "forward", "--model", model, "--input", FOLDER / "ids.safetensors", "--output",
        FOLDER / "logits.safetensors", "--overwrite", "--device", "cpu", "--dtype", "f32")
    return load_file(FOLDER / "logits.safetensors")["logits"][0]


def operations(path):
    """How often the program calls each kernel that is not delegated, and its delegates."""
    program = _deserialize_pte_binary(path.read_bytes())
    plan = next(plan for plan in getattr(program, "program", program).execution_plan if plan.name == "forward")
    calls = collections.Counter()
    for chain in plan.chains:
        for instruction in chain.instructions:
            if (index := getattr(instruction.instr_args, "op_index", None)) is not None:
                calls[plan.operators[index].name] += 1
    return calls, [delegate.id for delegate in plan.delegates]


def rescaled(folder):
    """The model with Llama 3's rescaling, for less than the prompt has tokens."""
    shutil.copytree(MODEL, folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"] = config["rope_scaling"] = LLAMA3
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def check(name, prompt, dtype="f32"):
    folder, out = FOLDER / f"executorch-{name}", FOLDER / f"executorch-{name}-pte"
    if name.startswith("hf"):
        model = MODEL if name == "hf" else rescaled(FOLDER / "rescaled")
        run(QUENCH, "export", "--model", model, "--format", "hf", "--dtype", dtype, "--output", folder)
    else:
        run(QUENCH, "quantize", "--model", MODEL, "--scheme", name, "--format", "torchao", "--dtype", dtype, "--output", folder)
    run("optimum-cli", "export", "executorch", "--model", folder, "--task", "text-generation", "--recipe", "xnnpack",
        "--max_seq_len", 256, "--output_dir", out)
    calls, delegates = operations(out / "model.pte")
    left = {kernel: count for kernel, count in calls.items() if kernel.startswith(PRODUCTS)}
    method = Runtime.get().load_program(str(out / "model.pte")).load_method("forward")

    def forward(tokens, at):
        return method.execute([torch.tensor([tokens]), torch.arange(at, at + len(tokens))])[0][0].numpy().copy()

    logits = [forward(prompt, 0)]
    ids = list(prompt)
    for _ in range(CONTINUATION):
        ids.append(int(logits[-1][-1].argmax()))
        logits.append(forward(ids[-1:], len(ids) - 1))
    theirs, ours = np.concatenate(logits), own_logits(folder, ids)
    apart = float(np.linalg.norm(theirs - ours) / np.linalg.norm(ours))
    chosen, best = ids[PROMPT:], ours[PROMPT - 1 : -1].argmax(-1)
    same = int((best == chosen).sum())
    most = READS.get(name, 5e-2)
    least = CONTINUATION if most < 1e-3 else CONTINUATION * 7 // 8
    report(name, apart < most and same >= least and set(delegates) == {"XnnpackBackend"} and not left,
           f"{same} of {CONTINUATION} greedy tokens are ours, logits differ by {apart:.1e} (at most {most:.0e}), "
           f"{len(delegates)} parts on XNNPACK, products elsewhere: {left or 'none'}, "
           f"{(out / 'model.pte').stat().st_size / 1e6:.2f} MB")


def main():
    text = pathlib.Path("README.md").read_text()[:2000]
    shown = json.loads(run(QUENCH, "tokenize", "show", "--tokenizer", MODEL, "--json", text))
    prompt = [token["id"] for token in shown["tokens"]][:PROMPT]
    for name in NAMES or READS:
        name, _, dtype = name.partition(":")
        try:
            check(name, prompt, dtype or "f32")
        except Exception as error:  # one that cannot be exported must not hide the others
            report(name, False, f"{type(error).__name__}: {' '.join(str(error).split())[:400]}")
    print(f"{failures} failures")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
