#!/usr/bin/env python3
"""Training steps on one GPU: Quench beside PyTorch (torch.compile), same workload files, one after the other in one call.

  bench/gpu_training.py --workloads 8b-l8,1b --json results.json

Prints for each workload tokens/s of both (median step of the last half), their ratio, model TFLOP/s, MFU, peak memory
of both and its ratio, and the share of the speed of light, whose terms bench/peer/gpu_rates.py measures in the same
call. A side that fails is reported with its error line and the rest goes on; the exit status is then 1.

Needs a Python with PyTorch (--python) and a built or packaged program (--quench; scripts/gpu_test.sh pack).
"""
import argparse
import json
import pathlib
import sys
import tempfile

from gpu_common import (BENCH, BenchError, Shape, add_program_options, json_lines, load_run_config, median_of_last_half,
                        quench_train, run_program, step_times, torch_train, write_random_tokens)

PEAK_TFLOPS = 989.5  # bf16 without sparsity, H100 SXM and H200
GIB = 2.0**30


def run_ours(args, config, shape, tokens, folder):
    config["data"]["train"] = [str(tokens)]
    config["training"]["steps"] = args.steps
    records, _ = quench_train(args.quench, config, folder, args.extra, args.device, args.timeout)
    if len(records) < args.steps:
        raise BenchError(f"{len(records)} of {args.steps} steps are in metrics.jsonl")
    step = median_of_last_half(step_times(records))
    return dict(step_ms=step, tokens_per_second=shape.tokens_per_step / step * 1e3, loss=records[-1]["loss"],
                peak_bytes=max(record["memory_bytes"] or 0 for record in records),
                data_share=max(record["data_share"] for record in records[len(records) // 2:]))


def run_peer(args, path, tokens, folder):
    arguments = ["--config", path, "--data", tokens, "--steps", args.steps, "--precision", "bf16", "--device", args.device]
    return torch_train(args.python, arguments, folder, args.timeout)[1]


def run_rates(args, path, folder):
    command = [args.python, BENCH / "peer" / "gpu_rates.py", "--config", path, "--device", args.device]
    return json_lines(run_program(command, args.timeout, folder / "rates.log"))[-1]


def attempt(what, function, *arguments):
    print(f"  {what} ...", file=sys.stderr, flush=True)
    try:
        return function(*arguments)
    except BenchError as error:
        print(f"  {what} failed: {error}", file=sys.stderr, flush=True)
        return dict(error=str(error))


def measure(args, path, work):
    name, folder = path.stem, work / path.stem
    print(name, file=sys.stderr)
    config = load_run_config(path)
    shape = Shape(config)
    folder.mkdir(parents=True, exist_ok=True)
    tokens = folder / "tokens.npy"
    write_random_tokens(tokens, shape.vocab, shape.tokens_per_step * args.steps + 1)
    sides = args.sides.split(",")
    row = dict(workload=name, tokens_per_step=shape.tokens_per_step, parameters=shape.parameters)
    if "rates" in sides:
        row["speed_of_light"] = attempt("rates", run_rates, args, path, folder)
    if "quench" in sides:
        row["quench"] = attempt("quench", run_ours, args, config, shape, tokens, folder / "quench")
    if "torch" in sides:
        row["torch"] = attempt("torch", run_peer, args, path, tokens, folder / "torch")
    for side in (row.get("quench"), row.get("torch")):
        if side and "error" not in side:
            side["model_tflops"] = shape.flops_per_token * side["tokens_per_second"] / 1e12
            side["mfu"] = side["model_tflops"] / args.peak_tflops
            if light := row.get("speed_of_light", {}).get("step_ms"):
                side["speed_of_light_share"] = light / side["step_ms"]
    return row


def number(side, key, form, scale=1.0):
    value = (side or {}).get(key)
    return format(value * scale, form) if value is not None else "-"


def ratio(row, key):
    ours, peer = (row.get(side, {}).get(key) for side in ("quench", "torch"))
    return f"{ours / peer:.3f}x" if ours and peer else "-"


def print_table(rows):
    print(f"{'workload':<10}{'':<8}{'tok/s':>10}{'ratio':>9}{'TFLOP/s':>9}{'MFU':>8}{'of light':>10}{'GiB':>9}{'ratio':>9}")
    for row in rows:
        for side in ("quench", "torch"):
            if side not in row:
                continue
            s, ours = row[side], side == "quench"
            if "error" in s:
                print(f"{row['workload']:<10}{side:<8}{s['error']}")
                continue
            print(f"{row['workload']:<10}{side:<8}{number(s, 'tokens_per_second', ',.0f'):>10}"
                  f"{ratio(row, 'tokens_per_second') if ours else '':>9}{number(s, 'model_tflops', '.0f'):>9}"
                  f"{number(s, 'mfu', '.1%'):>8}{number(s, 'speed_of_light_share', '.1%'):>10}"
                  f"{number(s, 'peak_bytes', '.2f', 1 / GIB):>9}{ratio(row, 'peak_bytes') if ours else '':>9}")


def print_light(rows):
    for row in rows:
        light = row.get("speed_of_light")
        if not light or "error" in light:
            continue
        print(f"\nspeed of light, {row['workload']}: {light['step_ms']:.1f} ms a step, "
              f"{light['tokens_per_second']:,.0f} tok/s; copy {light['copy_bytes_per_second'] / 1e12:.2f} TB/s")
        for term in light["gemms"]:
            rates = "/".join(f"{term['tflops'][p]:.0f}" for p in ("forward", "dgrad", "wgrad"))
            print(f"  {term['name']:<10}{term['ms']:>9.2f} ms   {rates} TFLOP/s forward/dgrad/wgrad, "
                  f"m {term['m']}, n {'+'.join(map(str, term['n']))}, k {term['k']}, {term['count']} times")
        attention = light["attention"]
        print(f"  {'attention':<10}{attention['ms']:>9.2f} ms   {attention['tflops']['forward']:.0f}/"
              f"{attention['tflops']['backward']:.0f} TFLOP/s forward/backward, {attention['backend']}, "
              f"{attention['count']} times")
        print(f"  {'optimizer':<10}{light['optimizer']['ms']:>9.2f} ms   {light['optimizer']['bytes'] / 1e9:.1f} GB")


def workload_parser(description, workloads):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_program_options(parser)
    parser.add_argument("--workloads", default=workloads, help="names in bench/workloads, or run configs")
    parser.add_argument("--steps", type=int, default=30, help="GEMM algorithms are tried during the first twenty")
    parser.add_argument("--peak-tflops", type=float, default=PEAK_TFLOPS, help="bf16 peak, for MFU")
    parser.add_argument("--json", help="file for all numbers")
    parser.add_argument("extra", nargs="*", help="further arguments for quench train, after --")
    return parser


def measure_workloads(args, measure):
    """The row of each workload that measure(args, path of its config, folder) gives."""
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in args.workloads.split(","):
            path = pathlib.Path(name) if name.endswith(".json") else BENCH / "workloads" / f"{name}.json"
            rows.append(measure(args, path, pathlib.Path(args.work or temporary)))
            if args.json:  # after every workload, so that a run cut short leaves what it had
                pathlib.Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    return rows


def main():
    parser = workload_parser(__doc__, "8b-l8,8b,7b,1b")
    parser.add_argument("--sides", default="rates,quench,torch", help="what to run of these three")
    args = parser.parse_args()
    rows = measure_workloads(args, measure)
    print_table(rows)
    print_light(rows)
    if any("error" in side for row in rows for side in row.values() if isinstance(side, dict)):
        sys.exit(1)


if __name__ == "__main__":
    main()
