"""Writes rope_overrides.json and rope_overrides.safetensors: logits of tests/golden/models/llama, whose config.json has no RoPE
scaling, in Hugging Face Transformers under the RoPE settings that a run may set in their place.

    pip install torch transformers safetensors
    python tests/reference/make_rope_overrides.py

tests/train/model_folder/rope_override_golden_test.cpp reads the result.
"""

import json
import pathlib

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig, LlamaForCausalLM

HERE = pathlib.Path(__file__).parent
MODEL = HERE.parent / "golden/models/llama"
LENGTH, LAST = 40, 8  # sequence length, beyond the original lengths; positions whose logits are kept

# Keys of a run's section model, and the settings that Transformers is given.
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LONGROPE = {"rope_type": "longrope", "original_max_position_embeddings": 16, "short_factor": [1.0, 1.1, 1.3, 1.5],
            "long_factor": [1.0, 2.0, 4.5, 6.0]}
CASES = {
    "yarn": {"rope_scaling": YARN},
    "yarn_factors": {"rope_scaling": YARN | {"beta_fast": 8.0, "beta_slow": 0.5, "attention_factor": 1.2}},
    "linear": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama3": {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                "original_max_position_embeddings": 16}},
    "longrope": {"rope_scaling": LONGROPE, "max_position_embeddings": 64},
    "longrope_short": {"rope_scaling": LONGROPE | {"original_max_position_embeddings": 60},
                       "max_position_embeddings": 240},
    "dynamic": {"rope_scaling": {"rope_type": "dynamic", "factor": 3.0}, "max_position_embeddings": 20},
    "theta": {"rope_theta": 1000000.0},
    "theta_and_yarn": {"rope_theta": 50000.0, "rope_scaling": YARN},
}


def logits(keys, ids):
    config = AutoConfig.from_pretrained(MODEL)
    scaling = keys.get("rope_scaling", {"rope_type": "default"})
    config.rope_parameters = {"rope_theta": keys.get("rope_theta", 10000.0)} | scaling
    if "max_position_embeddings" in keys:
        config.max_position_embeddings = keys["max_position_embeddings"]
    elif "original_max_position_embeddings" in scaling:
        config.max_position_embeddings = int(scaling["factor"] * scaling["original_max_position_embeddings"])
    config._attn_implementation = "eager"
    model = LlamaForCausalLM.from_pretrained(MODEL, config=config, dtype=torch.float32)
    with torch.no_grad():
        return model(input_ids=ids).logits[:, -LAST:].contiguous()


def main():
    torch.manual_seed(7)
    ids = torch.randint(3, 160, (2, LENGTH))
    tensors = {"input_ids": ids, "none": logits({}, ids)}
    for name, keys in CASES.items():
        tensors[name] = logits(keys, ids)
        print(name, float((tensors[name] - tensors["none"]).abs().max()))
    save_file(tensors, HERE / "rope_overrides.safetensors")
    made = {"made_by": f"transformers {transformers.__version__}, torch {torch.__version__}", "cases": CASES}
    (HERE / "rope_overrides.json").write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
