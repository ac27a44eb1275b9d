"""Writes models/llama_saved{,_tied}, models/llama_tokens{,_tied} and models/llama_grown{,_saved,_tokens,_tied}: LoRA
adapters with modules_to_save, with trainable_token_indices and over a resized vocabulary, with logits, loss and
gradients by PEFT.

    pip install torch transformers peft safetensors
    python tests/reference/make_saved_modules.py

The bases are tests/golden/models/llama (untied: embeddings, head and norms are saved; rows of the embedding alone) and
llama31_tied (the embedding is saved, the head is tied to its copy by ensure_weight_tying; rows of both). The layout is that of tests/golden/models/llama_lora;
tests/train/model_folder/peft_golden_test.cpp reads the result.
"""

import json
import pathlib

import peft
import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
MODELS = HERE.parent / "golden" / "models"


def record(name, base_name, new_tokens=0, **options):
    torch.manual_seed(20262)
    base = transformers.AutoModelForCausalLM.from_pretrained(MODELS / base_name, dtype=torch.float32,
                                                             attn_implementation="eager")
    if new_tokens:
        base.resize_token_embeddings(base.config.vocab_size + new_tokens)
    model = peft.get_peft_model(base, peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"],
                                                      task_type="CAUSAL_LM", **options))
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if "lora_B" in parameter_name:
                parameter.normal_(std=0.05)
            if "modules_to_save" in parameter_name or "trainable_tokens_delta" in parameter_name:
                parameter.mul_(1 + 0.3 * torch.randn_like(parameter))
    ids = torch.randint(3, model.config.vocab_size, (2, 12))
    result = model(input_ids=ids, labels=ids)
    result.loss.backward()
    tensors = {"input_ids": ids, "logits": result.logits.detach(), "loss": result.loss.detach().reshape(1)}
    for parameter_name, parameter in model.named_parameters():
        if parameter.grad is not None:
            plain = parameter_name.removeprefix("base_model.model.").replace(".modules_to_save", "").replace(".default", "")
            tensors[f"grad.{plain}"] = parameter.grad
    folder = HERE / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)  # a model card with nothing in it
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = base_name
    config["target_modules"] = sorted(config["target_modules"])
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__}
    save_file(tensors, folder / "reference.safetensors", metadata=versions)
    print(name, versions, float(result.loss), sorted(tensors))


record("llama_saved", "llama", modules_to_save=["embed_tokens", "lm_head", "norm"])
record("llama_saved_tied", "llama31_tied", modules_to_save=["embed_tokens"], ensure_weight_tying=True)
for name, base_name in {"llama_tokens": "llama", "llama_tokens_tied": "llama31_tied"}.items():
    record(name, base_name, trainable_token_indices=[150, 3, 7, 99, 40, 41, 42, 43])
grown = {"embed_tokens": [160, 161, 7], "lm_head": [161, 162]}
record("llama_grown", "llama", 3)
record("llama_grown_saved", "llama", 3, modules_to_save=["embed_tokens", "lm_head"])
record("llama_grown_tokens", "llama", 3, trainable_token_indices=grown)
record("llama_grown_tied", "llama31_tied", 3, trainable_token_indices=[160, 161, 162])
