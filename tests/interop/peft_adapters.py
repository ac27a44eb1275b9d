"""Adapters between this program and PEFT, both ways: logits of the same batch, ours against theirs.

  python tests/interop/peft_adapters.py --quench build/quench --model tests/golden/models/llama [--work FOLDER]

Needs torch, transformers, peft and safetensors. An adapter that PEFT makes (random A and B, rank and alpha patterns, rsLoRA or
not, trained copies of embeddings, head and norms, trained rows of
the embedding, a resized vocabulary) is read by `quench forward --adapter`; one that `quench train` makes and exports is loaded by PEFT; the model that
`quench merge-lora` writes is compared with PEFT's merge_and_unload(). Prints a line a comparison; exits 1 when one is beyond
its bound.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

BOUND = 1e-5  # relative L2 of f32 logits


def base_model(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def quench(args, *arguments):
    subprocess.run([args.quench, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def our_logits(args, work, model, ids, adapter=None):
    save_file({"input_ids": ids}, work / "batch.safetensors")
    more = ["--adapter", adapter] if adapter else []
    quench(args, "forward", "--model", model, "--input", work / "batch.safetensors", "--output",
           work / "out.safetensors", "--overwrite", "--dtype", "f32", "--device", "cpu", *more)
    return load_file(work / "out.safetensors")["logits"]


def their_logits(model, ids):
    with torch.no_grad():
        return model(input_ids=ids).logits


def compare(name, ours, theirs, faults):
    error = ((ours - theirs).norm() / theirs.norm()).item()
    print(f"{name}: relative L2 of logits {error:.2e}")
    if not error < BOUND:
        faults.append(name)


def is_tied(args):
    return json.loads((pathlib.Path(args.model) / "config.json").read_text()).get("tie_word_embeddings", False)


def saved_modules(args):
    """Keys of LoraConfig for copies of embedding, head and norms; a tied head stays tied."""
    if is_tied(args):
        return dict(modules_to_save=["embed_tokens", "model.norm"], ensure_weight_tying=True)
    return dict(modules_to_save=["embed_tokens", "lm_head", "norm"])


FUSED = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj", "gate_proj": "gate_up_proj",
         "up_proj": "gate_up_proj"}


def own_names(args, names):
    """The model's names of these layers: of Phi-3 and GLM-4 those of projections that are stored as one."""
    with safe_open(pathlib.Path(args.model) / "model.safetensors", "pt") as file:
        stored = {key.split(".")[-2] for key in file.keys()}
    own = lambda name: name if name.split(".")[-1] in stored else name.replace(name.split(".")[-1], FUSED[name.split(".")[-1]])
    return list(dict.fromkeys(own(name) for name in names))


def token_ids(args):
    vocabulary = json.loads((pathlib.Path(args.model) / "config.json").read_text())["vocab_size"]
    return [9, 2, min(130, vocabulary - 1)]


def made_by_peft(args, work, ids, faults):
    for name, options in {
        "plain": dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"]),
        "patterns": dict(r=4, lora_alpha=8, target_modules="all-linear", rank_pattern={"down_proj": 8},
                         alpha_pattern={own_names(args, ["layers.0.self_attn.q_proj"])[0]: 32}),
        "rslora": dict(r=8, lora_alpha=4, target_modules=["gate_proj", "k_proj"], use_rslora=True),
        "tokens": dict(r=4, lora_alpha=8, target_modules=["q_proj"], trainable_token_indices=token_ids(args)),
        "modules to save": dict(r=4, lora_alpha=8, target_modules=["q_proj", "up_proj"], **saved_modules(args)),
    }.items():
        torch.manual_seed(1)
        if isinstance(options["target_modules"], list):
            options["target_modules"] = own_names(args, options["target_modules"])
        model = get_peft_model(base_model(args.model), LoraConfig(task_type="CAUSAL_LM", **options))
        for parameter_name, parameter in model.named_parameters():
            if "lora_B" in parameter_name:
                torch.nn.init.normal_(parameter, std=0.1)
            if "modules_to_save" in parameter_name or "trainable_tokens_delta" in parameter_name:
                with torch.no_grad():
                    parameter.mul_(1 + 0.3 * torch.randn_like(parameter))
        model.eval()
        folder = work / f"peft-{name.replace(' ', '-')}"
        model.save_pretrained(folder)
        theirs = their_logits(model, ids)
        compare(f"PEFT's adapter '{name}' here", our_logits(args, work, args.model, ids, folder), theirs, faults)
        quench(args, "merge-lora", "--model", args.model, "--adapter", folder, "--output",
               work / f"merged-{folder.name}", "--dtype", "f32")
        merged = base_model(work / f"merged-{folder.name}").eval()
        compare(f"merged '{name}' in Transformers", their_logits(merged, ids),
                their_logits(model.merge_and_unload(), ids), faults)


def made_here(args, work, ids, faults, name, more):
    text = "".join(f"line {i * 37 % 101} of the text\n" for i in range(400))
    (work / "text.txt").write_text(text)
    config = {
        "model": {"path": str(pathlib.Path(args.model).resolve())},
        "data": {"train": [str(work / "text.txt")], "tokenizer": "bytes", "seq_len": 32},
        "training": {"steps": 20, "micro_batch_size": 2, "dtype": "f32"},
        "optimizer": {"lr": 1e-2},
        "lora": {"rank": 4, "alpha": 8, "targets": own_names(args, ["q_proj", "o_proj", "layers.1.mlp.up_proj"]),
                 "rank_pattern": {"o_proj": 2}, "alpha_pattern": {"*.layers.0.*": 4}, **more},
        "export": {"format": "peft", "folder": str(work / name)},
        "run": {"folder": str(work / f"{name}-run")},
        "checkpoint": {"enable": False},
    }
    vocabulary = json.loads((pathlib.Path(args.model) / "config.json").read_text())["vocab_size"]
    if vocabulary < 260:  # the byte tokenizer's: ids that the model has, without a text
        import numpy
        numpy.save(work / "ids.npy", numpy.random.default_rng(1).integers(0, vocabulary, 4000).astype("uint16"))
        config["data"] = {"train": [str(work / "ids.npy")], "seq_len": 32}
    (work / "run.json").write_text(json.dumps(config))
    quench(args, "train", work / "run.json", "--device", "cpu")
    model = PeftModel.from_pretrained(base_model(args.model), work / name).eval()
    theirs = their_logits(model, ids)
    compare(f"our adapter '{name}' in PEFT", our_logits(args, work, args.model, ids, work / name), theirs, faults)
    change = (theirs - their_logits(base_model(args.model).eval(), ids)).norm().item()
    print(f"our adapter changes the logits by {change:.3g}")
    if change == 0:
        faults.append("our adapter changes nothing")


def grown_base(folder, rows):
    model = base_model(folder)
    model.resize_token_embeddings(rows)
    return model


def resized(args, work, faults):
    """Vocabularies that grow: three rows by PEFT, three by model.add_tokens over 259 rows for the byte tokenizer."""
    rows = {"embed_tokens": [260, 261], **({} if is_tied(args) else {"lm_head": [261]})}
    ways = {"plain": {}, "rows": {"trainable_token_indices": [260, 261] if is_tied(args) else rows},
            "saved": saved_modules(args)}
    base = work / "base-259"
    torch.manual_seed(4)
    grown_base(args.model, 259).save_pretrained(base)
    ids = torch.randint(0, 262, (2, 24), generator=torch.Generator().manual_seed(5))
    (work / "grown.txt").write_text("".join(f"line <a>{i * 37 % 101}<b>\n" for i in range(400)))
    for name, options in ways.items():
        model = get_peft_model(grown_base(base, 262), LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=own_names(args, ["q_proj"]),
                                                                 **options))
        for parameter_name, parameter in model.named_parameters():
            if "lora_B" in parameter_name:
                torch.nn.init.normal_(parameter, std=0.1)
        folder = work / f"grown-{name}"
        model.eval().save_pretrained(folder)
        compare(f"PEFT's adapter over new tokens '{name}' here", our_logits(args, work, base, ids, folder),
                their_logits(model, ids), faults)
        ours = work / f"our-grown-{name}"
        lora = {"rank": 4, "targets": own_names(args, ["q_proj"]),
                **{key: value for key, value in options.items() if key != "ensure_weight_tying"}}
        config = {"model": {"path": str(base), "add_tokens": ["<a>", "<b>", "<c>"]},
                  "data": {"train": [str(work / "grown.txt")], "tokenizer": "bytes", "seq_len": 32,
                           "special_text": "tokens"},
                  "training": {"steps": 20, "micro_batch_size": 2, "dtype": "f32"}, "optimizer": {"lr": 1e-2},
                  "lora": lora, "export": {"format": "peft", "folder": str(ours)},
                  "run": {"folder": str(work / f"{ours.name}-run")}, "checkpoint": {"enable": False}}
        (work / "run.json").write_text(json.dumps(config))
        quench(args, "train", work / "run.json", "--device", "cpu")
        loaded = PeftModel.from_pretrained(grown_base(base, 262), ours).eval()
        compare(f"our adapter over new tokens '{name}' in PEFT", our_logits(args, work, base, ids, ours),
                their_logits(loaded, ids), faults)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quench", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--work", type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = (args.work or pathlib.Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        vocabulary = json.loads((pathlib.Path(args.model) / "config.json").read_text())["vocab_size"]
        ids = torch.randint(0, vocabulary, (2, 24), generator=torch.Generator().manual_seed(3))
        faults = []
        made_by_peft(args, work, ids, faults)
        made_here(args, work, ids, faults, "ours", {})
        made_here(args, work, ids, faults, "tokens", {"trainable_token_indices": token_ids(args)})
        made_here(args, work, ids, faults, "saved", {"modules_to_save": saved_modules(args)["modules_to_save"]})
        resized(args, work, faults)
    if faults:
        sys.exit("beyond the bound: " + ", ".join(faults))


if __name__ == "__main__":
    main()
