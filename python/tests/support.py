"""Fixtures of the module's tests: a model that the program trained, made once."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pathlib
import subprocess
import tempfile

PROGRAM = os.environ["QUENCH_PROGRAM"]
TEXT = "".join(f"{i} plus {i + 1} is {2 * i + 1}.\n" for i in range(400))
_folder = tempfile.TemporaryDirectory(prefix="quench-python-")
FOLDER = pathlib.Path(_folder.name)

MODEL = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 259, "max_position_embeddings": 128}


def config(name: str, steps: int = 6, **sections: dict) -> dict:
    """Run of a tiny model on bytes, in a folder of its own."""
    document = {
        "run": {"folder": str(FOLDER / name)},
        "model": dict(MODEL),
        "data": {"train": str(text_file()), "tokenizer": "bytes", "seq_len": 32},
        "training": {"steps": steps, "micro_batch_size": 2, "dtype": "f32"},
        "evaluation": {},
        "metrics": {"log_every": 1},
    }
    for section, values in sections.items():
        document[section] = {**document.get(section, {}), **values}
    return {key: value for key, value in document.items() if value}


def program(*arguments: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done


@functools.cache
def text_file() -> pathlib.Path:
    path = FOLDER / "text.txt"
    path.write_text(TEXT)
    return path


@functools.cache
def trained() -> pathlib.Path:
    """Run folder of the program."""
    path = FOLDER / "program.json"
    path.write_text(json.dumps(config("program")))
    program("train", path, "--quiet", "--device", "cpu")
    return FOLDER / "program"


def losses(run: str) -> list[tuple[int, float, float]]:
    lines = (FOLDER / run / "metrics" / "metrics.jsonl").read_text().splitlines()
    return [(r["step"], r["loss"], r["grad_norm"]) for r in map(json.loads, lines)]


def weights(run: str) -> dict[str, str]:
    """Hash of each tensor of the newest checkpoint: parameters and optimizer state."""
    newest = max((FOLDER / run / "checkpoints").glob("step-*"), key=lambda p: int(p.name.split("-")[1]))
    hashes = {}
    for path in newest.glob("*.safetensors"):
        data = path.read_bytes()
        begin = 8 + int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:begin]).items():
            if name != "__metadata__":
                first, last = entry["data_offsets"]
                hashes[name] = hashlib.sha256(data[begin + first:begin + last]).hexdigest()
    return hashes
