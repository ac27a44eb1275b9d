"""The peer of bench/gpu_generate.py: greedy generation with Hugging Face transformers, batch 1.

Prints one JSON line a cache kind. The rate is that of decoding: (tokens - 1) over the time of all tokens less the time
of one, so that reading the prompt does not count. "static" is transformers' compiled path.
"""
import argparse
import json
import statistics
import sys
import time

import torch
from transformers import AutoModelForCausalLM


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="Hugging Face folder")
    parser.add_argument("--prompt-ids", required=True, help="JSON list of token ids")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--caches", default="dynamic,static")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, args.dtype)).to(args.device).eval()
    # A random model's folder names no special tokens: nothing ends the generation early.
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    ids = torch.tensor([json.loads(args.prompt_ids)], device=args.device)
    synchronize = torch.cuda.synchronize if args.device.startswith("cuda") else lambda: None

    def generate(count, cache):
        synchronize()
        start = time.perf_counter()
        with torch.inference_mode():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False,
                                 **({"cache_implementation": "static"} if cache == "static" else {}))
        synchronize()
        return time.perf_counter() - start, out[0, ids.shape[1]:].tolist()

    for cache in args.caches.split(","):
        try:
            generate(args.tokens, cache)
            generate(1, cache)
            one = statistics.median(generate(1, cache)[0] for _ in range(args.repeat))
            runs = [generate(args.tokens, cache) for _ in range(args.repeat)]
        except Exception as error:  # the other cache may still work
            print(f"{cache}: {error!r}"[:400], file=sys.stderr)
            continue
        whole, tokens = statistics.median(seconds for seconds, _ in runs), runs[-1][1]
        if len(tokens) != args.tokens:
            sys.exit(f"error: {len(tokens)} tokens instead of {args.tokens}")
        print(json.dumps(dict(cache=cache, prompt_seconds=one, seconds=whole, tokens=tokens,
                              tokens_per_second=(args.tokens - 1) / (whole - one))), flush=True)


if __name__ == "__main__":
    main()
