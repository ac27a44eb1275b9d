"""The peer of bench/gpu_finetune.py: LoRA, QLoRA or DPO of a Llama with Hugging Face Transformers, PEFT and Liger.

Weights are random (shapes of a run config of Quench). Kernels are either Liger's (RMSNorm, RoPE, SwiGLU, chunked losses)
or those of torch.compile over each decoder layer with a compiled, chunked loss. A DPO step is TRL's: one pass over the
chosen and rejected rows, one without tape and adapters for the reference. Prints one JSON line a step and a last one
{"summary": ...}.
"""
import argparse
import json
import pathlib
import sys
import time

import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from gpu_common import Shape, load_run_config, median_of_last_half  # noqa: E402

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
IGNORE = -100


def quantize(model):
    """Linear layers of the decoder in bitsandbytes' NF4 with double quantization."""
    import bitsandbytes as bnb

    for layer in model.model.layers:
        for parent in (layer.self_attn, layer.mlp):
            for name in PROJECTIONS:
                if (dense := getattr(parent, name, None)) is None:
                    continue
                packed = bnb.nn.Linear4bit(dense.in_features, dense.out_features, bias=False, quant_type="nf4",
                                           compute_dtype=torch.bfloat16, compress_statistics=True)
                packed.weight = bnb.nn.Params4bit(dense.weight.data.cpu(), requires_grad=False, quant_type="nf4",
                                                  compress_statistics=True)
                setattr(parent, name, packed.cuda())
                del dense


def build_model(args, config):
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    if args.kernels == "liger":
        from liger_kernel.transformers import apply_liger_kernel_to_llama
        apply_liger_kernel_to_llama(rope=True, swiglu=True, rms_norm=True, cross_entropy=False,
                                    fused_linear_cross_entropy=True)
    settings = {key: value for key, value in config["model"].items() if key not in ("model_type", "rope_theta")}
    settings["rope_parameters"] = {"rope_type": "default", "rope_theta": config["model"]["rope_theta"]}
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(args.device):
        model = LlamaForCausalLM(LlamaConfig(attn_implementation="sdpa", use_cache=False, **settings))
    torch.set_default_dtype(torch.float32)
    if args.base == "nf4":
        quantize(model)
    if args.checkpoint:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    lora = config["lora"]
    peft = get_peft_model(model, LoraConfig(r=lora["rank"], lora_alpha=lora["alpha"], lora_dropout=0.0,
                                            target_modules=PROJECTIONS), autocast_adapter_dtype=False)
    if args.kernels == "compile":
        for layer in model.model.layers:
            layer.compile()
    return model, peft.train()


def chunk_losses(hidden, weight, labels):
    return F.cross_entropy((hidden @ weight.T).float(), labels, ignore_index=IGNORE, reduction="none")


class TokenLosses:
    """Cross-entropy of each row without whole logits: chunks of 1,024 rows, recomputed in the backward pass."""

    def __init__(self):
        self.chunk = torch.compile(chunk_losses)

    def __call__(self, hidden, weight, labels):
        from torch.utils.checkpoint import checkpoint

        pieces = []
        for rows, targets in zip(hidden.split(1024), labels.split(1024)):
            if torch.is_grad_enabled():
                pieces.append(checkpoint(self.chunk, rows, weight, targets, use_reentrant=False))
            else:
                pieces.append(self.chunk(rows, weight, targets))
        return torch.cat(pieces)


def sft_step(args, model, losses, ids, labels):
    if args.kernels == "liger":
        return model(input_ids=ids, labels=labels).loss
    hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]
    targets = labels[:, 1:].flatten()
    return losses(hidden.flatten(0, 1), model.lm_head.weight, targets).sum() / (targets != IGNORE).sum()


def dpo_step(args, model, peft, losses, ids, labels, beta=0.1):
    """Rows: chosen answers, then rejected ones."""
    with torch.no_grad(), peft.disable_adapter():
        reference = model.model(input_ids=ids).last_hidden_state[:, :-1]
    hidden, targets, weight = model.model(input_ids=ids).last_hidden_state[:, :-1], labels[:, 1:], model.lm_head.weight
    if args.kernels == "liger":
        return losses(weight, hidden, targets, ref_input=reference, ref_weight=weight)[0]
    logps = lambda h: -losses(h.flatten(0, 1), weight, targets.flatten()).view(targets.shape).sum(-1)
    with torch.no_grad():
        known = logps(reference)
    ratio = logps(hidden) - known
    chosen, rejected = ratio.chunk(2)
    return -F.logsigmoid(beta * (chosen - rejected)).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True)
    parser.add_argument("--task", choices=["sft", "dpo"], default="sft")
    parser.add_argument("--base", choices=["bf16", "nf4"], default="bf16")
    parser.add_argument("--kernels", choices=["liger", "compile"], default="liger")
    parser.add_argument("--checkpoint", action="store_true", help="recompute each layer in the backward pass")
    parser.add_argument("--rows", type=int, required=True, help="rows of a step; dpo: pairs")
    parser.add_argument("--length", type=int, required=True, help="tokens of a row")
    parser.add_argument("--prompt", type=int, default=0, help="tokens of a row without loss")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(0)
    config = load_run_config(args.config)
    shape = Shape(config)
    model, peft = build_model(args, config)
    if args.kernels == "compile":
        losses = TokenLosses()
    elif args.task == "dpo":
        from liger_kernel.chunked_loss import LigerFusedLinearDPOLoss
        losses = LigerFusedLinearDPOLoss(beta=0.1, use_ref_model=True, ignore_index=IGNORE)
    else:
        losses = None
    trained = [parameter for parameter in peft.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.0, fused=args.device == "cuda")
    rows = args.rows * (2 if args.task == "dpo" else 1)
    generator = torch.Generator().manual_seed(1)
    times = []
    for step in range(1, args.steps + 1):
        ids = torch.randint(3, shape.vocab, (rows, args.length), generator=generator).to(args.device)
        if args.task == "dpo":
            ids[args.rows:, :args.prompt] = ids[:args.rows, :args.prompt]
        labels = ids.clone()
        labels[:, :args.prompt] = IGNORE
        begin = time.perf_counter()
        loss = (dpo_step(args, model, peft, losses, ids, labels) if args.task == "dpo" else
                sft_step(args, model, losses, ids, labels))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        times.append((time.perf_counter() - begin) * 1e3)
        print(json.dumps(dict(step=step, loss=value, step_ms=times[-1])), flush=True)
    step_ms = median_of_last_half(times)
    peak = torch.cuda.max_memory_allocated() if args.device == "cuda" else 0
    print(json.dumps(dict(summary=dict(step_ms=step_ms, tokens_per_second=rows * args.length / step_ms * 1e3,
                                       peak_bytes=peak, loss=value))))


if __name__ == "__main__":
    main()
