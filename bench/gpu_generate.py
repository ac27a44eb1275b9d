#!/usr/bin/env python3
"""Greedy generation on one GPU, batch 1, bf16: quench generate beside Hugging Face transformers, and beside itself on the
same weights or KV cache quantized.

  bench/gpu_generate.py --schemes int4_weight_only_g128,float8_weight_only --json results.json
  bench/gpu_generate.py --no-peer --prompt-tokens 32000 --kv-caches fp8,int8 --json results.json

Both read the same folder with random weights (shapes of bench/workloads/1b.json), the same prompt and make the same
number of tokens. The rate is that of decoding alone. Of transformers' caches the faster one is compared. With random
weights the two best logits are often equal in bf16, so that texts part after a few tokens; the common length is shown.
"""
import argparse
import functools
import json
import pathlib
import statistics
import sys
import tempfile

from gpu_common import (BENCH, BenchError, Shape, add_program_options, json_lines, load_run_config, program_environment,
                        run_program, write_model_folder)

PROMPT = "It was a bright cold day in April, and the clocks were striking thirteen. " * 4

BYTES_BOS = 256  # the "bytes" tokenizer puts it before a text; the other ids are the bytes


def run_ours(args, model, prompt, kv_cache="model"):
    command = [args.quench, "generate", "--model", model, "--tokenizer", "bytes", "--prompt", prompt, "--max-new-tokens",
               args.tokens, "--temperature", "0", "--ignore-eos", "--dtype", "bf16", "--kv-cache", kv_cache, "--device",
               args.device, "--json"]
    rates, result = [], None
    for _ in range(args.repeat):
        result = json.loads(run_program(command, args.timeout, environment=program_environment(args.quench)))
        count = len(result["tokens"])
        if count != args.tokens:
            raise BenchError(f"{count} tokens instead of {args.tokens}")
        # The first token comes from the prompt's pass: count - 1 passes in the time that tokens_per_second covers.
        rates.append(result["tokens_per_second"] * (count - 1) / count)
    return dict(tokens_per_second=statistics.median(rates), prompt_seconds=result["prompt_seconds"], tokens=result["tokens"],
                prompt_tokens=result["prompt_tokens"], kv_cache_bytes_per_token=result["kv_cache_bytes_per_token"])


def run_quantized(args, model, prompt, entry, folder):
    scheme, _, whole = entry.partition("+")
    output = folder / entry
    run_program([args.quench, "quantize", "--model", model, "--tokenizer", "bytes", "--scheme", scheme, "--output", output,
                 "--device", args.device,
                 *(["--rule", f"lm_head={scheme}", "--embeddings", scheme] if whole == "whole" else [])],
                args.timeout, environment=program_environment(args.quench))
    size = lambda path: sum(f.stat().st_size for f in pathlib.Path(path).glob("*.safetensors"))
    return dict(run_ours(args, output, prompt), size_of_bf16=size(output) / size(model))


def run_peer(args, model, prompt):
    ids = [BYTES_BOS, *prompt.encode()]
    command = [args.python, BENCH / "peer" / "hf_generate.py", "--model", model, "--prompt-ids", json.dumps(ids),
               "--tokens", args.tokens, "--repeat", args.repeat, "--caches", args.caches, "--device", args.device]
    runs = json_lines(run_program(command, args.timeout))
    if not runs:
        raise BenchError("no cache worked")
    return runs


def common_length(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_program_options(parser)
    parser.add_argument("--workload", default=str(BENCH / "workloads" / "1b.json"), help="run config with the model's shape")
    parser.add_argument("--model", help="model folder instead of random weights; its vocabulary must hold ids up to 256")
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--tokens", type=int, default=256, help="new tokens")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--caches", default="dynamic,static", help="of transformers")
    parser.add_argument("--schemes", default="", help="of quench quantize, separated by commas; SCHEME+whole: head and embeddings too")
    parser.add_argument("--kv-caches", default="", help="of quench generate --kv-cache, separated by commas")
    parser.add_argument("--prompt-tokens", type=int, help="length of the prompt, by repetition; the context grows with it")
    parser.add_argument("--peer", action=argparse.BooleanOptionalAction, default=True, help="run transformers")
    parser.add_argument("--json", help="file for all numbers")
    args = parser.parse_args()
    config = load_run_config(args.workload)
    prompt = args.prompt
    if args.prompt_tokens:  # a byte is a token, after BYTES_BOS
        prompt = (prompt * (args.prompt_tokens // len(prompt) + 1))[:args.prompt_tokens - 1]
        config["model"]["max_position_embeddings"] = max(config["model"]["max_position_embeddings"],
                                                         args.prompt_tokens + args.tokens)
    kv_caches = list(filter(None, args.kv_caches.split(",")))
    result, failed = {}, False
    with tempfile.TemporaryDirectory() as temporary:
        model = args.model
        if not model:
            model = pathlib.Path(args.work or temporary) / "model"
            write_model_folder(model, config)
        runs = {"quench": run_ours, **({"transformers": run_peer} if args.peer else {})}
        for scheme in filter(None, args.schemes.split(",")):
            runs[scheme] = functools.partial(run_quantized, entry=scheme, folder=pathlib.Path(args.work or temporary))
        for cache in kv_caches:
            runs[f"KV cache {cache}"] = functools.partial(run_ours, kv_cache=cache)
        for name, function in runs.items():
            try:
                result[name] = function(args, model, prompt)
            except BenchError as error:
                failed = True
                print(f"{name} failed: {error}")
    ours, peers = result.get("quench"), result.get("transformers", [])
    if not args.model:  # a pass reads every weight but the embedding once
        shape = Shape(config)
        result["weight_bytes"] = 2 * (shape.parameters - (0 if shape.tied else shape.vocab * shape.width))
        print(f"{result['weight_bytes'] / 1e9:.2f} GB of weights are read for a token")
    if ours:
        print(f"{'quench':<22}{ours['tokens_per_second']:>9.1f} tok/s   "
              f"prompt of {ours['prompt_tokens']} in {ours['prompt_seconds'] * 1e3:.1f} ms")
    for peer in peers:
        common = f"   {common_length(ours['tokens'], peer['tokens'])} tokens alike" if ours else ""
        print(f"{'transformers ' + peer['cache']:<22}{peer['tokens_per_second']:>9.1f} tok/s   "
              f"prompt in {peer['prompt_seconds'] * 1e3:.1f} ms{common}")
    if ours and peers:
        result["ratio"] = ours["tokens_per_second"] / max(peer["tokens_per_second"] for peer in peers)
        print(f"ratio {result['ratio']:.3f}x of the faster")
    for scheme in filter(None, args.schemes.split(",")):
        if ours and (run := result.get(scheme)):
            run["ratio"] = run["tokens_per_second"] / ours["tokens_per_second"]
            print(f"{scheme:<22}{run['tokens_per_second']:>9.1f} tok/s   {run['ratio']:.3f}x of bf16, "
                  f"{run['size_of_bf16']:.3f} of its size")
    for cache in kv_caches:
        if ours and (run := result.get(f"KV cache {cache}")):
            run["ratio"] = run["tokens_per_second"] / ours["tokens_per_second"]
            run["size_of_bf16"] = run["kv_cache_bytes_per_token"] / ours["kv_cache_bytes_per_token"]
            print(f"{'KV cache ' + cache:<22}{run['tokens_per_second']:>9.1f} tok/s   {run['ratio']:.3f}x of bf16, "
                  f"{run['size_of_bf16']:.3f} of its bytes, "
                  f"{common_length(ours['tokens'], run['tokens'])} tokens alike")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(result) + "\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
