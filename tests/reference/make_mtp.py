"""Writes models/deepseek_v3_mtp: a tiny random checkpoint of DeepSeek-V3 with two layers of multi-token prediction under the
names of DeepSeek's checkpoints, their logits, the losses of both terms and every gradient. The block is Transformers'
DeepseekV3DecoderLayer; what is around it follows arXiv:2412.19437, section 2.2. Depth 1 reads the main model's normalised hidden
states, depth 2 what the head reads at depth 1.

    pip install torch transformers safetensors
    python tests/reference/make_mtp.py

tests/train/objective/mtp_golden_test.cpp reads the result.
"""

import json

import torch
from safetensors.torch import load_file, save_file
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3DecoderLayer, DeepseekV3RMSNorm

from make_models import DEEPSEEK, HERE

DEPTHS, WEIGHT = 2, 0.3


class Depth(torch.nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        self.enorm = DeepseekV3RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.hnorm = DeepseekV3RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.eh_proj = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.block = DeepseekV3DecoderLayer(config, layer)
        self.norm = DeepseekV3RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, embedding, hidden, **context):
        output = self.block(self.eh_proj(torch.cat([self.enorm(embedding), self.hnorm(hidden)], -1)), **context)
        return self.norm(output[0] if isinstance(output, tuple) else output)


def stored_name(layer, name):
    """Name of a depth's parameter."""
    name = {"block": "", "norm": "shared_head.norm."}.get(name.split(".")[0], name.split(".")[0] + ".") + name.split(".", 1)[1]
    return f"model.layers.{layer}.{name}"


def by_expert(name, value, tensors):
    """Adds a fused parameter of experts as one matrix each, the others as they are."""
    if ".experts." not in name or "shared" in name:
        tensors[name] = value.clone()
        return
    base, kind = name.rsplit(".", 1)
    parts = {"gate_up_proj": ["gate_proj", "up_proj"], "down_proj": ["down_proj"]}[kind]
    for expert, rows in enumerate(value):
        for part, piece in zip(parts, rows.chunk(len(parts))):
            tensors[f"{base}.{expert}.{part}.weight"] = piece.clone()


def main():
    torch.manual_seed(20261)
    config = DeepseekV3Config(**DEEPSEEK, q_lora_rank=14, attention_bias=True,
                              rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    config._attn_implementation = "eager"
    model = DeepseekV3ForCausalLM(config).float()
    model.set_attn_implementation("eager")
    depths = torch.nn.ModuleList(Depth(config, config.num_hidden_layers + k) for k in range(DEPTHS)).float()
    with torch.no_grad():
        for module in (model, depths):
            for parameter in module.parameters():
                parameter.copy_(torch.randn_like(parameter) * 0.15 + (1.0 if parameter.dim() == 1 else 0.0))
            for key, buffer in module.named_buffers():
                if key.endswith("e_score_correction_bias"):
                    buffer.copy_(torch.randn_like(buffer) * 0.1)
    folder = HERE / "models" / "deepseek_v3_mtp"
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    written = json.loads((folder / "config.json").read_text())
    written["num_nextn_predict_layers"] = DEPTHS
    (folder / "config.json").write_text(json.dumps(written, indent=2) + "\n")
    tensors = load_file(folder / "model.safetensors")
    for key, value in depths.state_dict().items():
        k, rest = key.split(".", 1)
        by_expert(stored_name(config.num_hidden_layers + int(k), rest), value, tensors)
    for k in range(DEPTHS):
        prefix = f"model.layers.{config.num_hidden_layers + k}."
        tensors[prefix + "embed_tokens.weight"] = model.model.embed_tokens.weight.detach().clone()
        tensors[prefix + "shared_head.head.weight"] = model.lm_head.weight.detach().clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    ids = torch.randint(3, config.vocab_size, (2, 40))
    labels = ids.clone()
    labels[0, :5] = -100
    labels[1, 20:23] = -100
    length = ids.shape[1]
    hidden = model.model(input_ids=ids).last_hidden_state
    positions = torch.arange(length)[None].expand(2, -1)
    context = {"position_embeddings": model.model.rotary_emb(hidden, positions), "position_ids": positions,
               "attention_mask": torch.full((length, length), float("-inf")).triu(1)[None, None]}

    def sum_of_losses(logits, ahead):
        return torch.nn.functional.cross_entropy(logits[:, :-ahead].flatten(0, 1), labels[:, ahead:].flatten(),
                                                 ignore_index=-100, reduction="sum")

    logits = model.lm_head(hidden)
    count = (labels[:, 1:] != -100).sum()
    loss = sum_of_losses(logits, 1) / count
    total, means, of_depth = loss, [], []
    for k, depth in enumerate(depths, 1):
        later = ids[:, torch.clamp(torch.arange(length) + k, max=length - 1)]  # rows beyond the end have no target
        hidden = depth(model.model.embed_tokens(later), hidden, **context)
        of_depth.append(model.lm_head(hidden))
        losses = sum_of_losses(of_depth[-1], k + 1)
        total = total + WEIGHT / DEPTHS * losses / count
        means.append((losses / (labels[:, k + 1:] != -100).sum()).detach().reshape(1))
    total.backward()
    tensors = {"input_ids": ids, "labels": labels, "logits": logits.detach().contiguous(),
               "mtp_logits": torch.stack(of_depth).detach().contiguous(), "loss": loss.detach().reshape(1),
               "mtp_losses": torch.cat(means), "weight": torch.tensor([WEIGHT])}
    for key, parameter in model.named_parameters():
        tensors["grad." + key] = parameter.grad.contiguous()
    for key, parameter in depths.named_parameters():
        k, rest = key.split(".", 1)
        tensors["grad." + stored_name(config.num_hidden_layers + int(k), rest)] = parameter.grad.contiguous()
    save_file(tensors, folder / "reference.safetensors")
    print(loss.item(), [x.item() for x in means])


if __name__ == "__main__":
    main()
