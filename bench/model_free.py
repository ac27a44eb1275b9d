#!/usr/bin/env python3
"""Time and peak memory of `quench quantize --model-free` on the first layers of DeepSeek-V3, beside `cp` of the same files.

Usage: model_free.py QUENCH FOLDER [--layers N] [--scheme NAME] [--json]   FOLDER receives "source", of sparse files (every
value is 0, holes take no space), and "output", of real bytes: a quarter of the source at 4 bits. Both are removed at the end.
The last N layers (default: 6, 145 GB in bf16) have experts, and the three before them none. `cp` copies files of the source
up to 20 GB, holes written out, and its time is scaled to all of them.
"""

import argparse
import json
import os
import pathlib
import resource
import shutil
import struct
import subprocess
import sys
import time

HIDDEN, DENSE, EXPERT, EXPERTS, HEADS, VOCABULARY, DENSE_LAYERS = 7168, 18432, 2048, 256, 128, 129280, 3
QUERY_RANK, VALUE_RANK, ROTATED, HEAD = 1536, 512, 64, 128
SHARD = 4_300_000_000  # bytes of a published file
RESERVE = 8e9  # bytes of the disk that stay free
MOST_COPIED = 20e9

parser = argparse.ArgumentParser(usage=__doc__)
parser.add_argument("quench", type=pathlib.Path)
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--layers", type=int, default=6)
parser.add_argument("--scheme", default="int4_weight_only_g128")
parser.add_argument("--json", action="store_true")
given = parser.parse_args()


def mlp(prefix, width):
    return {f"{prefix}.gate_proj": (width, HIDDEN), f"{prefix}.up_proj": (width, HIDDEN), f"{prefix}.down_proj": (HIDDEN, width)}


def shapes():
    """Names and shapes in the order of the published files."""
    found = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for i in range(DENSE_LAYERS + given.layers):
        layer = f"model.layers.{i}"
        matrices = {"self_attn.q_a_proj": (QUERY_RANK, HIDDEN), "self_attn.q_b_proj": (HEADS * (HEAD + ROTATED), QUERY_RANK),
                    "self_attn.kv_a_proj_with_mqa": (VALUE_RANK + ROTATED, HIDDEN),
                    "self_attn.kv_b_proj": (HEADS * 2 * HEAD, VALUE_RANK), "self_attn.o_proj": (HIDDEN, HEADS * HEAD)}
        norms = {"input_layernorm": HIDDEN, "post_attention_layernorm": HIDDEN, "self_attn.q_a_layernorm": QUERY_RANK,
                 "self_attn.kv_a_layernorm": VALUE_RANK}
        if i < DENSE_LAYERS:
            matrices |= mlp("mlp", DENSE)
        else:
            matrices |= mlp("mlp.shared_experts", EXPERT) | {"mlp.gate": (EXPERTS, HIDDEN)}
            for expert in range(EXPERTS):
                matrices |= mlp(f"mlp.experts.{expert}", EXPERT)
            found[f"{layer}.mlp.gate.e_score_correction_bias"] = (EXPERTS,)
        found |= {f"{layer}.{name}.weight": shape for name, shape in matrices.items()}
        found |= {f"{layer}.{name}.weight": (width,) for name, width in norms.items()}
    return found | {"model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCABULARY, HIDDEN)}


def write_shard(file, tensors):
    header, at = {}, 0
    for name, shape in tensors.items():
        size = 2
        for width in shape:
            size *= width
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        out.truncate(8 + len(text) + at)
    return at


def write_source(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shards, size = [{}], 0
    for name, shape in shapes().items():
        bytes_ = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        if size + bytes_ > SHARD and shards[-1]:
            shards.append({})
            size = 0
        shards[-1][name] = shape
        size += bytes_
    total, places = 0, {}
    for i, tensors in enumerate(shards):
        name = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        total += write_shard(folder / name, tensors)
        places |= dict.fromkeys(tensors, name)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": places}))
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": HIDDEN,
        "intermediate_size": DENSE, "moe_intermediate_size": EXPERT, "n_routed_experts": EXPERTS, "vocab_size": VOCABULARY,
        "num_hidden_layers": DENSE_LAYERS + given.layers, "first_k_dense_replace": DENSE_LAYERS, "tie_word_embeddings": False,
        "torch_dtype": "bfloat16"}))
    return total


def seconds_of(*arguments):
    begin = time.monotonic()
    subprocess.run([str(argument) for argument in arguments], check=True, stdout=subprocess.DEVNULL)
    os.sync()
    return time.monotonic() - begin


def copy_seconds(source, total):
    """Of `cp` of all bytes; measured on some of the files."""
    target, copied, spent = given.folder / "copy", 0, 0.0
    target.mkdir()
    for file in sorted(source.glob("*.safetensors")):
        if copied > MOST_COPIED or shutil.disk_usage(target).free < file.stat().st_size + RESERVE:
            break
        spent += seconds_of("cp", "--sparse=never", file, target)
        copied += file.stat().st_size
    shutil.rmtree(target)
    return spent * total / copied if copied else float("nan")


def main():
    source, output = given.folder / "source", given.folder / "output"
    total = write_source(source)
    shutil.rmtree(output, ignore_errors=True)
    try:
        spent = seconds_of(given.quench.resolve(), "quantize", "--model-free", "--model", source, "--scheme", given.scheme,
                           "--output", output)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        written = sum(file.stat().st_size for file in output.iterdir())
        shutil.rmtree(output)
        result = {"source_gb": total / 1e9, "output_gb": written / 1e9, "seconds": spent, "peak_gib": peak / 2**30,
                  "copy_seconds": copy_seconds(source, total)}
    finally:
        shutil.rmtree(source, ignore_errors=True)
        shutil.rmtree(output, ignore_errors=True)
    print(json.dumps(result) if given.json else
          f"{given.scheme}: {result['source_gb']:.1f} GB to {result['output_gb']:.1f} GB in {spent:.0f} s, peak "
          f"{result['peak_gib']:.2f} GiB; cp {result['copy_seconds']:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
