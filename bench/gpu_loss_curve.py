#!/usr/bin/env python3
"""Loss curves of a 110M Llama on real text: Quench on the GPU in bf16 beside PyTorch in bf16 and Quench on the CPU in f32.

  bench/gpu_loss_curve.py --text corpus1.txt corpus2.txt --json curves.json

All curves start from the same weights, written once as a model folder (bf16 values, so that every precision starts at
the same point), and see the same batches: one token file, read in order (data.shuffle false). The text gets a BPE
tokenizer of its own (--tokenizer bytes for none).

  quench-bf16     GPU, bf16 with f32 master weights and moments
  quench-bf16-sr  GPU, all bf16: weights rounded stochastically, bf16 moments and gradients
  torch-mixed     PyTorch autocast: f32 weights and moments, bf16 products
  torch-bf16      PyTorch, all bf16, rounded to nearest
  quench-f32      GPU in f32
  quench-cpu-f32  CPU in f32: 300 steps of 4 x 256 tokens take two to three minutes on 16 cores with AVX-512 (271 tok/s
                  were measured on two), larger batches in proportion

Prints, for each pair, the largest relative difference of the losses at any step after --from, of single steps and of
means over ten steps. --reuse takes curves from an earlier --json file, so that the CPU's need not be made again.
"""
import argparse
import json
import pathlib
import sys
import tempfile
import time
import zlib

import numpy

from gpu_common import (BENCH, BenchError, add_program_options, load_run_config, load_tokens, program_environment,
                        quench_train, run_program, torch_train, write_model_folder)

ALL_BF16 = dict(training=dict(dtype="bf16", master_dtype="none", grad_dtype="bf16"), optimizer=dict(state="bf16"))
QUENCH = {"quench-bf16": ("gpu", dict(training=dict(dtype="bf16", master_dtype="f32"), optimizer=dict(state="f32"))),
          "quench-bf16-sr": ("gpu", ALL_BF16),
          "quench-f32": ("gpu", dict(training=dict(dtype="f32"))),
          "quench-cpu-f32": ("cpu", dict(training=dict(dtype="f32")))}
TORCH = {"torch-mixed": "mixed", "torch-bf16": "bf16", "torch-f32": "f32"}
PAIRS = (("quench-bf16", "torch-mixed"), ("quench-bf16-sr", "torch-bf16"), ("quench-bf16", "torch-bf16"),
         ("quench-bf16", "quench-cpu-f32"), ("quench-bf16-sr", "quench-cpu-f32"), ("quench-f32", "quench-cpu-f32"),
         ("quench-f32", "torch-f32"), ("torch-f32", "quench-cpu-f32"), ("torch-mixed", "quench-cpu-f32"),
         ("torch-bf16", "quench-cpu-f32"))


def make_tokens(args, folder, vocab):
    """Token ids of all texts in a row, as one document."""
    quench = lambda *rest: run_program([args.quench, *rest], args.timeout, environment=program_environment(args.quench))
    tokenizer = args.tokenizer
    if tokenizer != "bytes" and not tokenizer:
        tokenizer = folder / "tokenizer"
        if not tokenizer.exists():
            quench("tokenize", "train", "--input", *args.text, "--vocab-size", min(args.vocab_size, vocab), "--output",
                   tokenizer)
    quench("tokenize", "--tokenizer", tokenizer, "--input", *args.text, "--eos", "none", "--no-special", "--overwrite",
           "--output", folder / "shards")
    shards = sorted((folder / "shards").glob("*.bin"))
    ids = numpy.concatenate([load_tokens(shard) for shard in shards]).astype(numpy.int32)
    numpy.save(folder / "tokens.npy", ids)
    return folder / "tokens.npy", len(ids)


def merged(config, changes, model_folder, tokens):
    result = json.loads(json.dumps(config))
    result["model"] = {"path": str(model_folder)}
    result["data"]["train"] = [str(tokens)]
    for section, values in changes.items():
        result[section].update(values)
    return result


def curve(args, name, config, model_folder, tokens, folder):
    if name in QUENCH:
        where, changes = QUENCH[name]
        device = "cpu" if where == "cpu" else args.device
        records, _ = quench_train(args.quench, merged(config, changes, model_folder, tokens), folder / name, args.extra, device,
                                  args.timeout)
    else:
        path = folder / "workload.json"
        path.write_text(json.dumps(config))
        arguments = ["--config", path, "--data", tokens, "--init", model_folder, "--precision", TORCH[name], "--device",
                     args.device]
        records, _ = torch_train(args.python, arguments, folder / name, args.timeout)
    return [record["loss"] for record in records]


def smooth(losses, width=10):
    return [sum(losses[i - width:i]) / width for i in range(width, len(losses) + 1)]


def largest(a, b, first):
    """Largest relative difference from step `first` on, of single steps and of means over ten."""
    relative = lambda x, y: max((abs(p - q) / abs(q) for p, q in zip(x, y)), default=float("nan"))
    return relative(a[first - 1:], b[first - 1:]), relative(smooth(a[first - 1:]), smooth(b[first - 1:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_program_options(parser)
    parser.add_argument("--text", nargs="+", help="text files to train on; --tokens instead of them")
    parser.add_argument("--tokens", help="token file (.npy) instead of text")
    parser.add_argument("--tokenizer", help="tokenizer file or folder, or bytes; default: a BPE trained on the text")
    parser.add_argument("--vocab-size", type=int, default=8192, help="of the BPE")
    parser.add_argument("--curves", default="quench-bf16,quench-bf16-sr,torch-mixed,torch-bf16,quench-cpu-f32")
    parser.add_argument("--workload", default=str(BENCH / "workloads" / "110m.json"))
    parser.add_argument("--steps", type=int)
    parser.add_argument("-B", type=int, help="sequences of a step; default: the workload's")
    parser.add_argument("-T", type=int, help="tokens of a sequence; default: the workload's")
    parser.add_argument("--from", type=int, default=50, dest="first", help="first step that is compared")
    parser.add_argument("--json", help="file for the curves")
    parser.add_argument("--reuse", help="curves of an earlier --json file, made with the same text and sizes")
    parser.add_argument("extra", nargs="*", help="further arguments for quench train, after --")
    args = parser.parse_args()
    if not args.text and not args.tokens:
        parser.error("--text or --tokens is required")
    config = load_run_config(args.workload)
    config["training"]["steps"] = args.steps or config["training"]["steps"]
    config["data"]["seq_len"] = args.T or config["data"]["seq_len"]
    batch = args.B or config["training"]["micro_batch_size"]
    config["training"].update(micro_batch_size=batch, global_batch_size=batch)
    curves, seconds, failed = {}, {}, False
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(args.work or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if args.tokens:
            tokens, count = args.tokens, len(load_tokens(args.tokens))
        else:
            tokens, count = make_tokens(args, folder, config["model"]["vocab_size"])
        used = config["training"]["steps"] * config["training"]["global_batch_size"] * config["data"]["seq_len"]
        print(f"{count:,} tokens, {used:,} are trained on: {used / count:.2f} passes")
        key = dict(model=config["model"], data=config["data"], training=config["training"], tokens=count,
                   crc32=zlib.crc32(numpy.ascontiguousarray(load_tokens(tokens))))
        if args.reuse:
            earlier = json.loads(pathlib.Path(args.reuse).read_text())
            if earlier["key"] != key:
                sys.exit(f"{args.reuse} was made with other sizes: {earlier['key']}")
            curves.update(earlier["curves"])
        write_model_folder(folder / "model", config)
        for name in args.curves.split(","):
            if name in curves:
                continue
            start = time.time()
            try:
                curves[name] = curve(args, name, config, folder / "model", tokens, folder)
                seconds[name] = time.time() - start
                print(f"{name:<16} {seconds[name]:6.1f} s   first {curves[name][0]:.4f}   last {curves[name][-1]:.4f}",
                      flush=True)
            except BenchError as error:
                failed = True
                print(f"{name:<16} failed: {error}", flush=True)
            if args.json:
                pathlib.Path(args.json).write_text(json.dumps(dict(key=key, seconds=seconds, curves=curves)) + "\n")
    for step in range(args.first, config["training"]["steps"] + 1, 50):
        print(f"step {step:4d}  " + "  ".join(f"{name} {losses[step - 1]:.4f}" for name, losses in curves.items()))
    print(f"\nlargest relative difference from step {args.first} on{'':14}a step   mean of ten")
    for a, b in PAIRS:
        if a in curves and b in curves:
            single, mean = largest(curves[a], curves[b], args.first)
            print(f"{a:<16} against {b:<16}{'':12}{single:>9.3%}   {mean:>9.3%}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
