#!/usr/bin/env python3
"""GGUF files of models with experts: logits of the file equal those of the folder, and llama.cpp's greedy tokens those of
Transformers.

Usage: check_gguf_experts.py QUENCH FOLDER [NAME ...]   trains small models of bytes in FOLDER. Needs xllamacpp,
transformers, torch and safetensors.
"""

import json
import pathlib
import subprocess
import sys

import numpy as np
from llama_server import continuations
from safetensors.numpy import load_file, save_file

QUENCH, FOLDER, CHOSEN = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), sys.argv[3:]
PROMPT, NEW = 24, 24
SIZES = {"vocab_size": 272, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
         "num_attention_heads": 4, "max_position_embeddings": 128}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
MODELS = {
    "mixtral": {**SIZES, **EXPERTS, "model_type": "mixtral", "num_key_value_heads": 2},
    "qwen3_moe": {**SIZES, "model_type": "qwen3_moe", "num_key_value_heads": 2, "head_dim": 32, "num_experts": 6,
                  "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True},
    "qwen2_moe": {**SIZES, "model_type": "qwen2_moe", "num_key_value_heads": 2, "num_experts": 6,
                  "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48},
    "gpt_oss": {**SIZES, **EXPERTS, "model_type": "gpt_oss", "num_key_value_heads": 2, "head_dim": 32,
                "sliding_window": 16, "rope_parameters": {**YARN, "truncate": True}},
    "llama4": {**SIZES, **EXPERTS, "model_type": "llama4_text", "num_hidden_layers": 4, "num_key_value_heads": 2,
               "head_dim": 16, "intermediate_size_mlp": 64, "interleave_moe_layer_step": 2},
    "deepseek": {**SIZES, "model_type": "deepseek_v3", "num_key_value_heads": 4, "num_hidden_layers": 3,
                 "first_k_dense_replace": 1, "kv_lora_rank": 32, "q_lora_rank": 24, "qk_nope_head_dim": 24,
                 "qk_rope_head_dim": 16, "v_head_dim": 20, "n_routed_experts": 8, "n_shared_experts": 1, "n_group": 4,
                 "topk_group": 2, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "rms_norm_eps": 1e-6},
    "deepseek_yarn": {"base": "deepseek", "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}},
}
TYPES = {"f32": ["--dtype", "f32"], "bf16": ["--dtype", "bf16"], "f16": ["--dtype", "f16"],
         "q8_0": ["--scheme", "q8_0", "--dtype", "f32"],
         "mxfp4": ["--scheme", "mxfp4_weight_only", "--dtype", "f32"]}
failures = 0


def quench(*arguments):
    done = subprocess.run([QUENCH, *map(str, arguments)], capture_output=True, text=True, cwd=FOLDER)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, arguments))}: {done.stderr}")


def say(good, text):
    global failures
    failures += not good
    print(f"{'ok  ' if good else 'FAIL'} {text}", flush=True)


def write_text():
    FOLDER.mkdir(parents=True, exist_ok=True)
    lines = [f"{i} plus {i % 7} is {i + i % 7}" for i in range(900)]
    (FOLDER / "numbers.txt").write_text("\n".join(lines))


def write_tokenizer():
    """Byte-level BPE: ids of bytes, one merge (llama.cpp needs one), special tokens."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    letters = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    vocabulary = {letters[b]: b for b in range(256)} | {"qz": 256}
    special = [{"id": 257 + i, "content": f"<|s{i}|>", "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for i in range(15)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary,
             "merges": ["q z"]}
    (FOLDER / "tok").mkdir(exist_ok=True)
    (FOLDER / "tok" / "tokenizer.json").write_text(json.dumps(
        {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
         "pre_tokenizer": level, "post_processor": None, "decoder": level, "model": model}))
    (FOLDER / "tok" / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|s0|>", "tokenizer_class": "PreTrainedTokenizerFast"}))


def trained(name, model):
    config = {"model": model, "data": {"train": ["numbers.txt"], "format": "text", "seq_len": 64, "tokenizer": "bytes"},
              "training": {"steps": 60, "micro_batch_size": 4, "global_batch_size": 4, "dtype": "f32"},
              "optimizer": {"lr": 5e-3}, "lr_schedule": {"warmup_steps": 5}, "export": {"format": "hf"},
              "run": {"folder": name}}
    (FOLDER / f"{name}.json").write_text(json.dumps(config))
    if not (FOLDER / name / "export").exists():
        quench("train", f"{name}.json", "--checkpoint.keep_latest=0")
    return FOLDER / name / "export"


def logits_of(path):
    quench("forward", "--model", path, "--input", "ids.safetensors", "--output", "logits.safetensors", "--overwrite",
           "--device", "cpu", "--dtype", "f32")
    return load_file(FOLDER / "logits.safetensors")["logits"][0]


def greedy(folder, ids, dtype):
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    with torch.no_grad():
        first = torch.log_softmax(model(torch.tensor(ids)[None]).logits[0, -1].float(), -1)
        out = model.generate(torch.tensor(ids)[None], max_new_tokens=NEW, do_sample=False)
    return out[0, len(ids):].tolist(), first


write_text()
write_tokenizer()
for name, model in MODELS.items():
    if CHOSEN and name not in CHOSEN:
        continue
    if "base" in model:
        model = {**MODELS[model["base"]], **{k: v for k, v in model.items() if k != "base"}}
    source = trained(name, model)
    ids = np.array(list((FOLDER / "numbers.txt").read_bytes()[:64]), dtype=np.int64)
    save_file({"input_ids": ids[None]}, FOLDER / "ids.safetensors")
    prompt = ids[:PROMPT]
    for kind, options in TYPES.items():
        file = FOLDER / f"{name}-{kind}.gguf"
        file.unlink(missing_ok=True)
        quench("export", "--model", source, "--format", "gguf", "--output", file, "--tokenizer", "tok", *options)
        again = logits_of(file)
        dense = logits_of(source)
        apart = float(np.abs(again - dense).max())
        say(apart == 0 if kind == "f32" else apart < 2.0, f"{name} {kind}: logits of the file differ by {apart:.3g}")
        try:
            [(tokens, top)] = continuations(file, [prompt], NEW)
        except RuntimeError as error:
            say(False, f"{name} {kind}: {error}")
            continue
        # Quench's greedy tokens of the file itself: for rounded weights too.
        reference = []
        for _ in range(NEW):
            save_file({"input_ids": np.concatenate([prompt, np.array(reference, np.int64)])[None]},
                      FOLDER / "ids.safetensors")
            reference.append(int(logits_of(file)[-1].argmax()))
        save_file({"input_ids": ids[None]}, FOLDER / "ids.safetensors")
        same = next((i for i, (a, b) in enumerate(zip(tokens, reference)) if a != b), min(len(tokens), NEW))
        # llama.cpp rounds inputs of other types than f32, so near ties differ.
        say(same == len(tokens) if kind == "f32" else same >= NEW // 2,
            f"{name} {kind}: {same} of {len(tokens)} greedy tokens of llama.cpp are Quench's")
        if kind == "f32":
            theirs, first = greedy(source, prompt, "float32")
            say(tokens == theirs[:len(tokens)], f"{name} {kind}: Transformers' too")
            off = max(abs(t["logprob"] - float(first[t["id"]])) for t in top)
            say(off < 2e-3, f"{name} {kind}: log probabilities of the first token differ by {off:.1e}")
print(f"{failures} failures")
sys.exit(failures > 0)
