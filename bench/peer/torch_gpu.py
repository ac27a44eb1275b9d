"""The peer of the GPU benchmarks: the same Llama or Gemma 3 in PyTorch on one GPU, as fast as its documented switches
make it.

torch.compile over each block and over the loss, cuDNN attention first, fused AdamW; --float8 takes TorchAO's linears or
TransformerEngine's modules (Llama only). Layers with a sliding window take the fastest of PyTorch's windowed kernels, timed
at the start (torch_models.py). Reads a run config of Quench (the same file drives both programs), so that model, batch,
learning rates, clipping and weight decay agree, and prints one JSON line a step and a last one {"summary": ...}.

Order of data: row r of a file is tokens r*T .. r*T + T - 1 with the next token as the last label, rows are read in
order and begin anew at the end, as Quench does with data.shuffle false and a file of one document. --order random cuts
windows anywhere instead, as nanoGPT does.
"""
import argparse
import contextlib
import json
import os
import pathlib
import sys
import time

import numpy
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from gpu_common import Shape, learning_rate, load_run_config, load_tokens, median_of_last_half  # noqa: E402
from torch_models import WINDOWED, fastest_windowed, make_model  # noqa: E402

ATTENTION = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def mean_loss(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def build(shape, dtype, device, init, seed, windowed):
    torch.manual_seed(seed)
    torch.set_default_dtype(dtype)
    with torch.device(device):
        model = make_model(shape, windowed)
    torch.set_default_dtype(torch.float32)
    model.to_device(device)
    for p in model.parameters():
        if p.dim() == 2:
            nn.init.normal_(p, std=shape.init_std)
    if init:
        from safetensors.torch import load_file

        tensors = {}
        for path in sorted(pathlib.Path(init).glob("*.safetensors")):
            tensors.update(load_file(path))
        state = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
        if shape.tied:
            state["lm_head.weight"] = state["embed_tokens.weight"]
        model.load_state_dict(state)
    return model


def convert_to_float8(model, recipe, head):
    if path := os.environ.get("TORCHAO_PATH"):
        sys.path.insert(0, path)
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name(recipe),
                               module_filter_fn=lambda module, name: head or name != "lm_head")


class Rows:
    """Batches [B, T] of inputs and labels from a token array on the device."""

    def __init__(self, tokens, shape, device, order="sequential", seed=1):
        self.tokens = torch.from_numpy(numpy.array(tokens, dtype=numpy.int64)).to(device)
        self.length, self.order = shape.seq_len, order
        self.count = (len(tokens) - 1) // self.length
        self.generator = torch.Generator().manual_seed(seed)
        self.offsets = torch.arange(self.length, device=device)
        self.next_row = 0

    def batch(self, rows):
        if self.order == "random":
            starts = torch.randint(0, len(self.tokens) - self.length, (rows,), generator=self.generator)
        else:
            starts = (torch.arange(self.next_row, self.next_row + rows) % self.count) * self.length
            self.next_row += rows
        at = starts.to(self.tokens.device, non_blocking=True)[:, None] + self.offsets
        return self.tokens[at], self.tokens[at + 1]

    def whole(self, rows):
        """Every label of the file once; the last batch is padded with label -100."""
        total = len(self.tokens) - 1
        for first in range(0, total, rows * self.length):
            at = first + torch.arange(rows * self.length, device=self.tokens.device).view(rows, self.length)
            inside = at < total
            at = torch.where(inside, at, 0)
            yield self.tokens[at], torch.where(inside, self.tokens[at + 1], -100)


class StepLog:
    """Prints a step's record when its loss arrives. Each step is read after the next one is queued, so that the device
    never waits for the host; a step's time is that between two arrivals."""

    def __init__(self):
        self.step_ms, self.loss = [], float("nan")
        self.restart()

    def restart(self):
        self.last = time.perf_counter()

    def add(self, step, loss, norm, rate):
        self.loss = loss.item()
        now = time.perf_counter()
        self.step_ms.append((now - self.last) * 1e3)
        self.last = now
        print(json.dumps(dict(step=step, loss=self.loss, grad_norm=norm.item(), lr=rate, step_ms=self.step_ms[-1])), flush=True)


@torch.no_grad()
def evaluate(loss_of, held_out, batch, precision):
    """Mean loss over the whole held-out file."""
    loss_sum, count = 0.0, 0
    for x, y in held_out.whole(batch):
        valid = int((y >= 0).sum())
        with precision():
            loss_sum += loss_of(x, y).item() * valid
        count += valid
    return dict(loss=loss_sum / count, tokens=count)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="run config: bench/workloads/*.json, configs/runs/*.json")
    parser.add_argument("--data", help="tokens (.npy, .bin, text as bytes); default: random ids")
    parser.add_argument("--validation", help="held-out tokens, evaluated whole every evaluation.interval steps")
    parser.add_argument("--order", choices=["sequential", "random"], default="sequential")
    parser.add_argument("--init", help="Hugging Face folder with the first weights; default: random")
    parser.add_argument("--precision", choices=["bf16", "mixed", "f32"], default="bf16",
                        help="bf16: weights, gradients and moments; mixed: f32 weights under autocast")
    parser.add_argument("--float8", choices=["tensorwise", "rowwise", "rowwise_with_gw_hp", "te_bf16", "te_current",
                                               "te_delayed"],
                        help="TorchAO's float8 linears, all but the head (a folder that holds torchao: TORCHAO_PATH); te_*: "
                        "TransformerEngine's modules in bf16, with current or with delayed scaling (torch_te.py)")
    parser.add_argument("--float8-head", action="store_true", help="the head in float8 too")
    parser.add_argument("--float8-attention", action="store_true", help="attention in float8 too (te_current, te_delayed)")
    parser.add_argument("--windowed", choices=list(WINDOWED),
                        help="attention of layers with a sliding window; default: the fastest of them at this shape")
    parser.add_argument("--compile", choices=["block", "model", "none"], default="block",
                        help="of TransformerEngine's model only the loss is compiled")
    parser.add_argument("-B", type=int, help="sequences of a micro-batch")
    parser.add_argument("-T", type=int, help="tokens of a sequence")
    parser.add_argument("--accumulation", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    engine = (args.float8 or "").startswith("te_")
    if args.float8_head and not args.float8:
        parser.error("--float8-head needs --float8")
    if args.float8_attention and not engine:
        parser.error("--float8-attention needs --float8 te_current or te_delayed")

    config = load_run_config(args.config)
    training, optimizer = config["training"], config.get("optimizer", {})
    if args.T:
        config["data"]["seq_len"] = args.T
    accumulation = args.accumulation or Shape(config).accumulation
    training["micro_batch_size"] = args.B or training["micro_batch_size"]
    training["global_batch_size"] = training["micro_batch_size"] * accumulation
    shape, steps = Shape(config), args.steps or training["steps"]
    on_gpu = args.device.startswith("cuda")

    begin = time.perf_counter()
    dtype = torch.bfloat16 if args.precision == "bf16" else torch.float32
    windowed, windowed_ms = args.windowed, {}
    if any(shape.windows) and engine:
        raise SystemExit(f"error: --float8 {args.float8}: TransformerEngine's modules are those of Llama, not of this model")
    if any(shape.windows) and not windowed:
        with sdpa_kernel(ATTENTION, set_priority=True):
            windowed, windowed_ms = fastest_windowed(shape, args.device, torch.float32 if args.precision == "f32" else torch.bfloat16)
    model = build(shape, dtype, args.device, args.init, args.seed, windowed)
    if engine:
        import torch_te

        model = torch_te.Llama(shape, model, torch_te.recipe_of(args.float8, args.float8_attention), args.float8_head)
    elif args.float8:
        convert_to_float8(model, args.float8, args.float8_head)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() != 2]
    adamw = torch.optim.AdamW([dict(params=matrices, weight_decay=optimizer.get("weight_decay", 0.1)),
                               dict(params=vectors, weight_decay=0.0)], lr=1e-4, betas=tuple(optimizer.get("betas", (0.9, 0.95))),
                              eps=optimizer.get("eps", 1e-8), fused=True)
    forward, loss_of = model, mean_loss
    if args.compile != "none":
        loss_of = torch.compile(mean_loss)
    if args.compile == "block" and not engine:
        for i, layer in enumerate(model.layers):
            model.layers[i] = torch.compile(layer)
    elif args.compile == "model" and not engine:
        forward = torch.compile(model)

    if args.data:
        tokens = load_tokens(args.data)
    else:
        tokens = numpy.random.default_rng(1).integers(0, shape.vocab, shape.tokens_per_step * 4 + 1)
    rows = Rows(tokens, shape, args.device, args.order)
    held_out = Rows(load_tokens(args.validation), shape, args.device) if args.validation else None
    interval = config.get("evaluation", {}).get("interval", 500)

    kind = args.device.split(":")[0]
    mixed = lambda: torch.autocast(kind, torch.bfloat16) if args.precision == "mixed" else contextlib.nullcontext()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    setup_seconds = time.perf_counter() - begin
    log, evaluations, pending = StepLog(), [], None
    # Tracing happens inside as well, so that compiled blocks take the same attention.
    with sdpa_kernel(ATTENTION, set_priority=True):
        for step in range(steps):
            total = torch.zeros((), device=args.device)
            for micro_batch in range(accumulation):
                x, y = rows.batch(shape.batch)
                cached = dict(first=micro_batch == 0) if engine and accumulation > 1 else {}
                with mixed():
                    loss = loss_of(forward(x, **cached), y) / accumulation
                loss.backward()
                total += loss.detach()
            norm = nn.utils.clip_grad_norm_(model.parameters(), training.get("max_norm", 1.0))
            rate = learning_rate(config, step, steps)
            for group in adamw.param_groups:
                group["lr"] = rate
            adamw.step()
            adamw.zero_grad(set_to_none=True)
            if pending:
                log.add(*pending)
            pending = (step + 1, total, norm, rate)
            if step + 1 == steps or (held_out and (step + 1) % interval == 0):
                log.add(*pending)
                pending = None
                if held_out:
                    scores = evaluate(lambda x, y: loss_of(forward(x), y), held_out, shape.batch, mixed)
                    evaluations.append(dict(step=step + 1, **scores))
                    log.restart()
    step_ms = log.step_ms
    median = median_of_last_half(step_ms)
    summary = dict(torch=torch.__version__, precision=args.precision, float8=args.float8, float8_head=args.float8_head,
                   float8_attention=args.float8_attention, parameters=sum(p.numel() for p in model.parameters()),
                   tokens_per_step=shape.tokens_per_step, step_ms=median, tokens_per_second=shape.tokens_per_step / median * 1e3,
                   first_step_seconds=step_ms[0] / 1e3, setup_seconds=setup_seconds, wall_seconds=time.perf_counter() - begin,
                   loss=log.loss, evaluations=evaluations)
    if any(shape.windows):
        summary.update(windowed_attention=windowed, windowed_attention_ms=windowed_ms)
    if on_gpu:
        summary.update(device=torch.cuda.get_device_name(), peak_bytes=torch.cuda.max_memory_allocated(),
                       peak_reserved_bytes=torch.cuda.max_memory_reserved())
    print(json.dumps(dict(summary=summary)))


if __name__ == "__main__":
    main()
