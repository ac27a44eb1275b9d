"""What the GPU benchmarks share: reading run configs, token files, running programs, random models.

Needs nothing but the standard library until numpy or torch is asked for.
"""
import glob
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import sysconfig

BENCH = pathlib.Path(__file__).resolve().parent


class BenchError(RuntimeError):
    """One side of a comparison failed; the message is its last error line."""


# ---- run configs -----------------------------------------------------------------------------------------------------


def load_run_config(path):
    """A run config with the defaults that the benchmarks read. Comments must have lines of their own. A preset is looked
    up in configs/models beside this folder."""
    text = re.sub(r"^\s*//.*$", "", pathlib.Path(path).read_text(), flags=re.M)
    config = json.loads(text)
    model = config["model"]
    if "preset" in model:
        preset = json.loads((BENCH.parent / "configs" / "models" / f"{model['preset']}.json").read_text())
        config["model"] = {**preset, **{k: v for k, v in model.items() if k != "preset"}}
    return config


# Of a layer of Gemma 3, beside those of queries and keys.
GEMMA_NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")


class Shape:
    """Sizes of a Llama or a Gemma 3 (text) and of a step, from a run config."""

    def __init__(self, config):
        m, data, training = config["model"], config["data"], config["training"]
        self.vocab, self.width, self.ffn = m["vocab_size"], m["hidden_size"], m["intermediate_size"]
        self.layers, self.heads = m["num_hidden_layers"], m["num_attention_heads"]
        self.kv_heads = m.get("num_key_value_heads") or self.heads
        self.is_gemma3 = m.get("model_type") == "gemma3_text"
        self.head_dim = m.get("head_dim") or (256 if self.is_gemma3 else self.width // self.heads)
        self.tied = bool(m.get("tie_word_embeddings", False))
        self.rope_theta, self.eps = m.get("rope_theta", 10000.0), m.get("rms_norm_eps", 1e-5)
        self.init_std = m.get("initializer_range", 0.02)
        self.seq_len = data["seq_len"]
        self.batch = training["micro_batch_size"]
        self.accumulation = training.get("global_batch_size", self.batch) // self.batch
        self.windows = [0] * self.layers  # keys that a query sees in each layer; 0: all before it
        if self.is_gemma3:
            types = m.get("layer_types") or ["sliding_attention" if (i + 1) % m.get("sliding_window_pattern", 6) else
                                             "full_attention" for i in range(self.layers)]
            self.windows = [m.get("sliding_window", 4096) if t == "sliding_attention" else 0 for t in types]
            self.query_scale = m.get("query_pre_attn_scalar", 256) ** -0.5
            self.rope_theta, self.local_rope_theta = m.get("rope_theta", 1e6), m.get("rope_local_base_freq", 1e4)
            self.rope_factor = (m.get("rope_scaling") or {}).get("factor", 1.0)

    @property
    def tokens_per_step(self):
        return self.batch * self.accumulation * self.seq_len

    @property
    def layer_parameters(self):
        attention = self.width * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        norms = len(GEMMA_NORMS) * self.width + 2 * self.head_dim if self.is_gemma3 else 2 * self.width
        return attention + 3 * self.width * self.ffn + norms

    def attended(self, window):
        """Mean number of keys of a query in a layer: T / 2 under a causal mask, less with a window."""
        outside = max(self.seq_len - window, 0) if window else 0
        return (self.seq_len**2 - outside**2) / (2 * self.seq_len)

    @property
    def parameters(self):
        embeddings = self.vocab * self.width * (1 if self.tied else 2)
        return self.layers * self.layer_parameters + embeddings + self.width

    @property
    def flops_per_token(self):
        """6 N for the weights that multiply (the head, not the embedding) and 6 L d T for causal attention counted once, in
        layers with a window the keys that it has; recomputation does not count."""
        weights = self.layers * self.layer_parameters + self.width + self.vocab * self.width
        return 6 * weights + 12 * self.heads * self.head_dim * sum(self.attended(window) for window in self.windows)


RECIPE_SUFFIXES = {
    "head": dict(filter=dict(exclude=[])),  # the head too
    "delayed": dict(scaling="delayed"),
}


def recipe_section(spec):
    """Section recipe of "NAME", "NAME+head", "NAME+head+delayed"."""
    name, *suffixes = spec.split("+")
    section = dict(name=name)
    for suffix in suffixes:
        section.update(RECIPE_SUFFIXES[suffix])
    return section


def learning_rate(config, step, steps):
    """The rate of 0-based `step`, as nn/optim/lr_schedule.cpp defines it, for constant, linear and cosine."""
    schedule, peak = config.get("lr_schedule", {}), config.get("optimizer", {}).get("lr", 3e-4)
    name, warmup = schedule.get("name", "cosine"), schedule.get("warmup_steps", 0)
    if step < warmup:
        return peak * (step + 1) / warmup
    if name == "constant":
        return peak
    span = schedule.get("decay_steps") or steps - warmup
    progress = min(1.0, (step - warmup) / span) if span else 0.0
    floor = schedule.get("min_lr_ratio", 0.1)
    decay = {"cosine": 0.5 * (1 + math.cos(math.pi * progress)), "linear": 1 - progress}[name]
    return peak * (floor + (1 - floor) * decay)


# ---- tokens ----------------------------------------------------------------------------------------------------------


def write_random_tokens(path, vocab, count, seed=1):
    """Uniformly random ids as a .npy file: one document. Ids begin at 3: below are the special tokens of a model that names
    none, and an end of sequence would split a row into documents for one side only."""
    import numpy

    ids = numpy.random.default_rng(seed).integers(3, vocab, size=count, dtype=numpy.int32)
    numpy.save(path, ids)


def load_tokens(path):
    """Ids of a .npy file, a Quench shard, a headerless u16 .bin file, or the bytes of a text file."""
    import numpy

    path = pathlib.Path(path)
    if path.suffix == ".npy":
        return numpy.load(path, mmap_mode="r").reshape(-1)
    if path.suffix == ".bin":
        with open(path, "rb") as file:
            head = file.read(16)
            if not head.startswith(b"QTOKENS\n"):
                return numpy.fromfile(path, dtype="<u2")
            file.seek(-256, os.SEEK_END)
            count = int.from_bytes(file.read(8), "little")
        width = int.from_bytes(head[12:16], "little")
        return numpy.fromfile(path, dtype=f"<u{width}", count=count, offset=64)
    return numpy.fromfile(path, dtype="u1")


# ---- programs --------------------------------------------------------------------------------------------------------


def library_folders(program):
    """Where the libraries of a packaged program (scripts/gpu_test.sh pack), CUDA and cuDNN may be."""
    folders = [str(pathlib.Path(program).resolve().parent.parent / "lib")]
    folders += sorted(glob.glob("/usr/local/cuda*/lib64"))
    for key in ("purelib", "platlib"):
        folders += sorted(glob.glob(sysconfig.get_path(key) + "/nvidia/*/lib"))
    return [folder for folder in dict.fromkeys(folders) if os.path.isdir(folder)]


def program_environment(program):
    environment = dict(os.environ)
    known = environment.get("LD_LIBRARY_PATH")
    environment["LD_LIBRARY_PATH"] = ":".join(([known] if known else []) + library_folders(program))
    return environment


def last_error_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"error|exception|killed|abort", line, re.I)]
    return (errors or lines or ["no output"])[-1][:400]


def run_program(command, timeout, log=None, environment=None):
    """Standard output of a command; BenchError with its last error line when it fails or takes too long."""
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=timeout, env=environment)
    except subprocess.TimeoutExpired as expired:
        raise BenchError(f"took more than {timeout} s") from expired
    except OSError as error:
        raise BenchError(str(error)) from error
    if log:
        pathlib.Path(log).write_text(done.stdout + done.stderr)
    if done.returncode:
        raise BenchError(f"status {done.returncode}: {last_error_line(done.stderr or done.stdout)}")
    return done.stdout


def json_lines(text):
    records = []
    for line in text.splitlines():
        if line.startswith("{"):
            records.append(json.loads(line))
    return records


def quench_train(program, config, folder, overrides=(), device="cuda", timeout=600):
    """Trains as `config` (a dict) says and returns the records of metrics.jsonl and of evaluations.jsonl."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "run", ignore_errors=True)  # of an earlier call with the same --work
    (folder / "run.json").write_text(json.dumps(config, indent=1))
    command = [program, "train", folder / "run.json", "--device", device, f"--run.folder={folder / 'run'}",
               "--checkpoint.resume=never", *overrides]
    run_program(command, timeout, folder / "quench.log", program_environment(program))
    read = lambda name: json_lines(path.read_text()) if (path := folder / "run" / "metrics" / name).exists() else []
    return read("metrics.jsonl"), read("evaluations.jsonl")


def step_times(records):
    """Wall time in ms from one record of metrics.jsonl to the next. Unlike step_ms it counts what the host does between
    two steps (logging) while the device still works on the first."""
    return [(b["time"] - a["time"]) * 1e3 / (b["step"] - a["step"]) for a, b in zip(records, records[1:])]


def torch_train(python, arguments, folder, timeout=600):
    """Runs the PyTorch peer; its step records and its summary."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    records = json_lines(run_program([python, BENCH / "peer" / "torch_gpu.py", *arguments], timeout, folder / "torch.log"))
    if not records or "summary" not in records[-1]:
        raise BenchError("the peer printed no summary")
    return records[:-1], records[-1]["summary"]


def median_of_last_half(values):
    return statistics.median(values[len(values) // 2:])


# ---- models ----------------------------------------------------------------------------------------------------------


def write_model_folder(folder, config, seed=0, dtype="bfloat16"):
    """A Hugging Face folder of a Llama or a Gemma 3 with normally distributed weights; the same bytes for the same seed."""
    import torch
    from safetensors.torch import save_file

    shape, folder = Shape(config), pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    kind = {"architectures": ["Gemma3ForCausalLM"]} if shape.is_gemma3 else \
        {"architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "mlp_bias": False}
    model = {**kind, "attention_bias": False, "torch_dtype": dtype, "head_dim": shape.head_dim, **config["model"]}
    (folder / "config.json").write_text(json.dumps(model, indent=1))
    generator, to = torch.Generator().manual_seed(seed), getattr(torch, dtype)
    normal = lambda rows, columns: torch.empty(rows, columns).normal_(0, shape.init_std, generator=generator).to(to)
    # Weights of Gemma's norms are added to one.
    norm = lambda width: (torch.zeros if shape.is_gemma3 else torch.ones)(width, dtype=to)
    query, key, d = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim, shape.width
    tensors = {"model.embed_tokens.weight": normal(shape.vocab, d), "model.norm.weight": norm(d)}
    if not shape.tied:
        tensors["lm_head.weight"] = normal(shape.vocab, d)
    for i in range(shape.layers):
        layer = f"model.layers.{i}."
        for name, rows, columns in (("self_attn.q_proj", query, d), ("self_attn.k_proj", key, d),
                                    ("self_attn.v_proj", key, d), ("self_attn.o_proj", d, query),
                                    ("mlp.gate_proj", shape.ffn, d), ("mlp.up_proj", shape.ffn, d),
                                    ("mlp.down_proj", d, shape.ffn)):
            tensors[f"{layer}{name}.weight"] = normal(rows, columns)
        for name in GEMMA_NORMS if shape.is_gemma3 else ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{layer}{name}.weight"] = norm(d)
        for name in ("q_norm", "k_norm") if shape.is_gemma3 else ():
            tensors[f"{layer}self_attn.{name}.weight"] = norm(shape.head_dim)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def add_program_options(parser):
    parser.add_argument("--quench", default=str(BENCH.parent / "build" / "quench"), help="the program to measure")
    parser.add_argument("--python", default=sys.executable, help="Python with PyTorch")
    parser.add_argument("--device", default="cuda", help="of both sides; cpu to try the script itself")
    parser.add_argument("--work", help="folder for data, logs and runs; default: a temporary one")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for each side of a comparison")
