#!/usr/bin/env python3
"""Makes this folder: items in the forms in which HellaSwag, ARC and PIQA are published, all of them made up here, and what
lm-evaluation-harness scores on them with the model and the tokenizers of tests/train/rolling_likelihood.

Needs torch, transformers and lm-eval from PyPI; runs on the CPU in f32. figures.json holds the versions.
"""
import json
import pathlib
import random

import lm_eval
import lm_eval.models.huggingface
import lm_eval.tasks
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parent / "rolling_likelihood"
WORDS = ("the keeper wrote calm sea fog no ships two sails to north storm lamp trimmed depth boats harbour nets water night "
         "morning Zo\u00eb na\u00efve \u6771\u4eac \U0001F6A2 it\u2019s 12 11").split()
rng = random.Random(11)
ITEMS = 24


def words(low, high):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(low, high)))


def hellaswag():
    marks = ["[header] How to trim a lamp [title] Look at it. [step] Take care", "[substeps] One [title] two", "",
             "An open [bracket", "two  spaces   three"]
    for i in range(ITEMS):
        # Long contexts are cut on the left, as the window has 128 tokens.
        context = words(3, 12) if i % 8 else words(90, 120)
        ending = ["then THE keeper " + words(1, 3), "\u00c9T\u00c9 and " + words(1, 2), "", " he", "\u01c6 letter"][i % 5]
        endings = [words(1, 9) + ["", ".", " [title] Wait", " [x] end", "  twice  spaced "][(i + j) % 5] for j in range(4)]
        yield {"ind": i, "activity_label": ["Sailing", "Home and Garden", "Zo\u00eb's boat"][i % 3],
               "ctx_a": (marks[i % 5] + " " + context).strip() + ["", " "][i % 2], "ctx_b": ending,
               "ctx": context + " " + ending, "endings": endings, "source_id": f"made~{i}", "split": "val",
               "split_type": "indomain", "label": [str(i * 7 % 4), i * 7 % 4][i % 2 == 0 and i > 12]}


def arc():
    for i in range(ITEMS):
        count = [4, 4, 4, 5, 3][i % 5]
        labels = list("ABCDE" if i % 3 else "12345")[:count]
        yield {"id": f"made_{i}", "question": words(4, 14) + ["?", "? ", ":\n\"quote\"", " [x]"][i % 4],
               "choices": {"text": [words(1, 6) for _ in range(count)], "label": labels},
               "answerKey": labels[i * 5 % count]}


def piqa():
    for i in range(ITEMS):
        goal = words(2, 10) + ["", " ", "?", "\n"][i % 4]
        first = words(2, 16)
        # Of every fifth the two ways are the same, and the first counts.
        second = first if i % 5 == 4 else first.replace(" ", ", ", 1) if i % 3 else words(1, 8)
        yield {"goal": goal, "sol1": first, "sol2": second, "label": i * 3 % 2}


OWN = pathlib.Path(lm_eval.tasks.__file__).parent
FILES = {"hellaswag": "hellaswag/hellaswag.yaml", "arc_easy": "arc/arc_easy.yaml", "arc_challenge": "arc/arc_challenge.yaml",
         "piqa": "piqa/piqa.yaml"}
TASKS = {"hellaswag": hellaswag, "arc_easy": arc, "arc_challenge": arc, "piqa": piqa}


def main():
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL / "bos", dtype=torch.float32).eval()
    cases = []
    for task, make in TASKS.items():
        rng.seed(task)
        path = HERE / f"{task}.jsonl"
        path.write_text("".join(json.dumps(item, ensure_ascii=False) + "\n" for item in make()))
        # All labels of a column have one type for the reader; the task turns them into numbers.
        records = [json.loads(line) for line in path.read_text().splitlines()]
        if task == "hellaswag":
            for record in records:
                record["label"] = str(record["label"])
        uniform = HERE / "uniform.jsonl"
        uniform.write_text("".join(json.dumps(r) + "\n" for r in records))
        for kind, add_bos in (("bos", None), ("bos", False), ("eos", None)):
            tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL / kind)
            harness = lm_eval.models.huggingface.HFLM(pretrained=model, tokenizer=tokenizer, max_length=128, batch_size=1,
                                                      device="cpu", add_bos_token=add_bos)
            files = {"train": str(uniform), "validation": str(uniform), "test": str(uniform)}
            # The harness' own task with its data set in another place.
            config = HERE / "task.yaml"
            config.write_text(json.dumps({"include": str(OWN / FILES[task]), "task": task, "dataset_path": "json",
                                          "dataset_name": None, "dataset_kwargs": {"data_files": files}}))
            done = lm_eval.simple_evaluate(model=harness, tasks=[str(config)], num_fewshot=0, log_samples=True,
                                           task_manager=lm_eval.tasks.TaskManager(include_defaults=False))
            result = next(iter(done["results"].values()))
            samples = sorted(next(iter(done["samples"].values())), key=lambda s: s["doc_id"])
            assert len(samples) == len(records)
            cases.append({"task": task, "tokenizer": kind, "special_tokens": add_bos is None, "window": 128,
                          "acc": result["acc,none"], "acc_norm": result["acc_norm,none"],
                          "acc_stderr": result["acc_stderr,none"], "acc_norm_stderr": result["acc_norm_stderr,none"],
                          "log_likelihoods": [[float(r[0]) for r in s["filtered_resps"]] for s in samples]})
        uniform.unlink()
        config.unlink()
    versions = {"lm_eval": lm_eval.__version__, "transformers": transformers.__version__, "torch": torch.__version__}
    (HERE / "figures.json").write_text(json.dumps({"versions": versions, "cases": cases}) + "\n")


if __name__ == "__main__":
    main()
