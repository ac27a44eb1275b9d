"""Logits of the peer's models against Transformers' with the same weights, tiny and in f32, on the CPU.

    pip install torch transformers
    python bench/peer/check_models.py
"""
import pathlib
import sys

import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from gpu_common import Shape  # noqa: E402
from torch_models import make_model  # noqa: E402

TOKENS = 24
SIZES = dict(vocab_size=509, hidden_size=48, intermediate_size=96, num_hidden_layers=7, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-6, initializer_range=0.2, attn_implementation="eager")
# Windows end within the rows; the scale of queries differs from that of a head's width.
GEMMA = dict(query_pre_attn_scalar=24, sliding_window=7, sliding_window_pattern=6, tie_word_embeddings=True)


def gemma3(scaling):
    rope = {"full_attention": {"rope_theta": 1e6, **(scaling or {"rope_type": "default"})},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    config = dict(SIZES, **GEMMA, model_type="gemma3_text", rope_theta=1e6, rope_local_base_freq=1e4, rope_scaling=scaling)
    return config, Gemma3ForCausalLM(Gemma3TextConfig(**SIZES, **GEMMA, rope_parameters=rope))


def llama():
    config = dict(SIZES, model_type="llama", rope_theta=1e4, tie_word_embeddings=False)
    rope = {"rope_type": "default", "rope_theta": 1e4}
    return config, LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=False, rope_parameters=rope))


@torch.no_grad()
def difference(config, reference):
    """Largest difference of a logit, as a share of the largest logit."""
    for name, parameter in reference.named_parameters():
        if "norm" in name:  # so that they matter
            parameter.add_(torch.randn_like(parameter) * 0.3)
    peer = make_model(Shape(dict(model=config, data=dict(seq_len=TOKENS), training=dict(micro_batch_size=2))), "mask")
    state = {name.removeprefix("model."): tensor for name, tensor in reference.state_dict().items()}
    state.setdefault("lm_head.weight", state["embed_tokens.weight"])
    peer.load_state_dict(state)
    tokens = torch.randint(0, config["vocab_size"], (2, TOKENS))
    expected = reference(tokens).logits
    return float((peer(tokens) - expected).abs().max() / expected.abs().max())


def main():
    torch.manual_seed(0)
    linear = {"rope_type": "linear", "factor": 8.0}
    worst = 0.0
    for name, pair in (("llama", llama()), ("gemma3", gemma3(None)), ("gemma3, linear RoPE scaling", gemma3(linear))):
        share = difference(*pair)
        worst = max(worst, share)
        print(f"{name:<28}{share:.1e}")
    sys.exit(worst > 1e-5)


if __name__ == "__main__":
    main()
