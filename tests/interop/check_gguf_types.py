#!/usr/bin/env python3
"""GGUF block types on the tensors of a real model: values of the program's files in gguf-py, in llama.cpp and in the program
itself, and the squared error of its quantizers beside llama.cpp's. Then files of random blocks of the types that it only reads.

Usage: check_gguf_types.py QUENCH FOLDER FILE [TYPE ...]   FILE: a GGUF model, such as SmolLM2-135M-Instruct; everything is
                                                           written to FOLDER. Needs gguf, numpy, safetensors, xllamacpp
The real values fill the matrices of a small Llama, whose widths all blocks divide. Prints a row for each type and exits 1 when
an error exceeds llama.cpp's by more than 1e-6, or a value differs. Types of which llama.cpp needs an importance matrix get one of
ones.
"""

import ctypes
import json
import pathlib
import shutil
import subprocess
import sys

import gguf
import numpy as np
import xllamacpp
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import dequantize
from safetensors.numpy import load_file, save_file

QUENCH, FOLDER, FILE = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
TYPES = sys.argv[4:] or ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS",
                         "IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ2_XXS", "TQ1_0", "TQ2_0", "MXFP4"]
HIDDEN, WIDE, LAYERS, VOCABULARY = 512, 1536, 2, 320
# Without query and key, whose rows GGUF reorders.
MATRICES = {"attn_v": ("self_attn.v_proj", HIDDEN, HIDDEN), "attn_output": ("self_attn.o_proj", HIDDEN, HIDDEN),
            "ffn_gate": ("mlp.gate_proj", WIDE, HIDDEN), "ffn_up": ("mlp.up_proj", WIDE, HIDDEN),
            "ffn_down": ("mlp.down_proj", HIDDEN, WIDE)}
NORMS = {"attn_v": "attn_norm", "attn_output": "attn_norm", "ffn_gate": "ffn_norm", "ffn_up": "ffn_norm"}
READ_ONLY = {"IQ1_S": [0], "IQ1_M": [], "NVFP4": []}  # with the places of f16 scales
NEEDS_MATRIX = {"IQ3_XXS", "IQ2_S", "IQ2_XXS", "IQ2_XS"}
library = ctypes.CDLL(str(next(pathlib.Path(xllamacpp.__file__).parent.glob("xllamacpp*.so"))))
library.ggml_quantize_chunk.restype = ctypes.c_size_t
library.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]


def llama_blocks(kind, weight):
    elements, size = GGML_QUANT_SIZES[kind]
    out = np.zeros((weight.shape[0], weight.shape[1] // elements * size), np.uint8)
    matrix = np.ones(weight.shape[1], np.float32) if kind.name in NEEDS_MATRIX else None
    library.ggml_quantize_init(ctypes.c_int(kind))
    library.ggml_quantize_chunk(kind, weight.ctypes.data, out.ctypes.data, 0, *weight.shape,
                                None if matrix is None else matrix.ctypes.data)
    return out


def llama_values(kind, blocks, count):
    name = kind.name.lower().replace("_k", "_K")
    function = getattr(library, f"dequantize_row_{name}")
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    function.restype = None
    out = np.empty(count, np.float32)
    function(np.ascontiguousarray(blocks).ctypes.data, out.ctypes.data, count)
    return out


def make_model(folder):
    """Matrices filled from those of the same kind in FILE, in order. Their columns are scaled by the norm before, or by the size
    of what they read, so that they do not lie on the grid of the file."""
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(FILE).tensors}

    def stored(name):
        one = tensors[f"{name}.weight"]
        return dequantize(one.data, one.tensor_type).reshape(one.shape[::-1])

    def values(kind, rows, columns, layer):
        found = []
        for i in range(layer * 7, layer * 7 + 7):
            norm = NORMS.get(kind)
            scales = stored(f"blk.{i}.{norm}") if norm else np.sqrt((stored(f"blk.{i}.ffn_up") ** 2).mean(1))
            found.append((stored(f"blk.{i}.{kind}") * scales).reshape(-1))
        return np.ascontiguousarray(np.concatenate(found)[:rows * columns].reshape(rows, columns))

    weights = {"model.embed_tokens.weight": np.ones((VOCABULARY, HIDDEN), np.float32),
               "model.norm.weight": np.ones(HIDDEN, np.float32)}
    matrices = {}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}{norm}.weight"] = np.ones(HIDDEN, np.float32)
        for kind, (name, rows, columns) in MATRICES.items():
            matrices[f"blk.{layer}.{kind}.weight"] = weights[f"{prefix}{name}.weight"] = values(kind, rows, columns, layer)
        for name in ("q_proj", "k_proj"):
            weights[f"{prefix}self_attn.{name}.weight"] = values("attn_output", HIDDEN, HIDDEN, layer)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_file(weights, folder / "model.safetensors")
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": WIDE,
              "num_hidden_layers": LAYERS, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": VOCABULARY,
              "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
              "hidden_act": "silu", "torch_dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config))
    return matrices


def write_ones(matrices, file):
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_string("general.type", "imatrix")
    writer.add_array("imatrix.datasets", ["ones"])
    writer.add_uint32("imatrix.chunk_count", 1)
    writer.add_uint32("imatrix.chunk_size", 1)
    for layer in range(LAYERS):
        for kind in [*MATRICES, "attn_q", "attn_k"]:
            width = matrices[f"blk.{layer}.{kind}.weight"].shape[1] if kind in MATRICES else HIDDEN
            writer.add_tensor(f"blk.{layer}.{kind}.weight.in_sum2", np.ones((1, width), np.float32))
            writer.add_tensor(f"blk.{layer}.{kind}.weight.counts", np.ones((1, 1), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_back(file, matrices):
    """Largest difference of values that the program reads from those of `matrices`, relative to the largest value."""
    folder = FOLDER / "read"
    shutil.rmtree(folder, ignore_errors=True)
    # Beside the config of the model, whose tokenizer the file lacks.
    alone = FOLDER / "one"
    shutil.rmtree(alone, ignore_errors=True)
    alone.mkdir()
    shutil.copy(file, alone / "model.gguf")
    shutil.copy(FOLDER / "model/config.json", alone)
    run("export", "--model", alone, "--format", "hf", "--dtype", "f32", "--output", folder)
    stored = load_file(folder / "model.safetensors")
    worst = 0.0
    for name, expected in matrices.items():
        _, layer, kind, _ = name.split(".")
        values = stored[f"model.layers.{layer}.{MATRICES[kind][0]}.weight"]
        worst = max(worst, float(np.abs(values - expected).max() / np.abs(expected).max()))
    return worst


def run(*arguments):
    done = subprocess.run([QUENCH, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, arguments))}: {done.stderr}")


def write_random(kind, scales, file):
    """The dense export of the model with its matrices as random blocks of `kind`; their values."""
    dense = FOLDER / "dense.gguf"
    dense.unlink(missing_ok=True)
    run("export", "--model", FOLDER / "model", "--format", "gguf", "--dtype", "f32", "--output", dense)
    reader, random, values = gguf.GGUFReader(dense), np.random.default_rng(1), {}
    writer = gguf.GGUFWriter(file, "llama")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            part = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, field.contents(), field.types[0], part)
    elements, size = GGML_QUANT_SIZES[kind]
    for tensor in reader.tensors:
        shape = tensor.data.shape
        if len(shape) < 2 or not tensor.name.startswith("blk.") or tensor.name.split(".")[2] in ("attn_q", "attn_k"):
            writer.add_tensor(tensor.name, tensor.data)
            continue
        blocks = random.integers(0, 256, (shape[0], shape[1] // elements, size), dtype=np.uint8)
        for place in scales:
            blocks[..., place:place + 2] = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
        if kind == Type.IQ1_M:  # upper bits of a normal half
            blocks[..., 55] = blocks[..., 55] & 0xF | 0x20
        if kind == Type.NVFP4:
            blocks[..., :4] &= 0x77
        blocks = blocks.reshape(shape[0], -1)
        writer.add_tensor(tensor.name, blocks, raw_dtype=kind)
        values[tensor.name] = dequantize(blocks, kind).reshape(shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def main():
    matrices = make_model(FOLDER / "model")
    write_ones(matrices, FOLDER / "ones.gguf")
    size = sum(float((w.astype(np.float64) ** 2).sum()) for w in matrices.values())
    failures = 0
    print(f"{'type':8} {'bits':>6} {'error':>9} {'llama.cpp':>9} {'ratio':>7}  values")
    for name in TYPES:
        kind = Type[name]
        elements, bytes_ = GGML_QUANT_SIZES[kind]
        output = FOLDER / f"{name}.gguf"
        output.unlink(missing_ok=True)
        scheme = "mxfp4_gguf" if name == "MXFP4" else name.lower()
        run("export", "--model", FOLDER / "model", "--format", "gguf", "--scheme", "q8_0", "--rule", f"*={scheme}",
            "--output", output, *(["--imatrix", FOLDER / "ones.gguf"] if name in NEEDS_MATRIX else []))
        stored = {tensor.name: tensor for tensor in gguf.GGUFReader(output).tensors}
        ours = theirs = 0.0
        same, kept = True, {}
        for tensor, weight in matrices.items():
            assert stored[tensor].tensor_type == kind, f"{tensor} is {stored[tensor].tensor_type.name}"
            blocks = np.ascontiguousarray(stored[tensor].data)
            values = dequantize(blocks.reshape(-1), kind).reshape(weight.shape)
            kept[tensor] = values
            same = same and np.array_equal(values.reshape(-1), llama_values(kind, blocks, weight.size))
            other = dequantize(llama_blocks(kind, weight).reshape(-1), kind).reshape(weight.shape)
            ours += float(((values.astype(np.float64) - weight) ** 2).sum())
            theirs += float(((other.astype(np.float64) - weight) ** 2).sum())
        read = read_back(output, kept)
        good = same and read < 1e-6 and ours <= theirs * (1 + 1e-6)
        failures += not good
        print(f"{name:8} {bytes_ * 8 / elements:6.3f} {(ours / size) ** 0.5:9.6f} {(theirs / size) ** 0.5:9.6f} "
              f"{ours / theirs:7.4f}  {'equal' if same else 'DIFFER'}, read to {read:.0e}{'' if good else '  FAIL'}", flush=True)
    for name, scales in READ_ONLY.items() if len(sys.argv) == 4 else ():
        output = FOLDER / f"{name}.gguf"
        output.unlink(missing_ok=True)
        read = read_back(output, write_random(Type[name], scales, output))
        failures += not read < 1e-6
        print(f"{name:8} read to {read:.0e}{'' if read < 1e-6 else '  FAIL'}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
