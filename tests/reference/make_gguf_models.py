#!/usr/bin/env python3
"""Writes models/gguf_types and models/gguf_split beside this file: tiny random GGUF files of the Python package gguf with
logits and greedy text of Hugging Face Transformers (`from_pretrained(..., gguf_file=...)`).

    pip install torch transformers safetensors gguf
    python tests/reference/make_gguf_models.py

gguf_types: Q4_1, Q5_0 and Q5_1 by turns. gguf_split: the same tensors in three files, the first with the metadata alone.
"""

import pathlib
import shutil

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

MODELS = pathlib.Path(__file__).parent / "models"
NAME = "model.gguf"
VOCABULARY, HIDDEN, WIDE, HEADS, LAYERS = 96, 32, 64, 4, 2
PROMPT, GENERATED = 12, 16


def tensors(random):
    def weight(rows, columns):
        return (random.standard_normal((rows, columns)) * 0.15 + 0.02).astype(np.float32)

    def norm():
        return (1 + random.standard_normal(HIDDEN) * 0.15).astype(np.float32)

    kinds = [Type.Q4_1, Type.Q5_0, Type.Q5_1]
    yield "token_embd.weight", weight(VOCABULARY, HIDDEN), Type.Q5_1
    yield "output_norm.weight", norm(), Type.F32
    yield "output.weight", weight(VOCABULARY, HIDDEN), Type.Q4_1
    for layer in range(LAYERS):
        name = f"blk.{layer}."
        yield name + "attn_norm.weight", norm(), Type.F32
        yield name + "ffn_norm.weight", norm(), Type.F32
        for i, (stem, rows, columns) in enumerate([
                ("attn_q", HIDDEN, HIDDEN), ("attn_k", HIDDEN, HIDDEN), ("attn_v", HIDDEN, HIDDEN),
                ("attn_output", HIDDEN, HIDDEN), ("ffn_gate", WIDE, HIDDEN), ("ffn_up", WIDE, HIDDEN),
                ("ffn_down", HIDDEN, WIDE)]):
            # Query, key and value, gate and up of one type in the first layer, of different types in the second.
            kind = kinds[i % 3] if layer == 1 else Type.Q4_1 if i < 3 else Type.Q5_0 if i < 4 else Type.Q5_1
            yield f"{name}{stem}.weight", weight(rows, columns), kind


def write(folder, **split):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    writer = gguf.GGUFWriter(folder / NAME, "llama", **split)
    writer.add_name("tiny")
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(WIDE)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    for name, value, kind in tensors(np.random.default_rng(8)):
        data = value if kind == Type.F32 else gguf.quants.quantize(value, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def reference(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=NAME, dtype=torch.float32, attn_implementation="eager")
    torch.manual_seed(11)
    ids = torch.randint(3, VOCABULARY, (2, 40))
    greedy = model.generate(ids[:, :PROMPT], max_new_tokens=GENERATED, do_sample=False, pad_token_id=2, eos_token_id=None)
    with torch.no_grad():
        logits = model(input_ids=ids).logits
    return {"input_ids": ids, "labels": ids.clone(), "logits": logits.contiguous(), "greedy": greedy}


def main():
    write(MODELS / "gguf_types")
    values = reference(MODELS / "gguf_types")
    save_file(values, MODELS / "gguf_types/reference.safetensors")
    write(MODELS / "gguf_split", split_max_tensors=11, small_first_shard=True)
    save_file(values, MODELS / "gguf_split/reference.safetensors")


if __name__ == "__main__":
    main()
