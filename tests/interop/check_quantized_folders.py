#!/usr/bin/env python3
"""Folders that bitsandbytes, GPTQModel and ModelOpt quantize, read by the program: logits beside those of Transformers.

Usage: check_quantized_folders.py QUENCH FOLDER [MODEL]   where FOLDER receives everything; MODEL is a model folder to quantize
with bitsandbytes, in place of small random ones.
Prints a line for each folder and exits 1 when one differs. GPTQ and AWQ are left out without the package gptqmodel, ModelOpt
without nvidia-modelopt; of ModelOpt weights are compared, as inputs are rounded too.
"""

import json
import os
import pathlib
import subprocess
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TORCHDYNAMO_DISABLE"] = "1"
os.environ.setdefault("GPTQMODEL_CPU_WORKERS", "2")

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

QUENCH, FOLDER = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]).resolve()
MODEL = pathlib.Path(sys.argv[3]).resolve() if len(sys.argv) > 3 else None
os.chdir(FOLDER)  # GPTQModel writes its log where it runs
MOST = 1e-3  # distance of logits, relative
VOCABULARY = 96
BITSANDBYTES = {
    "nf4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    "nf4_double": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
    "fp4": {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4"},
    "int8": {"load_in_8bit": True},
}
GPTQ = {
    "gptq4": {"bits": 4, "group_size": 32},
    "gptq4_act_order": {"bits": 4, "group_size": 32, "desc_act": True},
    "gptq4_asym": {"bits": 4, "group_size": 32, "sym": False},
    "gptq4_asym_v2_act_order": {"bits": 4, "group_size": 32, "sym": False, "desc_act": True, "format": "gptq_v2"},
    "gptq3": {"bits": 3, "group_size": 32},
    "gptq2_asym_v2": {"bits": 2, "group_size": 32, "sym": False, "format": "gptq_v2"},
    "gptq8_rows": {"bits": 8, "group_size": -1, "act_group_aware": False},
    "gptq_by_layer": {"bits": 4, "group_size": 32, "dynamic": {r"+:.*down_proj": {"bits": 8, "group_size": 64}}},
}

failures = 0


def report(name, difference, kept):
    global failures
    ok = difference <= MOST and kept
    failures += not ok
    print(f"{'ok  ' if ok else 'FAIL'} {name}: logits {difference:.1e} from Transformers{'' if kept else ', not quantized'}", flush=True)


def quench(*arguments):
    done = subprocess.run([QUENCH, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, arguments))}: {done.stderr}")
    return done.stdout


def compare(name, folder, model, ids):
    """`model`: dense, in f32, with the folder's values."""
    with torch.no_grad():
        theirs = model(torch.from_numpy(ids)).logits.numpy()
    save_file({"input_ids": ids}, FOLDER / "ids.safetensors")
    quench("forward", "--model", folder, "--input", FOLDER / "ids.safetensors", "--output", FOLDER / "logits.safetensors",
           "--overwrite", "--device", "cpu", "--dtype", "f32")
    ours = load_file(FOLDER / "logits.safetensors")["logits"]
    difference = float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))
    report(name, difference, "quantization_config" in json.loads((folder / "config.json").read_text()))


def random_model(folder, hidden, heads):
    torch.manual_seed(2)
    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=hidden, intermediate_size=192, num_hidden_layers=2,
                         num_attention_heads=heads, num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=False)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", bos_token="w1", eos_token="w2", pad_token="w3").save_pretrained(folder)


def dense_of(module):
    """A linear layer with the values of one of GPTQModel."""
    module.scales.data = module.scales.data.float()
    if hasattr(module, "g_idx") and type(module).__name__ == "TorchLinear":
        weight = module.dequantize_weight()
    else:
        from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm
        weight = dequantize_gemm(module.qweight, module.qzeros, module.scales, module.bits, module.group_size)
    linear = torch.nn.Linear(module.in_features, module.out_features, bias=False)
    linear.weight.data = weight.T.float().contiguous()
    return linear


def check_bitsandbytes(base, ids):
    for name, options in BITSANDBYTES.items():
        folder = FOLDER / name
        AutoModelForCausalLM.from_pretrained(base, quantization_config=BitsAndBytesConfig(**options), device_map="cpu",
                                             dtype=torch.bfloat16).save_pretrained(folder)
        # 8 bits dequantize to the dtype of the model, 4 bits to that of the folder.
        dtype = torch.float32 if name == "int8" else torch.bfloat16
        loaded = AutoModelForCausalLM.from_pretrained(folder, device_map="cpu", dtype=dtype)
        compare(name, folder, loaded.dequantize(dtype).float().eval(), ids)


def check_gptqmodel():
    from gptqmodel import BACKEND, GPTQModel, QuantizeConfig
    from gptqmodel.quantization.config import FORMAT, METHOD

    random_model(FOLDER / "base", 128, 4)
    generator = torch.Generator().manual_seed(3)
    data = [{"input_ids": torch.randint(0, VOCABULARY, (64,), generator=generator).tolist(), "attention_mask": [1] * 64}
            for _ in range(64)]
    ids = np.arange(40, dtype=np.int64).reshape(2, 20)
    for name, options in [*GPTQ.items(), ("awq", {"bits": 4, "group_size": 32, "method": METHOD.AWQ, "format": FORMAT.GEMM})]:
        folder = FOLDER / name
        model = GPTQModel.load(str(FOLDER / "base"), QuantizeConfig(offload_to_disk=False, **options), device="cpu")
        model.quantize(data, batch_size=1)
        model.save(str(folder))
        # In f16, the dtype of stored scales.
        loaded = GPTQModel.load(str(folder), device="cpu", dtype=torch.float16,
                                backend=BACKEND.AWQ_TORCH if name == "awq" else BACKEND.GPTQ_TORCH)
        network = loaded.model
        for path, module in list(network.named_modules()):
            if hasattr(module, "qweight"):
                network.set_submodule(path, dense_of(module))
        compare(name, folder, network.float().eval(), ids)


def modelopt_values(tensors, layer):
    codes, scale = tensors[f"{layer}.weight"], tensors[f"{layer}.weight_scale"].float()
    if codes.dtype != torch.uint8:
        return codes.float() * (scale[:, None] if scale.dim() == 1 else scale)
    levels = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    nibbles = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(1).long()
    values = levels[nibbles & 7] * (1 - 2 * (nibbles >> 3).float())
    return values * (scale * tensors[f"{layer}.weight_scale_2"].float()).repeat_interleave(16, dim=1)


def check_modelopt(base):
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint
    from safetensors.torch import load_file as load_tensors

    for name, config in (("modelopt_fp8", mtq.FP8_DEFAULT_CFG), ("modelopt_fp8_rows", mtq.FP8_PER_CHANNEL_PER_TOKEN_CFG),
                         ("modelopt_nvfp4", mtq.NVFP4_DEFAULT_CFG)):
        folder, values = FOLDER / name, FOLDER / f"{name}_values"
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
        model = mtq.quantize(model, config, lambda m: m(torch.arange(64).reshape(2, 32)))
        with torch.inference_mode():
            export_hf_checkpoint(model, export_dir=folder)
        quench("export", "--model", folder, "--output", values, "--dtype", "f32")
        tensors, ours = load_tensors(folder / "model.safetensors"), load_tensors(values / "model.safetensors")
        layers = [key.removesuffix(".weight_scale") for key in tensors if key.endswith(".weight_scale")]
        most = max(float((modelopt_values(tensors, layer) - ours[f"{layer}.weight"]).abs().max()) for layer in layers)
        global failures
        ok = most == 0 and len(layers) == 14
        failures += not ok
        print(f"{'ok  ' if ok else 'FAIL'} {name}: {len(layers)} weights, largest difference {most:.1e}", flush=True)


if MODEL:
    check_bitsandbytes(MODEL, (np.arange(64, dtype=np.int64) * 37 % 4000 + 100).reshape(1, 64))
else:
    random_model(FOLDER / "small", 64, 4)
    check_bitsandbytes(FOLDER / "small", np.arange(40, dtype=np.int64).reshape(2, 20))
    try:
        import gptqmodel  # noqa: F401
    except ImportError:
        print("skip GPTQ and AWQ: no package gptqmodel", flush=True)
    else:
        check_gptqmodel()
    try:
        import modelopt  # noqa: F401
    except ImportError:
        print("skip ModelOpt: no package nvidia-modelopt", flush=True)
    else:
        check_modelopt(FOLDER / "small")
sys.exit(failures > 0)
