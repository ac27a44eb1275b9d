"""Writes models/*: tiny random-weight checkpoints with logits, loss, gradients, greedy continuations and losses of AdamW steps
by Hugging Face Transformers, and rope.json: inverse frequencies of its rotary embeddings.

    pip install torch transformers safetensors
    python tests/reference/make_models.py              # all of it
    python tests/reference/make_models.py deepseek_v3  # this model alone

The layout is that of tests/golden/models; tests/train/model_folder/reference_golden_test.cpp and
tests/nn/modules/rope_golden_test.cpp read the result.
"""

import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers import (DeepseekV3Config, DeepseekV3ForCausalLM, Gemma2Config, Gemma2ForCausalLM, Gemma3ForCausalLM,
                          Gemma3TextConfig, Glm4Config, Glm4ForCausalLM, GptOssConfig, GptOssForCausalLM, GraniteConfig, GraniteForCausalLM, Llama4ForCausalLM, Llama4TextConfig,
                          LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Olmo2Config, Olmo2ForCausalLM,
                          Phi3Config, Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen2MoeConfig,
                          Qwen2MoeForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM, SmolLM3Config,
                          SmolLM3ForCausalLM)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

HERE = pathlib.Path(__file__).parent
COMMON = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2,
              head_dim=16, rms_norm_eps=1e-5, tie_word_embeddings=False, attention_dropout=0.0, bos_token_id=1,
              eos_token_id=2, pad_token_id=None)
QWEN = {key: value for key, value in COMMON.items() if key != "head_dim"}  # heads of hidden_size / num_attention_heads
PROMPT, GENERATED = 12, 16

# A dense layer, then two with experts, whose groups and bias on the choice matter; heads of keys and values differ in width.
DEEPSEEK = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
                num_key_value_heads=4, rms_norm_eps=1e-5, tie_word_embeddings=False, attention_dropout=0.0, bos_token_id=1,
                eos_token_id=2, pad_token_id=None, n_routed_experts=8, n_shared_experts=2, num_experts_per_tok=3,
                moe_intermediate_size=12, n_group=4, topk_group=2, first_k_dense_replace=1, routed_scaling_factor=1.7,
                kv_lora_rank=20, qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=12, max_position_embeddings=64)

# Chunks end within the sequences and within the prompt; scales of queries change several times.
LLAMA4 = dict(vocab_size=96, hidden_size=32, intermediate_size=24, intermediate_size_mlp=40, num_attention_heads=4,
              num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5, tie_word_embeddings=False, attention_dropout=0.0,
              bos_token_id=1, eos_token_id=2, pad_token_id=None, max_position_embeddings=64, attn_scale=0.4)

# Windows end within the sequences and within the prompt; scores' scale differs from a head's width; caps that bend.
GEMMA = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2,
             head_dim=16, rms_norm_eps=1e-5, attention_dropout=0.0, bos_token_id=1, eos_token_id=2, pad_token_id=None,
             max_position_embeddings=64, sliding_window=7)

PHI4_MINI = QWEN | dict(hidden_size=64, num_hidden_layers=2, max_position_embeddings=64, tie_word_embeddings=True,
                        rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
                                         "short_factor": [1.0, 1.01, 1.02, 1.1, 1.3, 1.5],
                                         "long_factor": [1.0, 1.2, 1.7, 2.9, 4.5, 6.0]})

MODELS = {
    "gemma2": lambda: Gemma2ForCausalLM(Gemma2Config(
        **GEMMA, num_hidden_layers=4, query_pre_attn_scalar=24, attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(
        **GEMMA, num_hidden_layers=4, query_pre_attn_scalar=24, sliding_window_pattern=3,
        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 100000.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0}})),
    # Windows end within the sequences and within the prompt; a limit that binds in places; a head wider than hidden / heads.
    "gpt_oss": lambda: GptOssForCausalLM(GptOssConfig(
        **COMMON, num_hidden_layers=4, num_local_experts=6, num_experts_per_tok=3, sliding_window=7, swiglu_limit=0.3,
        max_position_embeddings=64,
        rope_parameters={"rope_type": "yarn", "rope_theta": 15000.0, "factor": 4.0, "beta_fast": 4.0, "beta_slow": 1.0,
                         "original_max_position_embeddings": 16, "truncate": False})),
    # As Scout: one expert a token, in every layer; every second layer without rotation.
    "llama4": lambda: Llama4ForCausalLM(Llama4TextConfig(
        **LLAMA4, num_hidden_layers=4, num_local_experts=4, num_experts_per_tok=1, no_rope_layer_interval=2,
        attention_chunk_size=7, floor_scale=9,
        rope_parameters={"rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 1.0, "original_max_position_embeddings": 16})),
    # As Maverick, and what neither has: dense layers between those with experts, no norm of queries and keys, two experts a
    # token, chunks in a layer without rotation. No biases: without rotation, that of keys has no gradient but noise.
    "llama4_mixed": lambda: Llama4ForCausalLM(Llama4TextConfig(
        **LLAMA4, num_hidden_layers=3, num_local_experts=6, num_experts_per_tok=2, interleave_moe_layer_step=2,
        no_rope_layers=[1, 0, 1], layer_types=["full_attention", "chunked_attention", "chunked_attention"],
        attention_chunk_size=16, floor_scale=5, use_qk_norm=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    "deepseek_v3": lambda: DeepseekV3ForCausalLM(DeepseekV3Config(
        **DEEPSEEK, q_lora_rank=14, attention_bias=True,
        rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 4.0, "beta_slow": 1.0,
                         "original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 0.8})),
    "deepseek_v3_halves": lambda: DeepseekV3ForCausalLM(DeepseekV3Config(
        **DEEPSEEK, q_lora_rank=None, rope_interleave=False, norm_topk_prob=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    "llama_yarn": lambda: LlamaForCausalLM(LlamaConfig(
        **COMMON, num_hidden_layers=1, max_position_embeddings=64,
        rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                         "original_max_position_embeddings": 16, "beta_fast": 4.0, "beta_slow": 1.0})),
    "llama_dynamic": lambda: LlamaForCausalLM(LlamaConfig(
        **COMMON, num_hidden_layers=1, max_position_embeddings=20,
        rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 3.0})),
    # The window begins in the second of three layers; of Qwen3-MoE it is in all of them.
    "qwen2_window": lambda: Qwen2ForCausalLM(Qwen2Config(
        **QWEN, num_hidden_layers=3, max_position_embeddings=64, use_sliding_window=True, sliding_window=7,
        max_window_layers=1, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    "qwen3_moe_window": lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(
        **COMMON, num_hidden_layers=2, max_position_embeddings=64, use_sliding_window=True, sliding_window=9,
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, norm_topk_prob=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    "olmo2": lambda: Olmo2ForCausalLM(Olmo2Config(
        **QWEN, num_hidden_layers=3, max_position_embeddings=64, attention_bias=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    # Layers with RoPE and without, each with a window and without. No attention biases, as llama4_mixed.
    "smollm3": lambda: SmolLM3ForCausalLM(SmolLM3Config(
        **(COMMON | {"tie_word_embeddings": True}), num_hidden_layers=4, max_position_embeddings=64, mlp_bias=True,
        no_rope_layers=[1, 0, 1, 0], use_sliding_window=True, sliding_window=7,
        layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    "granite": lambda: GraniteForCausalLM(GraniteConfig(
        **(QWEN | {"tie_word_embeddings": True}), num_hidden_layers=2, max_position_embeddings=64, attention_bias=True,
        mlp_bias=True, embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.2, logits_scaling=2.5,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    # Half of a head is rotated, in adjacent pairs; a head wider than hidden / heads; with biases and without.
    "glm4": lambda: Glm4ForCausalLM(Glm4Config(
        **COMMON, num_hidden_layers=2, max_position_embeddings=64, attention_bias=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5})),
    "glm4_whole": lambda: Glm4ForCausalLM(Glm4Config(
        **(QWEN | {"tie_word_embeddings": True}), num_hidden_layers=1, max_position_embeddings=64, attention_bias=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0})),
    "phi3": lambda: Phi3ForCausalLM(Phi3Config(
        **QWEN, num_hidden_layers=2, max_position_embeddings=64, original_max_position_embeddings=64, sliding_window=7,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    # As Phi-4-mini: three quarters of a head of 16. Sequences are longer than the original length, the prompt is not.
    "phi3_long": lambda: Phi3ForCausalLM(Phi3Config(**PHI4_MINI, original_max_position_embeddings=15)),
    "phi3_short": lambda: Phi3ForCausalLM(Phi3Config(**PHI4_MINI, original_max_position_embeddings=40)),
    # A dense layer by the list, then by the step.
    "qwen2_moe": lambda: Qwen2MoeForCausalLM(Qwen2MoeConfig(
        **QWEN, num_hidden_layers=4, max_position_embeddings=64, num_experts=6, num_experts_per_tok=3,
        moe_intermediate_size=12, shared_expert_intermediate_size=20, norm_topk_prob=False, decoder_sparse_step=1,
        mlp_only_layers=[1], use_sliding_window=True, sliding_window=9, max_window_layers=2,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    "qwen2_moe_step": lambda: Qwen2MoeForCausalLM(Qwen2MoeConfig(
        **QWEN, num_hidden_layers=2, max_position_embeddings=64, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=12, shared_expert_intermediate_size=20, norm_topk_prob=True, decoder_sparse_step=2,
        qkv_bias=False, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    "mistral": lambda: MistralForCausalLM(MistralConfig(
        **COMMON, num_hidden_layers=2, max_position_embeddings=64, sliding_window=7,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
}


def write_model(name, make):
    torch.manual_seed(20240 + len(name))
    model = make().float()
    model.config._attn_implementation = "eager"
    model.set_attn_implementation("eager")
    one = 0.0 if name.startswith("gemma") else 1.0  # Gemma adds one to the weights of its norms
    with torch.no_grad():
        for parameter in model.parameters():  # norms too, so that their gradients matter
            parameter.copy_(torch.randn_like(parameter) * 0.15 + (one if parameter.dim() == 1 else 0.0))
        for key, buffer in model.named_buffers():
            if key.endswith("e_score_correction_bias"):
                buffer.copy_(torch.randn_like(buffer) * 0.1)
    folder = HERE / "models" / name
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    ids = torch.randint(3, COMMON["vocab_size"], (2, 40))
    labels = ids.clone()
    labels[0, :5] = -100
    labels[1, 20:23] = -100
    output = model(input_ids=ids, labels=labels)
    output.loss.backward()
    tensors = {"input_ids": ids, "labels": labels, "logits": output.logits.detach().contiguous(),
               "loss": output.loss.detach().reshape(1)}
    for key, parameter in model.named_parameters():
        tensors["grad." + key] = parameter.grad.contiguous()
    greedy = model.generate(ids[:, :PROMPT], max_new_tokens=GENERATED, do_sample=False, pad_token_id=2)
    tensors["greedy"] = torch.nn.functional.pad(greedy, (0, PROMPT + GENERATED - greedy.shape[1]), value=2)
    tensors["adamw_losses"] = adamw_losses(model, ids, labels)
    save_file(tensors, folder / "reference.safetensors")
    print(name, float(output.loss))


def adamw_losses(model, ids, labels):
    """Of eight steps with the batch, the first before any; as those of tests/golden/models. Changes the model."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach().reshape(1))
    return torch.cat(losses)


def rope_cases():
    base = {"rope_theta": 10000.0}
    for parameters, lengths in [
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}, [0]),
        ({"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "beta_fast": 16,
          "beta_slow": 2, "mscale": 1.0, "mscale_all_dim": 0.7}, [0]),
        ({"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512, "truncate": False}, [0]),
        ({"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512, "attention_factor": 1.25}, [0]),
        ({"rope_type": "yarn", "factor": 2.0, "rope_theta": 1000000.0}, [0]),
        ({"rope_type": "dynamic", "factor": 2.0}, [1, 256, 257, 400, 512]),
        ({"rope_type": "dynamic", "factor": 8.0, "rope_theta": 500000.0}, [2048]),
        ({"rope_type": "linear", "factor": 3.0}, [0]),
        ({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}, [0]),
    ]:
        for length in lengths:
            config = LlamaConfig(**(COMMON | {"head_dim": 32}), num_hidden_layers=1, max_position_embeddings=256,
                                 rope_parameters=base | parameters)
            values, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, "cpu", seq_len=length or None)
            yield {"rope_parameters": base | parameters, "sequence_length": length,
                   "inverse_frequencies": [float(x) for x in values], "attention_factor": float(factor)}


def main():
    for name, make in MODELS.items():
        if len(sys.argv) == 1 or name in sys.argv[1:]:
            write_model(name, make)
    if len(sys.argv) > 1:
        return
    result = {"made_by": f"transformers {transformers.__version__}, torch {torch.__version__}",
              "head_dim": 32, "max_position_embeddings": 256, "cases": list(rope_cases())}
    text = json.dumps(result).replace('{"rope_parameters"', '\n{"rope_parameters"')
    (HERE / "rope.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
