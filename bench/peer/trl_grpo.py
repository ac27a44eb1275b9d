"""The peer of bench/grpo_rates.py: TRL's GRPOTrainer, whose completions Transformers generates.

Prints a JSON line for each step and a summary. Full training, one pass over all completions of a step; the reward is 1 for a
completion whose last number is the record's answer.
"""
import argparse
import json
import os
import pathlib
import sys
import time

# Nothing is fetched: a machine without a network waits for no answer.
for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
    os.environ.setdefault(name, "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from arithmetic import is_right  # noqa: E402
from gpu_common import median_of_last_half  # noqa: E402


def rewards(completions, answer, **_):
    return [float(is_right(completion[0]["content"], wanted)) for completion, wanted in zip(completions, answer)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="Hugging Face folder")
    parser.add_argument("--records", required=True, help='JSON Lines of {"prompt": messages, "answer"}')
    parser.add_argument("--output", required=True, help="folder that the trainer may write into")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--generations", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--lr", type=float, default=1e-6)
    parser.add_argument("--dtype", default="bfloat16", help="of the weights; float32 computes in bfloat16 by autocast on a GPU")
    parser.add_argument("--continuous", action="store_true", help="generate by Transformers' continuous batching")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer, PrinterCallback, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    gpu = args.device.startswith("cuda")
    torch.manual_seed(0)

    class Times(TrainerCallback):
        def __init__(self):
            self.times, self.lengths = [], []

        def mark(self):
            if gpu:
                torch.cuda.synchronize()
            self.times.append(time.perf_counter())

        def on_train_begin(self, *_, **__):
            self.mark()

        def on_step_end(self, _, state, *__, **___):
            self.mark()
            print(json.dumps(dict(step=state.global_step, step_ms=(self.times[-1] - self.times[-2]) * 1e3)), flush=True)

        def on_log(self, _, state, *__, logs=None, **___):
            if logs and "completions/mean_length" in logs:
                self.lengths.append(float(logs["completions/mean_length"]))
                print(json.dumps(dict(step=state.global_step, mean_length=self.lengths[-1], reward=float(logs["reward"]))), flush=True)

    with open(args.records) as file:
        records = [json.loads(line) for line in file]
    completions = args.prompts * args.generations
    config = GRPOConfig(
        output_dir=args.output, max_steps=args.steps, per_device_train_batch_size=completions, gradient_accumulation_steps=1,
        num_generations=args.generations, max_completion_length=args.tokens, learning_rate=args.lr, temperature=1.0, beta=0.0,
        loss_type="dapo", lr_scheduler_type="constant", weight_decay=0.0, gradient_checkpointing=False, logging_steps=1,
        report_to=[], save_strategy="no", seed=1, bf16=gpu, use_cpu=not gpu, disable_tqdm=True,
        optim="adamw_torch_fused" if gpu else "adamw_torch", model_init_kwargs=dict(dtype=args.dtype),
        use_transformers_continuous_batching=args.continuous)
    times = Times()
    trainer = GRPOTrainer(model=args.model, reward_funcs=rewards, args=config, train_dataset=Dataset.from_list(records),
                          processing_class=AutoTokenizer.from_pretrained(args.model), callbacks=[times])
    trainer.remove_callback(PrinterCallback)  # prints logs between the lines of JSON
    trainer.train()
    steps = [(b - a) * 1e3 for a, b in zip(times.times, times.times[1:])]
    print(json.dumps(dict(summary=dict(
        step_ms=median_of_last_half(steps), first_step_ms=steps[0], mean_length=sum(times.lengths) / max(1, len(times.lengths)),
        peak_bytes=torch.cuda.max_memory_allocated() if gpu else 0))))


if __name__ == "__main__":
    main()
