#!/usr/bin/env python3
"""Runs mirrored to Weights & Biases by scripts/wandb_mirror.py: its offline file holds every record of the run.

Usage: check_wandb.py QUENCH FOLDER   where FOLDER receives everything. Needs the package wandb; sends nothing.
"""

import json
import os
import pathlib
import re
import struct
import subprocess
import sys

from wandb.proto import wandb_internal_pb2

QUENCH, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
BLOCK, HEADER, FILE_HEADER = 32768, 7, 7


def records(path):
    """Records of a .wandb file: blocks of LevelDB's log, each piece with checksum, length and kind (1 whole, 4 last)."""
    data, at, record = path.read_bytes(), FILE_HEADER, b""
    while at + HEADER <= len(data):
        if (left := BLOCK - at % BLOCK) < HEADER:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + HEADER])
        record += data[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (1, 4):
            message = wandb_internal_pb2.Record()
            message.ParseFromString(record)
            record = b""
            yield message


def history(folder):
    """The logged rows, and the config, of the only offline run in folder."""
    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    rows, config = [], {}
    for message in records(path):
        kind = message.WhichOneof("record_type")
        if kind == "history":
            rows.append({item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in message.history.item})
        elif kind == "run":
            config |= {item.key: json.loads(item.value_json) for item in message.run.config.update}
    return rows, config


def main():
    run = FOLDER / "mirrored-run"
    command = [QUENCH, "train", "shakespeare_char", f"--run.folder={run}", "--data.train=README.md",
               "--data.validation=README.md", "--data.tokenizer=bytes", "--evaluation.interval=5",
               '--evaluation.prompts=["The"]', "--evaluation.sample_tokens=4", "--model.vocab_size=259",
               "--model.hidden_size=32", "--model.intermediate_size=64", "--model.num_hidden_layers=1",
               "--training.steps=20", "--training.dtype=f32", "--training.micro_batch_size=4", "--data.seq_len=64",
               "--lr_schedule.warmup_steps=2", "--metrics.log_every=5", "--checkpoint.enable=false", "--device=cpu"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    home = FOLDER / "wandb-home"
    home.mkdir()
    done = subprocess.run([sys.executable, "scripts/wandb_mirror.py", run, "--offline"], text=True, capture_output=True,
                          env=os.environ | {"WANDB_DIR": str(home), "WANDB_SILENT": "true"})
    if done.returncode != 0:
        sys.exit(f"FAIL wandb: {done.stderr}")
    rows, config = history(home)
    logged = [json.loads(line) for line in (run / "metrics" / "metrics.jsonl").read_text().splitlines()]
    evaluations = [json.loads(line) for line in (run / "metrics" / "evaluations.jsonl").read_text().splitlines()]
    losses = {row["step"]: row["train/loss"] for row in rows if "train/loss" in row}
    validation = {row["step"]: row["eval/validation/loss"] for row in rows if "eval/validation/loss" in row}
    samples = [row for row in rows if any(key.startswith("samples/text") for key in row)]
    ok = losses == {record["step"]: record["loss"] for record in logged}
    ok = ok and validation == {record["step"]: record["values"]["loss"] for record in evaluations} and len(samples) >= 4
    ok = ok and config["training"]["steps"] == 20
    ok = ok and re.search(r"wandb sync \S+offline-run", done.stdout) is not None
    print(f"{'ok  ' if ok else 'FAIL'} wandb: {len(losses)} logged steps, {len(validation)} evaluations, {len(samples)} texts "
          "and the config in the offline run")
    sys.exit(not ok)


if __name__ == "__main__":
    main()
