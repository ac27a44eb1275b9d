"""Writes models/llama_dora: a DoRA adapter over tests/golden/models/llama, with logits, loss and gradients by PEFT.

    pip install torch transformers peft safetensors
    python tests/reference/make_dora.py

The layout is that of tests/golden/models/llama_lora; tests/train/model_folder/peft_golden_test.cpp reads the result.
"""

import json
import pathlib

import peft
import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
FOLDER = HERE / "models" / "llama_dora"
BASE = HERE.parent / "golden" / "models" / "llama"

torch.manual_seed(20261)
base = transformers.AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32, attn_implementation="eager")
model = peft.get_peft_model(base, peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"],
                                                  use_dora=True, task_type="CAUSAL_LM"))
# The update begins as nothing, and the magnitudes as the norms of the weights: neither would show much.
with torch.no_grad():
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.normal_(std=0.05)
        if "lora_magnitude_vector" in name:
            parameter.mul_(1 + 0.3 * torch.randn_like(parameter))

ids = torch.randint(3, model.config.vocab_size, (2, 40))
result = model(input_ids=ids, labels=ids)
result.loss.backward()
tensors = {"input_ids": ids, "logits": result.logits.detach(), "loss": result.loss.detach().reshape(1)}
for name, parameter in model.named_parameters():
    if parameter.grad is not None:
        plain = name.removeprefix("base_model.model.").replace(".default", "")
        if "lora_magnitude_vector" in plain:
            plain = plain.removesuffix(".weight")
        tensors[f"grad.{plain}"] = parameter.grad
FOLDER.mkdir(parents=True, exist_ok=True)
model.save_pretrained(FOLDER)
(FOLDER / "README.md").unlink(missing_ok=True)  # a model card with nothing in it
config = json.loads((FOLDER / "adapter_config.json").read_text())
config["base_model_name_or_path"] = "llama"
config["target_modules"] = sorted(config["target_modules"])
(FOLDER / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
versions = {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__}
save_file(tensors, FOLDER / "reference.safetensors", metadata=versions)
print(versions, float(result.loss))
