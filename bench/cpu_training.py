#!/usr/bin/env python3
"""Training steps on the CPU: Quench beside PyTorch eager, same shapes, threads and types, in alternating runs.

Prints one row a workload: tokens/s of both, their ratio, peak resident memory of both, its ratio. The peer needs a
Python with PyTorch (--python). Quench is timed by its own metrics log, the peer by its script; both report the median
step after the first quarter.
"""
import argparse
import array
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent

WORKLOADS = {
    "char": dict(vocab=272, width=128, heads=4, ffn=352, layers=4, seq_len=64, batch=12, steps=200),
    "10m": dict(vocab=272, width=384, heads=6, ffn=1024, layers=6, seq_len=256, batch=16, steps=16),
    "110m": dict(vocab=32000, width=768, heads=12, ffn=2048, layers=12, seq_len=512, batch=4, steps=6),
}


def run_peer(python, shape, dtype, threads):
    command = [python, str(HERE / "peer" / "torch_cpu.py"), "--dtype", dtype, "--threads", str(threads)]
    for key, value in shape.items():
        command += [f"--{key}", str(value)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def run_quench(program, shape, dtype, threads, extra):
    with tempfile.TemporaryDirectory() as folder:
        generator = random.Random(1)
        tokens = array.array("H", (generator.randrange(shape["vocab"]) for _ in range(shape["batch"] * (shape["seq_len"] + 1) * 4)))
        (pathlib.Path(folder) / "tokens.bin").write_bytes(tokens.tobytes())
        config = {
            "model": {"model_type": "llama", "vocab_size": shape["vocab"], "hidden_size": shape["width"],
                      "intermediate_size": shape["ffn"], "num_hidden_layers": shape["layers"],
                      "num_attention_heads": shape["heads"], "num_key_value_heads": shape["heads"],
                      "max_position_embeddings": shape["seq_len"], "tie_word_embeddings": False, "rms_norm_eps": 1e-5},
            "data": {"train": [f"{folder}/tokens.bin"], "format": "nanogpt", "seq_len": shape["seq_len"]},
            # The peer keeps bf16 weights, gradients and moments and rounds to nearest; so do we.
            "training": {"steps": shape["steps"], "micro_batch_size": shape["batch"], "dtype": dtype,
                         "master_dtype": "none" if dtype == "bf16" else "f32", "threads": threads},
            "optimizer": {"lr": 1e-3, "state": dtype, "stochastic_rounding": False},
            "checkpoint": {"enable": False},
            "metrics": {"log_every": 1, "tensorboard": False, "progress": "off", "log_level": "error"},
            "run": {"folder": f"{folder}/run"},
        }
        path = pathlib.Path(folder) / "bench.json"
        path.write_text(json.dumps(config))
        process = subprocess.Popen([program, "train", str(path), *extra], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            sys.exit(f"quench train failed with status {status}")
        records = [json.loads(line) for line in (pathlib.Path(folder) / "run/metrics/metrics.jsonl").read_text().splitlines()]
        step = statistics.median(r["step_ms"] for r in records[len(records) // 4:])
        return dict(step_ms=step, tokens_per_second=shape["batch"] * shape["seq_len"] / step * 1e3, loss=records[-1]["loss"],
                    peak_rss_mib=usage.ru_maxrss / 1024)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="Python with PyTorch")
    parser.add_argument("--quench", default=str(HERE.parent / "build" / "quench"))
    parser.add_argument("--workloads", default="char:f32,10m:f32,110m:f32,110m:bf16")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeat", type=int, default=3, help="alternating pairs; the median ratio is printed")
    parser.add_argument("extra", nargs="*", help="further arguments for quench train")
    args = parser.parse_args()
    print(f"{'workload':<12}{'quench tok/s':>14}{'torch tok/s':>14}{'speed':>8}{'quench MiB':>12}{'torch MiB':>12}{'memory':>8}")
    for workload in args.workloads.split(","):
        name, dtype = workload.split(":")
        ours, peers = [], []
        for _ in range(args.repeat):
            ours.append(run_quench(args.quench, WORKLOADS[name], dtype, args.threads, args.extra))
            peers.append(run_peer(args.python, WORKLOADS[name], dtype, args.threads))
        speed = statistics.median(a["tokens_per_second"] / b["tokens_per_second"] for a, b in zip(ours, peers))
        memory = statistics.median(a["peak_rss_mib"] / b["peak_rss_mib"] for a, b in zip(ours, peers))
        median = lambda rows, key: statistics.median(r[key] for r in rows)
        print(f"{workload:<12}{median(ours, 'tokens_per_second'):>14,.0f}{median(peers, 'tokens_per_second'):>14,.0f}{speed:>7.2f}x"
              f"{median(ours, 'peak_rss_mib'):>12,.0f}{median(peers, 'peak_rss_mib'):>12,.0f}{memory:>7.2f}x", flush=True)


if __name__ == "__main__":
    main()
