#!/usr/bin/env python3
"""What drafters bring on several kinds of text, beside plain decoding and beside what their parts allow. Prints Markdown.

    speculation.py --text HELDOUT.txt --chat CHAT.txt --threads 2                    the table of docs/speculation.md
    speculation.py --text HELDOUT.txt --chat CHAT.txt --record DIR                   records drafts and what of them held
    speculation.py --replay DIR --model BIG.gguf --threads 2                         the table at that model's shape

One server for each drafter; each request goes to it twice, with its drafts and without ("drafter": "off"), one at a time, every
second time in reverse. So both meet the same machine and the same process: two processes of the same program differ by up to
a tenth, by where their pages lie. The texts must be equal. For each kind and drafter, with sums over all its requests:

    tokens/step   N / S        N tokens after the first of each request, S steps that made them
    step          mean of T(W) over the widths W that the S steps had (computing and sampling), in units of T(1)
    ratio         time of N tokens plainly / with the drafter; the interval is a bootstrap over pairs of requests
    bound         N T(1) / (sum of T(W) over the S steps + time in the drafter) = tokens/step T(1) / (mean T(W) + mean drafting)
                  T(1) is the step of the requests without drafts

Verdicts: ratio >= 0.9 bound; ratio >= 1.5 on copy, edit and summarise where bound >= 1.7 (ngram and phantom); the interval
reaches 0.98. Exit status: 1 when a text differs; with --check also when a verdict fails.
"""
import argparse
import glob
import http.client
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
TASKS = ("copy", "edit", "summarise")


class Server:
    def __init__(self, binary, model, threads, drafter, extra):
        command = [binary, "serve", "--model", model, "--threads", str(threads), "--port", "0", "--drafter", drafter] + extra
        self.log = tempfile.NamedTemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(command, stderr=self.log, stdout=subprocess.DEVNULL)
        for _ in range(1200):
            if found := re.search(r"listening on http://127.0.0.1:(\d+)", self.read_log()):
                self.port = int(found.group(1))
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        self.process.kill()
        sys.exit(f"the server with drafter {drafter} did not start:\n{self.read_log()[-2000:]}")

    def read_log(self):
        with open(self.log.name, encoding="utf-8", errors="replace") as log:
            return log.read()

    def complete(self, path, body):
        connection = http.client.HTTPConnection("localhost", self.port, timeout=600)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        connection.close()
        if "error" in answer:
            sys.exit(f"request failed: {answer['error']}")
        choice = answer["choices"][0]
        return choice.get("text") or choice.get("message", {}).get("content") or "", answer["timings"]

    def stop(self):
        self.process.terminate()
        self.process.wait()


# ---- Requests by kind: (path, body, most tokens). A fifth of the length in letters is a good guess at tokens still to come.

def pick(items, n, rng):
    return rng.sample(items, min(n, len(items)))


def paragraphs_of(text, least, most):
    return [p for p in re.split(r"\n\s*\n", text) if least < len(p) < most and p.count("  ") < 8 and not p.startswith("#")]


def prose(text, n, rng):
    return [(COMPLETIONS, {"prompt": p[: len(p) // 2]}, 0) for p in pick(paragraphs_of(text, 300, 1200), n, rng)]


def manuals(text, n, rng):
    starts = [m.start() for m in re.finditer(r"## (SYNOPSIS|OPTIONS|EXAMPLES?)", text)]
    return [(COMPLETIONS, {"prompt": text[s : s + 600]}, 0) for s in pick(starts, n, rng)]


def code(_, n, rng):
    files = sorted(f for f in glob.glob(os.path.join(ROOT, "core", "**", "*.cpp"), recursive=True) if os.path.getsize(f) > 3000)
    requests = []
    for name in pick(files, n, rng):
        with open(name, encoding="utf-8") as file:
            source = file.read()
        begin = source.index("\n", rng.randrange(len(source) - 1500)) + 1
        requests.append((COMPLETIONS, {"prompt": source[begin : begin + 900]}, 0))
    return requests


# The bundled model follows no instruction to copy, but does go on with one that has begun: the text twice, and its third time begun.
def copy(text, n, rng):
    return [(COMPLETIONS, {"prompt": f"{p}\n\n{p}\n\n{p[: len(p) // 5]}"}, len(p) // 5) for p in pick(paragraphs_of(text, 350, 900), n, rng)]


# The text twice, and begun with the word that it says most often replaced by another, so far that this was seen twice.
def edit(text, n, rng):
    found = []
    for p in paragraphs_of(text, 400, 1200):
        words = re.findall(r"\b[A-Za-z]{6,}\b", p)
        often = max(sorted(set(words)), key=words.count, default="")
        if words.count(often) < 4:
            continue
        edited = re.sub(rf"\b{often}\b", "gadget", p)
        shown = edited.find("gadget", edited.find("gadget") + 1) + len("gadget")
        if 3 * shown < 2 * len(edited):
            found.append((COMPLETIONS, {"prompt": f"{p}\n\n{p}\n\n{edited[:shown]}"}, (len(edited) - shown) // 5))
    return pick(found, n, rng)


# What a tool returned, in words: the one form of it that the bundled model was taught. A page's description is the source.
def summarise(text, n, rng):
    pages = []
    for page in re.split(r"(?=## NAME\n)", text):
        name = re.match(r"## NAME\n\n([A-Za-z][\w.:-]{1,30})(?:\([0-9]\))?[^\n]* - ([^\n]{10,120})\n", page)
        about = re.search(r"## DESCRIPTION\n\n(.{120,700}\.)\s", page, flags=re.S)
        if name and about:
            pages.append((*name.groups(), about.group(1)))
    tools = [{"type": "function", "function": {"name": "define_word", "description": "Look up a word", "parameters": {
        "type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}}}]
    requests = []
    for name, summary, description in pick(pages, 2 * n, rng):  # answers are short
        source = json.dumps({"definition": f"{summary}. {description}"})
        call = {"id": "call_1", "type": "function", "function": {"name": "define_word", "arguments": json.dumps({"word": name})}}
        messages = [{"role": "user", "content": f"What does {name} do?"}, {"role": "assistant", "content": "", "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "call_1", "content": source}]
        requests.append((CHAT, {"messages": messages, "tools": tools}, -1))
    return requests


def chat(text, n, rng):
    turns = re.findall(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", text, flags=re.S)
    turns = [t for t in turns if not t.startswith("<tool_response>")]
    return [(CHAT, {"messages": [{"role": "user", "content": t}]}, -1) for t in pick(turns, 2 * n, rng)]


KINDS = {"prose": prose, "code": code, "manuals": manuals, "copy": copy, "edit": edit, "summarise": summarise, "chat": chat}


def make_work(arguments):
    with open(arguments.text, encoding="utf-8") as file:
        text = file.read()
    talk = ""
    if arguments.chat:
        with open(arguments.chat, encoding="utf-8") as file:
            talk = file.read()
    work = {}
    for kind in arguments.kinds.split(","):
        if kind not in KINDS:
            sys.exit(f"no kind '{kind}': {', '.join(KINDS)}")
        if kind == "chat" and not talk:
            continue
        work[kind] = KINDS[kind](talk if kind == "chat" else text, arguments.n, random.Random(arguments.seed))
        if not work[kind]:
            sys.exit(f"no text of kind {kind} found in {arguments.text}")
    return work


def body_of(request, seed, most, temperature):
    path, body, wanted = request
    # -1: the model says when it ends, as people have it answer. Elsewhere all write the same number of tokens.
    limit = most if wanted <= 0 else max(16, min(most, wanted))
    return path, dict(body, max_tokens=limit, temperature=temperature, seed=seed, ignore_eos=wanted >= 0, turbo={"timings": True})


# ---- Sums over requests.

class Sums:
    def __init__(self, timings):
        total = lambda key: sum(t.get(key, 0) for t in timings)
        self.tokens = sum(max(0, t["predicted_n"] - 1) for t in timings)
        self.ms = total("predicted_ms")
        self.draft_ms = total("draft_ms")
        self.widths = {}
        for t in timings:
            for width in t["steps_by_rows"]:
                steps, ms = self.widths.get(width["rows"], (0, 0))
                self.widths[width["rows"]] = (steps + width["steps"], ms + width["ms"])
        self.steps = sum(steps for steps, _ in self.widths.values())
        self.step_ms = sum(ms for _, ms in self.widths.values())
        self.drafted_steps = sum(steps for rows, (steps, _) in self.widths.items() if rows > 1)
        self.drafted, self.accepted = total("draft_n"), total("draft_n_accepted")
        depths = [list(t.get("draft_accepted_by_depth", [])) for t in timings]
        self.by_depth = [sum(d[i] for d in depths if i < len(d)) for i in range(max(map(len, depths), default=0))]

    def one_row_ms(self):
        steps, ms = self.widths.get(1, (0, 0))
        return ms / steps if steps else 0


def interval(pairs):
    rng = random.Random(2)
    ratios = sorted(sum(a for a, _ in s) / sum(b for _, b in s) for s in (rng.choices(pairs, k=len(pairs)) for _ in range(2000)))
    return ratios[50], ratios[1949]


def compare(kind, mode, name, plain_timings, timings):
    plain, own = Sums(plain_timings), Sums(timings)
    # Per request: an answer of one token has no decoding time.
    pairs = [(a["predicted_ms"], b["predicted_ms"]) for a, b in zip(plain_timings, timings) if a["predicted_ms"] > 0 and b["predicted_ms"] > 0]
    if not pairs or not own.steps or not plain.one_row_ms():
        sys.exit(f"{kind}: no decoding was timed with {name}")
    low, high = interval(pairs)
    first = plain.one_row_ms()
    row = {"kind": kind, "mode": mode, "drafter": name, "requests": len(pairs), "tokens": own.tokens, "tokens_per_step": own.tokens / own.steps,
           "drafted_steps": own.drafted_steps / own.steps, "accept_rate": own.accepted / own.drafted if own.drafted else 0,
           "by_depth": [d / max(1, own.drafted_steps) for d in own.by_depth], "t1_ms": first, "own_t1_ms": own.one_row_ms(),
           "step_ms": own.step_ms / own.steps, "draft_ms": own.draft_ms / own.steps,
           "steps_by_rows": {rows: {"steps": steps, "ms": ms / steps} for rows, (steps, ms) in sorted(own.widths.items())},
           "ratio": sum(a for a, _ in pairs) / sum(b for _, b in pairs), "low": low, "high": high,
           "bound": own.tokens * first / (own.step_ms + own.draft_ms)}
    row["reaches_bound"] = row["ratio"] >= 0.9 * row["bound"]
    row["never_slower"] = high >= 0.98
    if kind in TASKS and name.split(":")[0] in ("ngram", "phantom"):
        row["task_gain"] = row["ratio"] >= 1.5 if row["bound"] >= 1.7 else None
    return row


HEADER = ("| text | mode | drafter | drafted | tokens/step | accepted | by depth 1, 2, 3, .. | step, T(1) | drafting, T(1) | bound | ratio (95 %) | of bound |\n"
          "|---|---|---|---|---|---|---|---|---|---|---|---|")


def show(row):
    depths = ", ".join(f"{d:.2f}" for d in row["by_depth"][:6] if d >= 0.005) or "-"
    return (f"| {row['kind']} | {row['mode']} | {row['drafter']} | {row['drafted_steps']:.0%} | {row['tokens_per_step']:.2f} | {row['accept_rate']:.0%} | {depths} "
            f"| {row['step_ms'] / row['t1_ms']:.2f} | {row['draft_ms'] / row['t1_ms']:.3f} | {row['bound']:.2f} "
            f"| {row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f}) | {row['ratio'] / row['bound']:.2f} |")


def verdicts(rows):
    place = lambda row: f"{row['drafter']} on {row['kind']}, {row['mode']}"
    far = [r for r in rows if not r["reaches_bound"]]
    slower = [r for r in rows if not r["never_slower"]]
    tasks = [r for r in rows if "task_gain" in r]
    missed = [r for r in tasks if r["task_gain"] is False]
    free = [r for r in tasks if r["task_gain"] is None]
    say = lambda what, failed, detail: print(f"- {what}: " + ("yes" if not failed else "NO: " + "; ".join(f"{place(r)} ({detail(r)})" for r in failed)))
    print()
    say("ratio at least 0.9 of the bound everywhere", far, lambda r: f"{r['ratio']:.2f} of {r['bound']:.2f}")
    say("interval reaches 0.98 everywhere", slower, lambda r: f"{r['low']:.2f} to {r['high']:.2f}")
    if tasks:
        say("at least 1.5 on copy, edit and summarise where the bound is 1.7 or more", missed, lambda r: f"{r['ratio']:.2f}, bound {r['bound']:.2f}")
        if free:
            print("  - bound below 1.7: " + "; ".join(f"{place(r)} ({r['bound']:.2f})" for r in free))
    return bool(far or slower or missed)


# ---- Runs.

def run_kind(servers, work, most, temperature):
    """By server the timings without and with drafts, and how many texts differ."""
    seen, different = {name: ([], []) for name in servers}, 0
    for server in servers.values():
        server.complete(COMPLETIONS, {"prompt": "The", "max_tokens": 16, "turbo": {"timings": True, "drafter": "off"}})  # warm
    for i, request in enumerate(work):
        path, body = body_of(request, i, most, temperature) if len(request) == 3 else request
        plain_body = dict(body, turbo=dict(body["turbo"], drafter="off"))
        for name, server in servers.items() if i % 2 == 0 else reversed(list(servers.items())):
            order = [(0, plain_body), (1, body)]
            texts = []
            for which, sent in order if i % 2 == 0 else reversed(order):
                text, timings = server.complete(path, sent)
                seen[name][which].append(timings)
                texts.append(text)
            different += texts[0] != texts[1]
    return seen, different


def measure(arguments, extra):
    names = arguments.drafters.split(",")
    rows, different = [], 0
    print(f"{arguments.threads} threads, at most {arguments.max_tokens} tokens a request, corpora empty for each line\n\n{HEADER}")
    for kind, work in make_work(arguments).items():
        for temperature in (float(t) for t in arguments.temperatures.split(",")):
            # New servers each time: a corpus learns from one kind alone.
            servers = {name: Server(arguments.binary, arguments.model, arguments.threads, name, extra) for name in names}
            seen, odd = run_kind(servers, work, arguments.max_tokens, temperature)
            for server in servers.values():
                server.stop()
            different += odd
            for name in names:
                rows.append(compare(kind, "greedy" if temperature == 0 else f"t = {temperature}", name, *seen[name]))
                print(show(rows[-1]), flush=True)
    return rows, different


def record(arguments, extra):
    """Whole drafts as the drafter offers them, not as long as pays here: DIR/KIND.DRAFTER.trace."""
    os.makedirs(arguments.record, exist_ok=True)
    for kind, work in make_work(arguments).items():
        for name in arguments.drafters.split(","):
            server = Server(arguments.binary, arguments.model, arguments.threads, name, extra + ["--set", "drafter.adaptive=false", "--log-level", "trace"])
            for i, request in enumerate(work):
                server.complete(*body_of(request, i, arguments.max_tokens, 0))
            server.stop()
            requests = {}
            for found in re.finditer(r"(\S+): round (\{.*\})", server.read_log()):
                requests.setdefault(found.group(1), []).append(json.loads(found.group(2)))
            path = os.path.join(arguments.record, f"{kind}.{name}.trace")
            with open(path, "w", encoding="utf-8") as file:
                for rounds in requests.values():
                    file.write("request\n")
                    for r in rounds:
                        print(r["draft_us"], len(r["parents"]), *r["parents"], len(r["accepted"]), *r["accepted"], file=file)
            n = sum(map(len, requests.values()))
            held = sum(len(r["accepted"]) for rounds in requests.values() for r in rounds)
            print(f"{path}: {len(requests)} requests, {n} rounds, {1 + held / max(1, n):.2f} tokens a round")


def replay(arguments, extra):
    plugins = os.path.join(ROOT, "build/release/tests/perf_plugins") if not arguments.plugins else arguments.plugins
    traces = sorted(glob.glob(os.path.join(arguments.replay, "*.trace")))
    if not traces:
        sys.exit(f"no traces in {arguments.replay}: record them first (--record)")
    folder = tempfile.TemporaryDirectory()
    texts, work = os.path.join(folder.name, "texts"), []
    # The texts that this model writes, found without a drafter: the replay knows them then.
    with open(texts, "w", encoding="utf-8") as file:
        for i in range(arguments.n):
            command = [arguments.binary, "run", "--model", arguments.model, "--threads", str(arguments.threads), "--temperature", "0", "--drafter", "off", "--ignore-eos",
                       "--max-tokens", str(arguments.max_tokens), "--json", *extra, "--prompt", f"Text number {i}: " + "abcdefghij"[i % 10] * 40]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{' '.join(command)}\n{done.stderr}")
            answer = json.loads(done.stdout)
            print(len(answer["prompt_token_ids"]), *answer["prompt_token_ids"], *answer["token_ids"], file=file)
            work.append((COMPLETIONS, {"prompt": answer["prompt_token_ids"], "max_tokens": len(answer["token_ids"]), "temperature": 0, "ignore_eos": True,
                                       "turbo": {"timings": True}}))
    rows, different = [], 0
    print(f"{os.path.basename(arguments.model)}, {arguments.threads} threads, {arguments.max_tokens} tokens a request, recorded acceptance\n\n{HEADER}")
    for kind in sorted({os.path.basename(t).split(".")[0] for t in traces}, key=lambda k: list(KINDS).index(k) if k in KINDS else 99):
        names = {os.path.basename(t).split(".")[1]: os.path.abspath(t) for t in traces if os.path.basename(t).split(".")[0] == kind}
        servers = {}
        for name, trace in names.items():
            words = ["--set", f"plugins.paths=[{os.path.abspath(plugins)}]", "--set", f"drafter.options.trace={trace}", "--set", f"drafter.options.texts={texts}"]
            servers[name] = Server(arguments.binary, arguments.model, arguments.threads, "replay", extra + words)
        seen, odd = run_kind(servers, work, arguments.max_tokens, 0)
        for server in servers.values():
            server.stop()
        different += odd
        for name in names:
            rows.append(compare(kind, "replayed", name, *seen[name]))
            print(show(rows[-1]), flush=True)
    return rows, different


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.path.join(ROOT, "build/release/bin/turbo"))
    parser.add_argument("--model", default=os.path.join(ROOT, "models/turbo-mini-q1.gguf"))
    parser.add_argument("--text", help="prose and manual pages; needed but for --replay")
    parser.add_argument("--chat", help="conversations in ChatML")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--drafters", default="ngram,phantom")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--n", type=int, default=16, help="requests of each kind")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--temperatures", default="0,0.8")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="passed to every server")
    parser.add_argument("--record", metavar="DIR")
    parser.add_argument("--replay", metavar="DIR")
    parser.add_argument("--plugins", metavar="DIR", help="where the replay drafter lies; build turbo_replay_drafter first")
    parser.add_argument("--json", metavar="FILE", help="all figures")
    parser.add_argument("--check", action="store_true", help="fail when a verdict does")
    arguments = parser.parse_args()
    if not arguments.text and not arguments.replay:
        parser.error("--text is needed")
    extra = [word for setting in arguments.set for word in ("--set", setting)]
    if arguments.record:
        return record(arguments, extra)
    rows, different = replay(arguments, extra) if arguments.replay else measure(arguments, extra)
    failed = verdicts(rows)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"threads": arguments.threads, "model": os.path.basename(arguments.model), "rows": rows, "different_texts": different}, file, indent=1)
    if different:
        sys.exit(f"{different} texts differ from plain decoding")
    if failed and arguments.check:
        sys.exit("a verdict failed")


if __name__ == "__main__":
    main()
