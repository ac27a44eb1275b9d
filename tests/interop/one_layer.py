"""A folder whose model is one linear layer of another, so that our program's product can be compared on the same input.

Each row of the input is the embedding of one token, and the head is the layer. The decoder layer between adds zeros;
the norm divides by exactly 1: beside its epsilon of 1 the squares of inputs that were made small vanish, and its
weight, a power of two, brings them back.
"""

import copy
import json

import torch
from safetensors.torch import save_file

SMALL = 2.0**-40
HEAD_DIM = 32
NARROW = 32  # the MLP


def write_layer(folder, quantization, stored, metadata, layer, x):
    """Writes the folder. `layer` is one of a folder in the layout of compressed-tensors or TorchAO with this
    quantization_config, tensors and metadata of safetensors; x [T,K] f32. Biases are left away."""
    parts = {name[len(layer) + 1 :]: t for name, t in stored.items() if name.rsplit(".", 1)[0] == layer}
    rows = next(t for part, t in parts.items() if part in ("weight", "weight_packed", "_weight_qdata")).shape[0]
    tokens, inputs = x.shape
    assert tokens <= rows, "a token for each row of the input"
    quantization = copy.deepcopy(quantization)
    for group in quantization.get("config_groups", {}).values():
        group["targets"] = ["lm_head"]
    quantization["ignore"] = []
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(
        json.dumps({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": inputs,
            "intermediate_size": NARROW, "max_position_embeddings": 512, "num_attention_heads": 1,
            "num_key_value_heads": 1, "head_dim": HEAD_DIM, "num_hidden_layers": 1, "rms_norm_eps": 1.0,
            "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "float32", "vocab_size": rows,
            "quantization_config": quantization,
        }))
    embeddings = torch.zeros(rows, inputs)
    embeddings[:tokens] = x * SMALL
    assert torch.equal(embeddings[:tokens] / SMALL, x), "inputs that are too small"
    tensors = {"model.embed_tokens.weight": embeddings, "model.norm.weight": torch.full((inputs,), 1 / SMALL)}
    decoder = "model.layers.0."
    for norm in ("input_layernorm", "post_attention_layernorm"):
        tensors[f"{decoder}{norm}.weight"] = torch.ones(inputs)
    for projection in ("q_proj", "k_proj", "v_proj"):
        tensors[f"{decoder}self_attn.{projection}.weight"] = torch.zeros(HEAD_DIM, inputs)
    tensors[f"{decoder}self_attn.o_proj.weight"] = torch.zeros(inputs, HEAD_DIM)
    for projection in ("gate_proj", "up_proj"):
        tensors[f"{decoder}mlp.{projection}.weight"] = torch.zeros(NARROW, inputs)
    tensors[f"{decoder}mlp.down_proj.weight"] = torch.zeros(inputs, NARROW)
    metadata = {"lm_head.weight": metadata[f"{layer}.weight"]} if f"{layer}.weight" in metadata else {}
    if metadata:
        metadata |= {name: json.dumps({"_type": "Tensor"}) for name in tensors}
        metadata["tensor_names"] = json.dumps(sorted(metadata))
    tensors |= {f"lm_head.{part}": t for part, t in parts.items() if part != "bias"}
    save_file(tensors, folder / "model.safetensors", metadata=metadata)
