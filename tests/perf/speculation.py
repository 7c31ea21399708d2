#!/usr/bin/env python3
"""Speed and acceptance of drafters on several kinds of text, beside plain decoding. Prints a Markdown table.

    tests/perf/speculation.py --text PROSE_OR_MANUALS.txt [--chat CHAT.txt] [--drafters ngram,phantom] [--threads 1] [--n 24]

One server per drafter and one without; requests go to them in turn, one at a time, so that all meet the same machine. The
ratio is total decoding time without over with the drafter; the interval is a bootstrap over requests. Texts must be equal.
"""
import argparse
import http.client
import json
import os
import random
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Server:
    def __init__(self, binary, model, threads, drafter, extra):
        command = [binary, "serve", "--model", model, "--threads", str(threads), "--port", "0", "--drafter", drafter] + extra
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        for line in self.process.stderr:
            if found := re.search(r"listening on http://127.0.0.1:(\d+)", line):
                self.port = int(found.group(1))
                break
        else:
            sys.exit(f"the server with drafter {drafter} did not start")

    def complete(self, path, body):
        connection = http.client.HTTPConnection("localhost", self.port, timeout=600)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        connection.close()
        if "error" in answer:
            sys.exit(f"request failed: {answer['error']}")
        choice = answer["choices"][0]
        return choice.get("text") or choice["message"]["content"], answer["timings"]

    def stop(self):
        self.process.terminate()
        self.process.stderr.close()
        self.process.wait()


def prose(text, n, rng):
    paragraphs = [p for p in re.split(r"\n\s*\n", text) if 300 < len(p) < 1200 and p.count("  ") < 8]
    return [("/v1/completions", {"prompt": p[: len(p) // 2]}) for p in rng.sample(paragraphs, min(n, len(paragraphs)))]


def manuals(text, n, rng):
    starts = [m.start() for m in re.finditer(r"## (SYNOPSIS|OPTIONS|EXAMPLES?)", text)]
    return [("/v1/completions", {"prompt": text[s : s + 600]}) for s in rng.sample(starts, min(n, len(starts)))]


def copies(text, n, rng):
    paragraphs = [p for p in re.split(r"\n\s*\n", text) if 200 < len(p) < 500]
    # The text, its beginning again: what follows is the copy.
    return [("/v1/completions", {"prompt": f"{p}\n\n{p}\n\n{p[: len(p) // 4]}"}) for p in rng.sample(paragraphs, min(n, len(paragraphs)))]


def chats(text, n, rng):
    turns = re.findall(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", text, flags=re.S)
    return [("/v1/chat/completions", {"messages": [{"role": "user", "content": t}]}) for t in rng.sample(turns, min(n, len(turns)))]


def interval(pairs, rng):
    ratios = sorted(sum(a for a, _ in s) / sum(b for _, b in s) for s in (rng.choices(pairs, k=len(pairs)) for _ in range(1000)))
    return ratios[25], ratios[974]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", default=os.path.join(ROOT, "build/release/bin/turbo"))
    parser.add_argument("--model", default=os.path.join(ROOT, "models/turbo-mini-q1.gguf"))
    parser.add_argument("--text", required=True)
    parser.add_argument("--chat")
    parser.add_argument("--drafters", default="ngram,phantom")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--n", type=int, default=24)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="passed to every server")
    arguments = parser.parse_args()
    text = open(arguments.text, encoding="utf-8").read()
    kinds = {"prose": prose, "manuals": manuals, "copies": copies}
    work = {kind: make(text, arguments.n, random.Random(arguments.seed)) for kind, make in kinds.items()}
    if arguments.chat:
        work["chat"] = chats(open(arguments.chat, encoding="utf-8").read(), arguments.n, random.Random(arguments.seed))
    extra = [word for setting in arguments.set for word in ("--set", setting)]
    names = ["off"] + arguments.drafters.split(",")
    print(f"threads {arguments.threads}, {arguments.max_tokens} tokens, temperature {arguments.temperature}\n")
    print("| text | drafter | tokens a step | accepted | by depth 1, 2, 3, .. | speed over none (95 %) |\n|---|---|---|---|---|---|")
    different = 0
    for kind, requests in work.items():
        # New servers for each kind: a corpus learns from one kind alone.
        servers = {name: Server(arguments.binary, arguments.model, arguments.threads, name, extra) for name in names}
        seen = {name: [] for name in names}
        for i, (path, body) in enumerate(requests):
            body = dict(body, max_tokens=arguments.max_tokens, temperature=arguments.temperature, seed=i, ignore_eos=True, turbo={"timings": True})
            answers = {}
            for name in names if i % 2 == 0 else reversed(names):
                answers[name] = servers[name].complete(path, body)
                seen[name].append(answers[name][1])
            different += sum(answers[name][0] != answers["off"][0] for name in names)
        for server in servers.values():
            server.stop()
        for name in names[1:]:
            pairs = [(a["predicted_ms"], b["predicted_ms"]) for a, b in zip(seen["off"], seen[name])]
            ratio = sum(a for a, _ in pairs) / sum(b for _, b in pairs)
            low, high = interval(pairs, random.Random(2))
            tokens = sum(t["predicted_n"] for t in seen[name])
            rounds, drafted, accepted = (sum(t.get(key, 0) for t in seen[name]) for key in ("draft_rounds", "draft_n", "draft_n_accepted"))
            depths = [sum(d) for d in zip(*(list(t.get("draft_accepted_by_depth", [])) + [0] * 64 for t in seen[name]))]
            shares = ", ".join(f"{d / max(1, rounds):.2f}" for d in depths[:4] if d)
            share = f"{accepted / drafted:.0%}" if drafted else "-"
            print(f"| {kind} | {name} | {tokens / max(1, rounds):.2f} | {share} | {shares} | {ratio:.2f} ({low:.2f} to {high:.2f}) |", flush=True)
    if different:
        sys.exit(f"{different} texts differ from plain decoding")


if __name__ == "__main__":
    main()
