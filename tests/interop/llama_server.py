"""Greedy continuations of a GGUF file by llama.cpp, through the package xllamacpp."""

import json
import subprocess
import sys

# A process of its own: threads of PyTorch and of llama.cpp get into each other's way. Weights stay in the file's layout:
# products of repacked ones crash llama.cpp in a virtual machine.
PROGRAM = """
import json, sys, urllib.request
import xllamacpp
path, context, threads, bodies = json.load(sys.stdin)
parameters = xllamacpp.CommonParams()
parameters.model.path, parameters.n_ctx, parameters.warmup, parameters.n_gpu_layers = path, context, False, 0
parameters.n_parallel = 1
parameters.no_extra_bufts = True
parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
for part in (parameters.cpuparams, parameters.cpuparams_batch):
    part.n_threads, part.poll = threads, 0
server = xllamacpp.Server(parameters)
for body in bodies:
    request = urllib.request.Request(server.listening_address + "/completion", data=json.dumps(body).encode(),
                                     headers={"Content-Type": "application/json"})
    answer = json.loads(urllib.request.urlopen(request, timeout=300).read())
    print("ANSWER " + json.dumps([answer["tokens"], answer["completion_probabilities"][0]["top_logprobs"]]), flush=True)
"""


def continuations(path, prompts, new, context=128, threads=1, likeliest=3):
    """For each prompt, a list of ids: the greedy ids after it, and the likeliest first ones as {"id", "logprob"}."""
    bodies = [{"prompt": [int(token) for token in ids], "n_predict": new, "temperature": 0.0, "top_k": 1,
               "samplers": ["top_k"], "ignore_eos": False, "return_tokens": True, "n_probs": likeliest,
               "cache_prompt": False} for ids in prompts]
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True,
                          input=json.dumps([str(path), context, threads, bodies]))
    answers = [json.loads(line[7:]) for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    if len(answers) < len(bodies):
        raise RuntimeError(f"llama.cpp: {done.stdout}{done.stderr}"[-1500:])
    return answers
