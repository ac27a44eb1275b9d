#!/usr/bin/env python3
"""Writes gguf_mixes.json beside this file: the types that llama.cpp's quantizer chooses, by its own code.

Usage: make_gguf_mixes.py LLAMA_CPP     a source tree, such as vendor/llama.cpp of llama-cpp-python 0.3.36

A program of the tree's llama-quant.cpp and what it needs, without back ends, is compiled and asked for each model below,
with and without an importance matrix. Types of a role's tensors in layer order are run lengths: "Q6_K*3 Q4_K*2".
"""

import json
import pathlib
import subprocess
import sys
import tempfile

# n_embd, n_ff, layers, heads, key heads, experts, tied, shared experts
MODELS = {
    "smollm2": ("llama", 576, 1536, 30, 9, 3, 0, True, False),
    "llama-8b": ("llama", 4096, 14336, 32, 32, 8, 0, False, False),
    "llama-7b": ("llama", 4096, 11008, 32, 32, 32, 0, False, False),
    "llama-70b": ("llama", 8192, 28672, 80, 64, 8, 0, False, False),
    "mixtral": ("llama", 4096, 14336, 32, 32, 8, 8, False, False),
    "qwen2-moe": ("llama", 2048, 1408, 24, 16, 16, 60, False, True),
    "narrow": ("llama", 96, 160, 17, 6, 2, 0, True, False),
    "odd": ("llama", 256, 520, 9, 4, 4, 0, False, False),
}
MIXES = {
    "q8_0": 7, "q6_k": 18, "q5_k_m": 17, "q5_k_s": 16, "q5_1": 9, "q5_0": 8, "q4_k_m": 15, "q4_k_s": 14, "q4_1": 3,
    "q4_0": 2, "iq4_nl": 25, "iq4_xs": 30, "q3_k_l": 13, "q3_k_m": 12, "q3_k_s": 11, "iq3_m": 27, "iq3_s": 26,
    "iq3_xs": 22, "iq3_xxs": 23, "q2_k": 10, "q2_k_s": 21, "iq2_m": 29, "iq2_s": 28, "iq2_xs": 20, "iq2_xxs": 19, "tq2_0": 37,
    "tq1_0": 36,
}

PROGRAM = r"""
#include "llama-quant.cpp"

#include <cstdio>
#include <list>

int main(int, char ** argv) {
    // architecture n_embd n_ff layers heads key_heads experts matrix ftype, then NAME COLUMNS ROWS MATRICES on stdin
    llama_quant_model_desc desc{argv[1], (uint32_t) atoi(argv[2]), (uint32_t) atoi(argv[3]), (uint32_t) atoi(argv[4]),
                                (uint32_t) atoi(argv[5]), (uint32_t) atoi(argv[6]), (uint32_t) atoi(argv[7]), 0, 0};
    llama_model * model = llama_quant_model_from_metadata(&desc);
    llama_model_quantize_params params = llama_model_quantize_default_params();
    std::map<std::string, ggml_tensor, llama_model_loader::weight_name_comparer> tensors;
    char name[64];
    long long columns, rows, matrices;
    while (scanf("%63s %lld %lld %lld", name, &columns, &rows, &matrices) == 4) {
        ggml_tensor t{};
        t.type = GGML_TYPE_F16;
        t.ne[0] = columns; t.ne[1] = rows; t.ne[2] = matrices; t.ne[3] = 1;
        snprintf(t.name, sizeof t.name, "%s", name);
        tensors.emplace(name, t);
    }
    for (char ** ftype = argv + 9; *ftype; ++ftype) {
        params.ftype = (llama_ftype) atoi(*ftype);
        quantize_state_impl qs(*model, &params);
        qs.has_imatrix = atoi(argv[8]) != 0;
        std::vector<tensor_metadata> metadata;
        for (auto & [key, t] : tensors) { metadata.emplace_back(); metadata.back().name = key; }
        init_quantize_state_counters(qs, metadata);
        size_t i = 0;
        for (auto & [key, t] : tensors) {
            const ggml_type type = llama_tensor_get_type(qs, &params, &t, llama_ftype_get_default_type(params.ftype), metadata[i]);
            printf("%s %s %s %d\n", *ftype, key.c_str(), ggml_type_name(type), (int) tensor_requires_imatrix(key.c_str(), type, params.ftype));
            ++i;
        }
    }
}
"""


def build(tree, folder):
    source = folder / "program.cpp"
    source.write_text(PROGRAM)
    (folder / "ggml-version.h").write_text("")
    (folder / "llama-version.h").write_text("")
    flags = ["-O0", "-w", f"-I{folder}", f"-I{tree}/src", f"-I{tree}/include", f"-I{tree}/ggml/include", f"-I{tree}/ggml/src",
             f"-I{tree}/common", f"-I{tree}/vendor", "-DGGML_VERSION=\"0\"", "-DGGML_COMMIT=\"0\""]
    objects = []
    units = [source] + [tree / "src" / f"{name}.cpp" for name in
                        ("llama-model", "llama-arch", "llama-impl", "llama-hparams", "llama-vocab", "models/llama")]
    for unit in units + [tree / "ggml/src/ggml.c"]:
        target = folder / (unit.name + ".o")
        compiler = ["gcc"] if unit.suffix == ".c" else ["g++", "-std=c++17"]
        subprocess.run([*compiler, *flags, "-c", str(unit), "-o", str(target)], check=True)
        objects.append(str(target))
    program = folder / "program"
    # The rest of llama.cpp is never called.
    subprocess.run(["g++", "-static", *objects, "-Wl,--unresolved-symbols=ignore-all", "-o", str(program), "-lpthread"], check=True)
    return program


def tensors_of(n_embd, n_ff, layers, heads, key_heads, experts, tied, shared):
    width = n_embd // heads * key_heads
    tensors = [("token_embd.weight", n_embd, 32000, 1)]
    if not tied:
        tensors.append(("output.weight", n_embd, 32000, 1))
    for layer in range(layers):
        def add(name, columns, rows, matrices=1):
            tensors.append((f"blk.{layer}.{name}.weight", columns, rows, matrices))
        add("attn_q", n_embd, n_embd)
        add("attn_k", n_embd, width)
        add("attn_v", n_embd, width)
        add("attn_output", n_embd, n_embd)
        suffix = "_exps" if experts else ""
        add("ffn_gate" + suffix, n_embd, n_ff, max(experts, 1))
        add("ffn_up" + suffix, n_embd, n_ff, max(experts, 1))
        add("ffn_down" + suffix, n_ff, n_embd, max(experts, 1))
        if shared:
            add("ffn_gate_shexp", n_embd, 4 * n_ff)
            add("ffn_up_shexp", n_embd, 4 * n_ff)
            add("ffn_down_shexp", 4 * n_ff, n_embd)
    return tensors


def compact(types):
    runs = []
    for one in types:
        if runs and runs[-1][0] == one:
            runs[-1][1] += 1
        else:
            runs.append([one, 1])
    return " ".join(f"{one}*{count}" for one, count in runs)


def main():
    tree = pathlib.Path(sys.argv[1]).resolve()
    reference = {"source": "llama-quant.cpp of llama-cpp-python 0.3.36", "models": {}}
    with tempfile.TemporaryDirectory() as name:
        program = build(tree, pathlib.Path(name))
        for model, (arch, *sizes) in MODELS.items():
            n_embd, n_ff, layers, heads, key_heads, experts, tied, shared = sizes
            tensors = tensors_of(*sizes)
            text = "".join(" ".join(map(str, tensor)) + "\n" for tensor in tensors)
            numbers = {str(number): mix for mix, number in MIXES.items()}
            rows = {}
            for matrix in (0, 1):
                command = [program, arch, n_embd, n_ff, layers, heads, key_heads, experts, matrix, *numbers]
                answer = subprocess.run(list(map(str, command)), input=text, capture_output=True, text=True, check=True)
                for line in answer.stdout.splitlines():
                    number, tensor, kind, needs = line.split()
                    row = rows.setdefault(numbers[number] + ("+matrix" if matrix else ""), {})
                    key = tensor.split(".", 2)[2] if tensor.startswith("blk.") else tensor
                    layer = int(tensor.split(".")[1]) if tensor.startswith("blk.") else -1
                    row.setdefault(key, []).append((layer, kind.upper() + ("!" if needs == "1" else "")))
            mixes = {}
            for key, row in rows.items():
                mixes[key] = {role: compact([kind for _, kind in sorted(found)]) for role, found in sorted(row.items())}
            for key in [key for key in mixes if key.endswith("+matrix") and mixes[key] == mixes[key[:-7]]]:
                del mixes[key]
            reference["models"][model] = {
                "layers": layers, "heads": heads, "key_heads": key_heads, "experts": experts,
                "wide": arch == "llama", "tensors": {
                    (t[0].split(".", 2)[2] if t[0].startswith("blk.") else t[0]): t[1] for t in tensors}, "mixes": mixes}
    path = pathlib.Path(__file__).with_name("gguf_mixes.json")
    path.write_text(json.dumps(reference, indent=1) + "\n")


main()
