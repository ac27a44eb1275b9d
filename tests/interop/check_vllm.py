#!/usr/bin/env python3
"""Exports of the program in vLLM: log-probabilities of a text's tokens and greedy continuations beside ours.

Usage: check_vllm.py QUENCH FOLDER [SCHEME ...]   where FOLDER holds a model folder "model" and receives everything else.
Needs a CPU build of vllm and safetensors. Prints a line for each export and exits 1 when one differs. A scheme may be
"hf", "peft", one of CACHES or any of `quench quantize`; of those that docs/reference/formats.md says vLLM refuses, it must refuse to load the folder.
"""

import gc
import json
import os
import pathlib
import subprocess
import sys

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
from safetensors.numpy import load_file, save_file
from vllm import LLM, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.lora.request import LoRARequest

QUENCH, FOLDER, NAMES = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
MODEL = FOLDER / "model"
PROMPT, CONTINUATION = 96, 24  # tokens

# Bounds for the largest difference of a token's log-probability from ours in f32; vLLM computes in bf16, whose last bit
# is 2^-8 of a logit. Inputs rounded to 8 bits or less may change a code by one on top.
READS = {
    "hf": 0.1,
    "peft": 0.1,
    "int4_weight_only_g32": 0.1,
    "int4_weight_only_g128": 0.1,
    "int8dyn_int8": 0.2,
    "int8dyn_int4_g32": 0.2,
    "int4_weight_only_g32_asym": 0.1,
    "float8_dynamic": 0.2,
    "float8_dynamic_block": 0.2,
    # Ours without a KV cache, vLLM's in float8: single tokens of SmolLM2-135M move by 0.75.
    "kv_fp8": 1.0,
    "kv_fp8_head": 1.0,
}
# Folders that quantize the KV cache: options of `quench quantize`.
CACHES = {
    "kv_fp8": ["--kv-cache", "fp8"],
    "kv_fp8_head": ["--kv-cache", "fp8", "--kv-cache-scales", "head"],
}
# Schemes that the table of readers says vLLM refuses, whatever the device.
REFUSES = ["int8dyn_int3_g32", "int8dyn_int8_g32", "mxfp6_weight_only"]
failures = 0


def report(name, ok, text):
    global failures
    failures += not ok
    print(f"{'ok  ' if ok else 'FAIL'} vllm {name}: {text}", flush=True)


def quench(*arguments):
    done = subprocess.run([QUENCH, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, arguments))}: {done.stderr}")
    return done.stdout


def log_probabilities(model, ids, *options):
    """Ours of every token that follows one of ids, [T-1,V]."""
    save_file({"input_ids": np.array([ids], dtype=np.int64)}, FOLDER / "ids.safetensors")
    quench("forward", "--model", model, "--input", FOLDER / "ids.safetensors", "--output", FOLDER / "logits.safetensors",
           "--overwrite", "--device", "cpu", "--dtype", "f32", *options)
    logits = load_file(FOLDER / "logits.safetensors")["logits"][0].astype(np.float64)
    return logits - logits.max(-1, keepdims=True) - np.log(
        np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))


def calibration(scheme):
    if scheme not in ("float8_static", "int8static_int8", "nvfp4", *CACHES):
        return []
    return ["--calibration", "README.md", "--calibration-samples", "8", "--calibration-seq-len", "128"]


def train_adapter(folder):
    config = {
        "model": {"path": str(MODEL.resolve())},
        "data": {"train": ["README.md"], "seq_len": 32},
        "training": {"steps": 20, "micro_batch_size": 2, "dtype": "f32"},
        "optimizer": {"lr": 1e-2},
        "lora": {"rank": 8, "alpha": 16},
        "export": {"format": "peft", "folder": str(folder.resolve())},
        "run": {"folder": str((FOLDER / "adapter-run").resolve())},
        "checkpoint": {"enable": False},
    }
    (FOLDER / "adapter.json").write_text(json.dumps(config))
    quench("train", FOLDER / "adapter.json", "--device", "cpu")


def write(scheme):
    """The folder that vLLM loads, and the adapter over it or None."""
    if scheme == "peft":
        train_adapter(FOLDER / "adapter")
        quench("export", "--model", MODEL, "--format", "hf", "--dtype", "bf16", "--output", FOLDER / "vllm-base")
        return FOLDER / "vllm-base", FOLDER / "adapter"
    folder = FOLDER / f"vllm-{scheme}"
    if scheme == "hf":
        quench("export", "--model", MODEL, "--format", "hf", "--dtype", "bf16", "--output", folder)
    else:
        quench("quantize", "--model", MODEL, *CACHES.get(scheme, ["--scheme", scheme]), "--dtype", "bf16", "--output",
               folder, *calibration(scheme))
    return folder, None


def theirs(folder, adapter, prompt):
    """vLLM's greedy continuation of the prompt, and its log-probabilities of all tokens but the first."""
    more = {"enable_lora": True, "max_lora_rank": 16} if adapter else {}
    llm = None
    try:
        llm = LLM(model=str(folder), max_model_len=256, max_num_seqs=2, enforce_eager=True, disable_log_stats=True, seed=0, **more)
        sampling = SamplingParams(temperature=0, max_tokens=CONTINUATION, min_tokens=CONTINUATION, ignore_eos=True,
                                  logprobs=1, prompt_logprobs=0, detokenize=False)
        request = LoRARequest("adapter", 1, str(adapter)) if adapter else None
        result = llm.generate([{"prompt_token_ids": prompt}], sampling, use_tqdm=False, lora_request=request)[0]
        chosen = list(result.outputs[0].token_ids)
        values = [entry[token].logprob for token, entry in zip(prompt[1:], result.prompt_logprobs[1:])]
        values += [entry[token].logprob for token, entry in zip(chosen, result.outputs[0].logprobs)]
        return chosen, np.array(values)
    finally:
        del llm
        gc.collect()
        cleanup_dist_env_and_memory()


def check(scheme, prompt):
    folder, adapter = write(scheme)
    if scheme in REFUSES:
        try:
            theirs(folder, adapter, prompt)
        except Exception as error:
            return report(scheme, True, f"refused: {' '.join(str(error).split())[:120]}")
        return report(scheme, False, "is loaded, and was not when the table of readers was made")
    chosen, values = theirs(folder, adapter, prompt)
    ids = prompt + chosen
    ours = log_probabilities(folder, ids, *(["--adapter", adapter] if adapter else []))[:-1]
    apart = float(np.abs(ours[np.arange(len(values)), ids[1:]] - values).max())
    best = ours[len(prompt) - 1 :].argmax(-1)
    # Where the tokens differ, ours are a near tie: each of the two may be off by the bound.
    lost = float(max(0, *(ours[len(prompt) - 1 + i].max() - ours[len(prompt) - 1 + i][token] for i, token in enumerate(chosen))))
    most = READS.get(scheme, 0.2)
    report(scheme, apart < most and lost < 2 * most,
           f"{int((best == chosen).sum())} of {len(chosen)} greedy tokens are ours, log-probabilities differ by at most "
           f"{apart:.1e} (at most {most}), ours from {ours[np.arange(len(values)), ids[1:]].mean():.3f} on average")


def main():
    text = pathlib.Path("README.md").read_text()[:2000]
    shown = json.loads(quench("tokenize", "show", "--tokenizer", MODEL, "--json", text))
    prompt = [token["id"] for token in shown["tokens"]][:PROMPT]
    for scheme in NAMES or [*READS, *REFUSES]:
        try:
            check(scheme, prompt)
        except Exception as error:  # one that cannot be loaded must not hide the others
            if "requires AMX" in str(error) and "amx_tile" not in pathlib.Path("/proc/cpuinfo").read_text():
                print(f"none vllm {scheme}: vLLM's kernel needs a processor with AMX, which this machine lacks", flush=True)
                continue
            report(scheme, False, f"{type(error).__name__}: {' '.join(str(error).split())[:400]}")
    print(f"{failures} failures")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
