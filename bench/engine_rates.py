#!/usr/bin/env python3
"""Decoding of many sequences by the engine, quench bench, next to llama.cpp's llama-batched-bench on the same GGUF files.

  bench/engine_rates.py --llama-batched-bench build/bin/llama-batched-bench --json rates.json
  bench/engine_rates.py --device cpu --model SmolLM2.gguf --batch-sizes 1,8 --llama-batched-bench ...

Without --model: random weights of --config as bf16 GGUF, and quantized by --gguf and --schemes (compressed-tensors, Quench
alone). Prompts of 128 random tokens, 128 new ones, greedy; the rate is that of decoding, all sequences together, the best of
--repeat runs. A key-value cache of bf16 (Quench) and f16 (llama.cpp's default); on a GPU llama.cpp runs with flash attention
and all layers on the device.
"""
import argparse
import json
import pathlib
import sys
import tempfile

from gpu_common import (BENCH, BenchError, add_program_options, json_lines, load_run_config, program_environment, run_program,
                        write_model_folder)


def our_rates(args, model):
    command = [args.quench, "bench", "--model", model, "--device", args.device, "--batch-sizes", args.batch_sizes,
               "--prompt-tokens", args.prompt_tokens, "--new-tokens", args.tokens, "--repeat", args.repeat, "--dtype", args.dtype,
               "--json"]
    rows = json.loads(run_program(command, args.timeout, environment=program_environment(args.quench)))
    return {row["batch_size"]: row["tokens_per_second"] for row in rows}


def peer_rates(args, model):
    sizes = [int(size) for size in args.batch_sizes.split(",")]
    gpu = args.device != "cpu"
    command = [args.llama_batched_bench, "-m", model, "-c", max(sizes) * (args.prompt_tokens + args.tokens + 32), "-npp",
               args.prompt_tokens, "-ntg", args.tokens, "-npl", args.batch_sizes, "-b", 2048, "-ngl", 99 if gpu else 0, "-fa",
               "on" if gpu else "auto", "--output-format", "jsonl", *(["-t", args.threads] if args.threads else [])]
    best = {}
    for _ in range(args.repeat):
        for row in json_lines(run_program(command, args.timeout)):
            best[row["pl"]] = max(best.get(row["pl"], 0), row["speed_tg"])
    if not best:
        raise BenchError("llama-batched-bench printed no result")
    return best


def models_of(args, folder):
    if args.model:
        yield from ((pathlib.Path(model).name, model) for model in args.model)
        return
    base = folder / "bf16"
    write_model_folder(base, load_run_config(args.config))
    quantize = [args.quench, "quantize", "--model", base, "--device", args.device, "--tokenizer", "bytes"]
    for name in args.gguf.split(","):
        output = folder / f"{name}.gguf"
        command = quantize + ["--format", "gguf", "--output", output, "--scheme", name]
        if name == "bf16":
            command = [args.quench, "export", "--checkpoint", base, "--tokenizer", "bytes", "--format", "gguf", "--output", output]
        run_program(command, args.timeout, environment=program_environment(args.quench))
        yield f"GGUF {name}", output
    for scheme in filter(None, args.schemes.split(",")):
        output = folder / scheme
        run_program(quantize + ["--scheme", scheme, "--output", output], args.timeout,
                    environment=program_environment(args.quench))
        yield scheme, output


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_program_options(parser)
    parser.add_argument("--model", action="append", help="GGUF file, repeatable; else random weights of --config")
    parser.add_argument("--config", default=BENCH / "workloads" / "1b.json")
    parser.add_argument("--gguf", default="bf16,q8_0,q4_0,q4_k_m")
    parser.add_argument("--schemes", default="int4_weight_only_g128,float8_weight_only")
    parser.add_argument("--batch-sizes", default="1,2,4,8,16,32,64")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--dtype", default="bf16", help="quench bench --dtype")
    parser.add_argument("--threads", type=int, default=0, help="of llama.cpp; 0: its choice")
    parser.add_argument("--llama-batched-bench", help="llama.cpp's program; without it Quench runs alone")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name, model in models_of(args, pathlib.Path(folder)):
            ours = our_rates(args, model)
            theirs = peer_rates(args, model) if args.llama_batched_bench and str(model).endswith(".gguf") else {}
            results.append(dict(model=name, quench=ours, llama_cpp=theirs))
            for size, rate in ours.items():
                peer = f"  llama.cpp {theirs[size]:9.0f}  {rate / theirs[size]:.2f}x" if size in theirs else ""
                print(f"{name:28} batch {size:3}  {rate:9.0f} tok/s{peer}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        sys.exit(f"engine_rates.py: {error}")
