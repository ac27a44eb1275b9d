#!/usr/bin/env python3
"""Characters of Shakespeare on the GPU: the run configs/runs/char-gpu.json, its best validation loss and wall time, and
PyTorch's wall time for the same steps.

  bench/gpu_chars.py --text tinyshakespeare.txt --json chars.json [-- --training.steps=2000 ...]

The last tenth of the text is held out and evaluated whole. The rest is written once for each of --shifts offsets
(--shifts 8: beginning 0, 32, 64, ... characters in), so that over the passes a row of 256 characters begins at other
places too, as it does where windows are cut at random (nanoGPT, and the peer here). nanoGPT reports 1.4697, with dropout.
"""
import argparse
import json
import pathlib
import re
import sys
import tempfile
import time

from gpu_common import BENCH, BenchError, add_program_options, load_run_config, median_of_last_half, quench_train, torch_train


def split_text(args, config, folder):
    text = pathlib.Path(args.text).read_bytes()
    cut = len(text) * 9 // 10
    length = config["data"]["seq_len"]
    for i in range(args.shifts):
        (folder / f"train-{i:02}.txt").write_bytes(text[length * i // args.shifts:cut])
    (folder / "train.txt").write_bytes(text[:cut])
    (folder / "val.txt").write_bytes(text[cut:])


def apply_overrides(config, overrides):
    """--section.key=value, for the keys that the peer reads too."""
    for override in overrides:
        match = re.fullmatch(r"--(\w+)\.(\w+)=(.*)", override)
        if not match:
            sys.exit(f"{override}: expected --section.key=value")
        section, key, value = match.groups()
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            pass
        config.setdefault(section, {})[key] = value


def run_ours(args, config, folder):
    config = json.loads(json.dumps(config))
    config["data"]["train"], config["data"]["validation"] = [str(folder / "train-*.txt")], [str(folder / "val.txt")]
    config["checkpoint"] = dict(enable=False)
    config["metrics"].update(tensorboard=False, progress="off")
    start = time.time()
    steps, evaluations = quench_train(args.quench, config, folder / "quench", (), args.device, args.timeout)
    wall = time.time() - start
    if not evaluations:
        raise BenchError("the run evaluated nothing")
    losses = [(record["values"]["loss"], record["step"]) for record in evaluations]
    return dict(best_loss=min(losses)[0], best_step=min(losses)[1], last_loss=losses[-1][0], wall_seconds=wall,
                evaluated_tokens=evaluations[-1]["tokens"], step_ms=median_of_last_half([record["step_ms"] for record in steps]),
                curve=[dict(step=step, loss=loss) for loss, step in losses])


def run_peer(args, config, folder):
    path = folder / "peer.json"
    path.write_text(json.dumps(config))
    arguments = ["--config", path, "--data", folder / "train.txt", "--validation", folder / "val.txt", "--order", "random",
                 "--precision", "mixed", "--compile", args.compile, "--device", args.device]
    start = time.time()
    _, summary = torch_train(args.python, arguments, folder / "torch", args.timeout)
    losses = [(record["loss"], record["step"]) for record in summary["evaluations"]]
    return dict(best_loss=min(losses)[0], best_step=min(losses)[1], last_loss=losses[-1][0], wall_seconds=time.time() - start,
                step_ms=summary["step_ms"], first_step_seconds=summary["first_step_seconds"], curve=summary["evaluations"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_program_options(parser)
    parser.add_argument("--text", required=True, help="tinyshakespeare.txt")
    parser.add_argument("--config", default=str(BENCH.parent / "configs" / "runs" / "char-gpu.json"))
    parser.add_argument("--shifts", type=int, default=8, help="offsets at which rows begin")
    parser.add_argument("--sides", default="quench,torch")
    parser.add_argument("--compile", choices=["block", "model", "none"], default="model", help="of the peer")
    parser.add_argument("--target", type=float, default=1.48, help="best validation loss that is wanted")
    parser.add_argument("--json", help="file for all numbers")
    parser.add_argument("overrides", nargs="*", help="--section.key=value for both sides, after --")
    args = parser.parse_args()
    config = load_run_config(args.config)
    apply_overrides(config, args.overrides)
    result, failed = {}, False
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(args.work or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        split_text(args, config, folder)
        for name, function in (("quench", run_ours), ("torch", run_peer)):
            if name not in args.sides.split(","):
                continue
            try:
                side = result[name] = function(args, config, folder)
                print(f"{name:<8} best validation loss {side['best_loss']:.4f} at step {side['best_step']}, "
                      f"last {side['last_loss']:.4f}; wall time {side['wall_seconds']:.1f} s, "
                      f"median step {side['step_ms']:.2f} ms", flush=True)
            except BenchError as error:
                failed = True
                print(f"{name:<8} failed: {error}", flush=True)
    if "quench" in result:
        best = result["quench"]["best_loss"]
        print(f"wanted {args.target}: {'reached' if best <= args.target else f'missed by {best - args.target:.4f}'}")
    if len(result) == 2:
        result["wall_ratio"] = result["torch"]["wall_seconds"] / result["quench"]["wall_seconds"]
        print(f"PyTorch takes {result['wall_ratio']:.2f} times our wall time (its compilation included)")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(result) + "\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
