#!/usr/bin/env python3
"""Mirrors a run to Weights & Biases: its config, and every record of metrics.jsonl, evaluations.jsonl and samples.jsonl.

Usage: wandb_mirror.py RUN_FOLDER [--project NAME] [--name NAME] [--offline] [--follow]

Needs the package wandb. With --offline nothing is sent: `wandb sync` uploads the folder that is printed. With --follow
records are sent as the run writes them, until Ctrl-C. Charts have the run's own step as their axis. The id at W&B follows
from the path of the run folder, so that a second call updates the same run there instead of adding one.
"""

import argparse
import hashlib
import json
import pathlib
import sys
import time

try:
    import wandb
except ModuleNotFoundError:
    wandb = None  # --help and errors of the command line need none

PREFIXES = {"metrics.jsonl": "train/", "evaluations.jsonl": "eval/", "samples.jsonl": "samples/"}


def scalars(record, prefix):
    """Numbers of a record under one name each; what is null or no number is left out."""
    values = {}
    for key, value in record.items():
        if isinstance(value, dict):
            values |= scalars(value, f"{prefix}{key}/")
        elif isinstance(value, (int, float)) and key != "step":
            values[prefix + key] = value
    return values


def row(file, record):
    if file == "evaluations.jsonl":
        return scalars(record.get("values", {}), f"eval/{record.get('name', '')}/")
    if file == "samples.jsonl":
        return {"samples/text": wandb.Html(f"<pre>{escape(record['prompt'])}<b>{escape(record['text'])}</b></pre>")}
    return scalars(record, PREFIXES[file])


def escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;")


class Lines:
    """Complete lines of a file that grows; those of a file that a resumed run has shortened are read again."""

    def __init__(self, path):
        self.path, self.at = path, 0

    def new(self):
        if not self.path.exists():
            return []
        data = self.path.read_bytes()
        if len(data) < self.at:
            self.at = 0
        end = data.rfind(b"\n") + 1
        text, self.at = data[self.at : end], max(self.at, end)
        # Not splitlines(): JSON strings may hold U+2028 and its like unescaped.
        return [json.loads(line) for line in text.decode().split("\n") if line.strip()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path, metavar="RUN_FOLDER")
    parser.add_argument("--project", default="quench")
    parser.add_argument("--name", help="default: the name of the run folder")
    parser.add_argument("--offline", action="store_true")
    parser.add_argument("--follow", action="store_true")
    args = parser.parse_args()
    folder = args.run.resolve()
    if not (folder / "metrics" / "metrics.jsonl").exists():
        sys.exit(f"wandb_mirror.py: {args.run} is not a run folder: metrics/metrics.jsonl is missing")
    if wandb is None:
        sys.exit("wandb_mirror.py: the package wandb is missing: pip install wandb")
    config = folder / "config.json"
    run = wandb.init(project=args.project, name=args.name or folder.name, mode="offline" if args.offline else None,
                     id=hashlib.sha256(str(folder).encode()).hexdigest()[:16], resume="allow",
                     config=json.loads(config.read_text()) if config.exists() else None)
    # Evaluations come after the step that they belong to, so the axis is a value of each record, not W&B's counter.
    run.define_metric("step")
    for prefix in PREFIXES.values():
        run.define_metric(f"{prefix}*", step_metric="step")
    files = {name: Lines(folder / "metrics" / name) for name in PREFIXES}
    count = 0
    try:
        while True:
            for name, lines in files.items():
                for record in lines.new():
                    values = row(name, record)
                    if values:
                        run.log({"step": record["step"]} | values)
                        count += 1
            if not args.follow:
                break
            time.sleep(5)
    except KeyboardInterrupt:
        pass
    directory = pathlib.Path(run.dir).parent
    run.finish()
    print(f"{count} records" + (f"; to upload them: wandb sync {directory}" if args.offline else ""))


if __name__ == "__main__":
    main()
