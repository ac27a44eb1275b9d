#!/usr/bin/env python3
"""The server with clients that others wrote: the packages openai and llm, lm-evaluation-harness's local-completions, and
the chat page in Chromium (left out where playwright or the browser is missing).

Usage: check_serve.py QUENCH MODEL   where MODEL has a chat template. Needs openai, llm, lm-eval[api] and transformers.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.request

import openai

QUENCH, MODEL = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
KEY = "key-of-the-test"
QUESTION = [{"role": "user", "content": "Name three colours of a rainbow."}]
failed = 0


def check(name, holds, shown=""):
    global failed
    failed += not holds
    print(f"{'ok  ' if holds else 'FAIL'} {name}" + ("" if holds else f": {shown}"), flush=True)


class Server:
    def __init__(self, *options):
        self.process = subprocess.Popen([QUENCH, "serve", "--model", MODEL, "--port", "0", *options], text=True,
                                        stdout=subprocess.PIPE, env=dict(os.environ, QUENCH_API_KEY=KEY))
        self.url = re.search(r"API at (\S+)/v1", self.process.stdout.readline())[1]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.terminate()
        check("the server ends with status 0", self.process.wait(timeout=60) == 0)


def raises(kind, call):
    try:
        call()
    except kind as error:
        return error
    return None


def check_openai(url):
    client = openai.OpenAI(base_url=url + "/v1", api_key=KEY, max_retries=0)
    name = client.models.list().data[0].id
    whole = client.chat.completions.create(model=name, messages=QUESTION, max_tokens=40, temperature=0)
    text = whole.choices[0].message.content
    check("openai: chat", bool(text) and whole.usage.completion_tokens > 0, whole)
    pieces, usage = [], None
    for chunk in client.chat.completions.create(model=name, messages=QUESTION, max_tokens=40, temperature=0, stream=True,
                                                stream_options={"include_usage": True}):
        pieces += [choice.delta.content or "" for choice in chunk.choices]
        usage = chunk.usage or usage
    check("openai: streamed chat is the whole one", "".join(pieces) == text, pieces)
    check("openai: usage of a stream", usage is not None and usage.completion_tokens == whole.usage.completion_tokens, usage)
    drawn = [client.chat.completions.create(model=name, messages=QUESTION, max_tokens=20, n=2, seed=seed).choices
             for seed in (7, 7, 8)]
    texts = [[choice.message.content for choice in choices] for choices in drawn]
    check("openai: seeds", texts[0] == texts[1] != texts[2] and texts[0][0] != texts[0][1], texts)
    scored = client.chat.completions.create(model=name, messages=QUESTION, max_tokens=5, temperature=0, logprobs=True,
                                            top_logprobs=3).choices[0].logprobs.content
    check("openai: logprobs", all(token.logprob == token.top_logprobs[0].logprob for token in scored) and len(scored) == 5, scored)
    done = client.completions.create(model=name, prompt="One, two, three,", max_tokens=8, temperature=0, logprobs=2, echo=True)
    check("openai: completion with echo", done.choices[0].text.startswith("One, two, three,") and
          done.choices[0].logprobs.token_logprobs[0] is None, done)
    plain = client.completions.create(model=name, prompt="One, two, three,", max_tokens=30, temperature=0).choices[0].text
    stop = plain[len(plain) // 2 : len(plain) // 2 + 2]
    stopped = client.completions.create(model=name, prompt="One, two, three,", max_tokens=30, temperature=0, stop=[stop])
    check("openai: stop", stopped.choices[0].text == plain[: plain.index(stop)] and
          stopped.choices[0].finish_reason == "stop", (stopped, plain))
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]
    try:
        offered = client.chat.completions.create(model=name, messages=QUESTION, max_tokens=5, tools=tools)
        check("openai: tools", offered.choices[0].finish_reason in ("length", "stop", "tool_calls"), offered)
    except openai.BadRequestError as error:
        check("openai: tools are refused where the template has none", "tools" in error.message, error)
    for title, kind, call in (
            ("another model", openai.NotFoundError, lambda: client.chat.completions.create(model="gpt-4", messages=QUESTION)),
            ("an unsupported key", openai.BadRequestError,
             lambda: client.chat.completions.create(model=name, messages=QUESTION, frequency_penalty=1)),
            ("a context too long", openai.BadRequestError,
             lambda: client.completions.create(model=name, prompt="word " * 100000)),
            ("a wrong key", openai.AuthenticationError,
             lambda: openai.OpenAI(base_url=url + "/v1", api_key="wrong").models.list())):
        error = raises(kind, call)
        check(f"openai: {title}: {kind.__name__}", error is not None and bool(error.message))
    # Many at once, one of which leaves.
    leaving = client.completions.create(model=name, prompt="Once", max_tokens=400, stream=True)
    next(iter(leaving))
    leaving.close()
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(
        client.completions.create(model=name, prompt="Once upon a time", max_tokens=8, temperature=0).choices[0].text))
        for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check("openai: 16 clients at once", len(answers) == 16, answers)
    return name, text


def check_llm(url, name, folder):
    (folder / "extra-openai-models.yaml").write_text(
        f"- model_id: served\n  model_name: {name}\n  api_base: {url}/v1\n  api_key_name: served\n")
    (folder / "keys.json").write_text(json.dumps({"served": KEY}))
    done = subprocess.run([pathlib.Path(sys.executable).parent / "llm", "-m", "served", "-o", "max_tokens", "20",
                           QUESTION[0]["content"]], capture_output=True, text=True,
                          env=dict(os.environ, LLM_USER_PATH=str(folder)))
    check("llm: an answer", done.returncode == 0 and len(done.stdout.strip()) > 0, done.stdout + done.stderr)


def check_lm_eval(url, name):
    from lm_eval.api.instance import Instance
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    os.environ["OPENAI_API_KEY"] = KEY
    harness = LocalCompletionsAPI(base_url=url + "/v1/completions", model=name, tokenizer=str(MODEL),
                                  tokenizer_backend="huggingface", num_concurrent=1, batch_size=2)
    context = "The capital of France is"
    client = openai.OpenAI(base_url=url + "/v1", api_key=KEY)
    likely = client.completions.create(model=name, prompt=context, max_tokens=2, temperature=0).choices[0].text
    instances = [Instance("loglikelihood", {}, (context, continuation), i) for i, continuation in enumerate([likely, " xylophone"])]
    results = harness.loglikelihood(instances)
    check("lm-eval: loglikelihood", results[0][1] and not results[1][1] and results[0][0] > results[1][0], results)
    # The same sum from an echo of the tokens.
    own = client.completions.create(model=name, prompt=harness.tok_encode(context + likely), max_tokens=0, echo=True, logprobs=0)
    total = sum(own.choices[0].logprobs.token_logprobs[len(harness.tok_encode(context)):])
    check("lm-eval: the sum is that of an echo", abs(total - results[0][0]) < 1e-3, (total, results[0]))
    rolling = harness.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, ("Water boils at a hundred degrees.",), 0)])
    check("lm-eval: loglikelihood_rolling", len(rolling) == 1 and rolling[0] < 0, rolling)
    until = harness.generate_until([Instance("generate_until", {}, (context, {"until": ["."], "max_gen_toks": 12}), 0)])
    check("lm-eval: generate_until", len(until) == 1 and "." not in until[0], until)


def check_page(url, expected):
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        browser_path = None
    if browser_path is None:
        print("left out: the chat page (needs playwright and chromium)")
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page()
        problems, hosts = [], set()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: hosts.add(request.url.split("/")[2] if "//" in request.url else ""))
        page.goto(url + "/")

        # The page's policy forbids the eval that wait_for_function needs.
        def wait(condition, seconds=120):
            for _ in range(20 * seconds):
                if page.evaluate(condition):
                    return
                page.wait_for_timeout(50)
            check(f"page: {condition}", False, page.text_content("body"))

        wait("document.getElementById('note').textContent.includes('API key')")
        page.fill("#key", KEY)
        page.locator("#key").blur()
        wait("document.getElementById('model').textContent !== 'Quench'")
        page.fill("#temperature", "0")
        page.fill("#max_tokens", "40")
        page.fill("#input", QUESTION[0]["content"])
        page.press("#input", "Enter")
        wait("document.getElementById('note').textContent.includes('tokens/s')")
        check("page: the answer is the API's", page.text_content(".message.assistant") == expected,
              page.text_content(".message.assistant"))
        page.fill("#max_tokens", "")
        page.fill("#input", "Write a very long story.")
        page.click("#send")
        wait("document.querySelectorAll('.message.assistant')[1]?.textContent.length > 20")
        page.click("#stop")
        wait("!document.getElementById('send').disabled", 5)
        metrics = urllib.request.Request(url + "/metrics", headers={"Authorization": "Bearer " + KEY})
        page.wait_for_timeout(3000)
        running = re.search(rb"^quench_requests_running (\d+)$", urllib.request.urlopen(metrics).read(), re.M)[1]
        check("page: Stop ends the answer on the server", running == b"0", running)
        page.fill("#temperature", "warm")
        page.fill("#input", "Hello")
        page.click("#send")
        page.wait_for_selector(".message.error")
        check("page: an error is shown", "temperature is no number" in page.text_content(".message.error"))
        check("page: no errors of the script", not problems, problems)
        check("page: nothing from elsewhere", hosts <= {url.split("/")[2], ""}, hosts)
        browser.close()


with Server() as server:
    with tempfile.TemporaryDirectory() as folder:
        model_name, answer = check_openai(server.url)
        check_llm(server.url, model_name, pathlib.Path(folder))
        check_lm_eval(server.url, model_name)
        check_page(server.url, answer)
sys.exit(1 if failed else 0)
