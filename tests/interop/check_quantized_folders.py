#!/usr/bin/env python3
"""Folders that bitsandbytes, GPTQModel and ModelOpt quantize, read by the program: logits beside those of Transformers, then
eval, generation, LoRA and requantization.

Usage: check_quantized_folders.py QUENCH FOLDER [MODEL]   where FOLDER receives everything; MODEL is a model folder to quantize
with bitsandbytes, in place of small random ones.
Prints a line for each folder and exits 1 when one differs. Packages that are not installed (bitsandbytes, gptqmodel,
nvidia-modelopt) are left out.
"""

import importlib.util
import json
import os
import pathlib
import shutil
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TORCHDYNAMO_DISABLE"] = "1"
os.environ.setdefault("GPTQMODEL_CPU_WORKERS", "2")

import numpy as np
import torch
from quantized_use import Program, random_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

FOLDER = pathlib.Path(sys.argv[2]).resolve()
PROGRAM = Program(sys.argv[1], FOLDER)
MODEL = pathlib.Path(sys.argv[3]).resolve() if len(sys.argv) > 3 else None
os.chdir(FOLDER)  # GPTQModel writes its log where it runs
MOST, MOST_ROUNDED = 1e-3, 1e-2  # distance of logits, relative; with rounded inputs, where one bit moves a code
VOCABULARY = 320
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


def compare(name, folder, model, ids):
    """`model`: dense, in f32, with the folder's values. Of small models then all that one does with the folder."""
    global failures
    with torch.no_grad():
        theirs = model(torch.from_numpy(ids)).logits.numpy()
    ours = PROGRAM.logits(folder, ids)
    difference = float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))
    ok, text = difference <= MOST, f"logits {difference:.1e} from Transformers"
    if "quantization_config" not in json.loads((folder / "config.json").read_text()):
        ok, text = False, text + ", not quantized"
    text += f"; {used(name, folder)}"
    failures += not ok
    print(f"{'ok  ' if ok else 'FAIL'} {name}: {text}", flush=True)


def used(name, folder):
    global failures
    for file in (MODEL or FOLDER / "small").glob("tokenizer*"):
        if not (folder / file.name).exists():
            shutil.copy(file, folder)
    try:
        # 4 bits of bitsandbytes are read as dense weights.
        return PROGRAM.use(folder, VOCABULARY, most=0.3 if name == "modelopt_nvfp4" else 0.05,
                           base="nf4" if BITSANDBYTES.get(name, {}).get("load_in_4bit") else "stored")
    except (RuntimeError, AssertionError) as error:
        failures += 1
        return f"FAIL {error}"


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

    random_model(FOLDER / "base", VOCABULARY, 128, 192, 4)
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


def e2m1(x):
    """Nearest code of four bits, ties to even mantissas."""
    size = x.abs().clamp(max=6)
    step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
    return torch.sign(x) * torch.round(size / step) * step


def modelopt_inputs(tensors, layer, x):
    """Inputs as ModelOpt's formats define them: float8 under a stored scale or one a token, NVFP4 under scales of 16."""
    if f"{layer}.weight_scale_2" in tensors:
        whole, blocks = tensors[f"{layer}.input_scale"].float(), x.unflatten(-1, (-1, 16))
        scale = (blocks.abs().amax(-1, keepdim=True) / 6 / whole).clamp(max=448).to(torch.float8_e4m3fn).float() * whole
        return torch.where(scale > 0, e2m1(blocks / torch.where(scale > 0, scale, 1)) * scale, 0).flatten(-2)
    stored = tensors.get(f"{layer}.input_scale")
    scale = x.abs().amax(-1, keepdim=True) / 448 if stored is None else stored.float()
    return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale


def modelopt_logits(base, tensors, layers, ids):
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    for layer in layers:
        module = model.get_submodule(layer)
        module.weight.data = modelopt_values(tensors, layer)
        module.register_forward_pre_hook(lambda _, inputs, layer=layer: modelopt_inputs(tensors, layer, inputs[0]))
    with torch.no_grad():
        return model(torch.from_numpy(ids)).logits.numpy()


def check_modelopt(base, ids):
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
        PROGRAM.run("export", "--model", folder, "--output", values, "--dtype", "f32")
        tensors, ours = load_tensors(folder / "model.safetensors"), load_tensors(values / "model.safetensors")
        layers = [key.removesuffix(".weight_scale") for key in tensors if key.endswith(".weight_scale")]
        most = max(float((modelopt_values(tensors, layer) - ours[f"{layer}.weight"]).abs().max()) for layer in layers)
        global failures
        logits = modelopt_logits(base, tensors, layers, ids)
        apart = float(np.linalg.norm(PROGRAM.logits(folder, ids) - logits) / np.linalg.norm(logits))
        ok = most == 0 and len(layers) == 14 and apart <= MOST_ROUNDED
        failures += not ok
        print(f"{'ok  ' if ok else 'FAIL'} {name}: {len(layers)} weights, largest difference {most:.1e}, "
              f"logits {apart:.1e} under its rules for inputs; {used(name, folder)}", flush=True)


def installed(package):
    if importlib.util.find_spec(package):
        return True
    print(f"skip {package}: not installed", flush=True)
    return False


if MODEL:
    check_bitsandbytes(MODEL, (np.arange(64, dtype=np.int64) * 37 % 4000 + 100).reshape(1, 64))
else:
    random_model(FOLDER / "small", VOCABULARY, 64, 192, 4)
    tokens = np.arange(40, dtype=np.int64).reshape(2, 20)
    if installed("bitsandbytes"):
        check_bitsandbytes(FOLDER / "small", tokens)
    if installed("gptqmodel"):
        check_gptqmodel()
    if installed("modelopt"):
        check_modelopt(FOLDER / "small", tokens)
sys.exit(failures > 0)
