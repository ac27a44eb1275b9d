#!/usr/bin/env python3
"""Many clients of the server at once, good and bad: whole answers and streams, clients that leave in the middle, read
slowly, send half a request, ten megabytes, garbage, or a wrong token. Good ones get right answers throughout; threads and
memory stay bounded. Prints counts and the memory over time. Standard library only.

Usage: stress_serve.py QUENCH MODEL [SECONDS [CLIENTS [OPTION ...]]]   default 60 seconds, 100 clients; options of serve
"""

import collections
import http.client
import json
import os
import pathlib
import random
import re
import socket
import subprocess
import sys
import threading
import time

QUENCH, MODEL = sys.argv[1], sys.argv[2]
SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 60
CLIENTS = int(sys.argv[4]) if len(sys.argv) > 4 else 100
KEY = "key-of-the-test"
HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer " + KEY}
PROMPTS = [f"Number {i} says:" for i in range(8)]

server = subprocess.Popen([QUENCH, "serve", "--model", MODEL, "--port", "0", "--timeout", "5", *sys.argv[5:]], text=True,
                          stdout=subprocess.PIPE, env=dict(os.environ, QUENCH_API_KEY=KEY))
port = int(re.search(r":(\d+)/v1", server.stdout.readline())[1])
counts, wrong, lock = collections.Counter(), [], threading.Lock()
stop = threading.Event()


def count(kind, outcome):
    with lock:
        counts[f"{kind}: {outcome}"] += 1


def body(prompt, **keys):
    return json.dumps({"prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": True, **keys})


def request(data, headers=HEADERS):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", "/v1/completions", data, headers)
    return connection.getresponse()


def whole(prompt):
    response = request(body(prompt))
    answer = json.loads(response.read())
    return response.status, answer["choices"][0]["text"] if response.status == 200 else None


def streamed(prompt):
    response = request(body(prompt, stream=True))
    if response.status != 200:
        return response.status, None
    events = [line[6:] for line in response.read().decode().split("\n") if line.startswith("data: ")]
    done = events[-1] == "[DONE]"
    return 200, "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1]) if done else "no end"


def good(work):
    i = random.randrange(len(PROMPTS))
    status, text = work(PROMPTS[i])
    count(work.__name__, status)
    if status == 200 and text != expected[i]:
        with lock:
            wrong.append((PROMPTS[i], text, expected[i]))


def leaves():
    response = request(body(random.choice(PROMPTS), max_tokens=100, stream=True))
    response.read(random.randrange(1, 400))
    response.close()
    count("leaves", response.status)


def raw(data):
    client = socket.create_connection(("127.0.0.1", port), timeout=60)
    try:
        client.sendall(data)
        return client, client.recv(4096)
    except OSError:
        return client, b""


def head(length, more=b""):
    return (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer {KEY}\r\n"
            f"Content-Length: {length}\r\n\r\n").encode() + more


def reads_slowly():
    data = body(random.choice(PROMPTS), max_tokens=100, stream=True, logprobs=5).encode()
    client, answer = raw(head(len(data), data))
    for _ in range(5):
        time.sleep(0.3)
        client.recv(16)
    client.close()
    count("reads slowly", answer[9:12].decode())


def half_a_request():
    client, answer = raw(head(100, b'{"prompt": '))
    count("half a request", answer[9:12].decode() or "closed")
    client.close()


def ten_megabytes():
    client, answer = raw(head(10 << 20, b"x" * (10 << 20)))
    count("ten megabytes", answer[9:12].decode() or "closed")
    client.close()


def nested():
    count("nested", request("[" * 1000000).status)


def many_values():
    count("many values", request('{"prompt": [' + "1," * 2000000 + "1]}").status)


def garbage():
    client, answer = raw(random.randbytes(2000) + b"\r\n\r\n")
    count("garbage", answer[9:12].decode(errors="replace") or "closed")
    client.close()


def wrong_token():
    status = request(body("x"), dict(HEADERS, Authorization="Bearer " + KEY[:-1])).status
    count("wrong token", status)
    if status not in (401, 503):
        wrong.append(("let in", status, 401))


def beyond_the_context():
    count("beyond the context", request(body("word " * 300000)).status)


BAD = [leaves, leaves, leaves, reads_slowly, half_a_request, ten_megabytes, nested, many_values, garbage, wrong_token,
       beyond_the_context]


def client(i):
    while not stop.is_set():
        try:
            if i % 2 == 0:
                good(random.choice((whole, streamed)))
            else:
                random.choice(BAD)()
        except (OSError, http.client.HTTPException) as error:
            count("connection", type(error).__name__)
        time.sleep(random.random() * 0.05)


def of_process(name):
    return int(re.search(rf"{name}:\s+(\d+)", pathlib.Path(f"/proc/{server.pid}/status").read_text())[1])


expected = [whole(prompt)[1] for prompt in PROMPTS]
threads = [threading.Thread(target=client, args=(i,)) for i in range(CLIENTS)]
for thread in threads:
    thread.start()
memory, most_threads, begin = [], 0, time.time()
while time.time() - begin < SECONDS and server.poll() is None:
    time.sleep(min(5, SECONDS / 12))
    memory.append(of_process("VmRSS") // 1024)
    most_threads = max(most_threads, of_process("Threads"))
stop.set()
for thread in threads:
    thread.join()
alive = server.poll() is None
final = [whole(prompt)[1] for prompt in PROMPTS] if alive else None
connection = http.client.HTTPConnection("127.0.0.1", port)
connection.request("GET", "/metrics", headers=HEADERS)
metrics = connection.getresponse().read().decode() if alive else ""
server.terminate()
status = server.wait(timeout=60)
for name, number in sorted(counts.items()):
    print(f"{number:8} {name}")
print(*[line for line in metrics.split("\n") if re.match("quench_(requests|cache|generated|preemptions)", line)], sep="\n")
print(f"memory in MiB: {memory}; threads at most: {most_threads}; exit status {status}; wrong answers: {len(wrong)}")
for case in wrong[:5]:
    print("wrong:", case)
half, quarter = len(memory) // 2, len(memory) // 4
early, late = memory[quarter:half], memory[half:]  # large requests come and go; the first quarter warms up
flat = sum(late) / len(late) <= 1.2 * sum(early) / len(early) + 32
idle = "quench_requests_running 0\n" in metrics and "quench_requests_waiting 0\n" in metrics
ok = alive and status == 0 and final == expected and not wrong and flat and idle
print("ok" if ok else f"FAIL (alive {alive}, same answers {final == expected}, flat {flat}, idle {idle})")
sys.exit(0 if ok else 1)
