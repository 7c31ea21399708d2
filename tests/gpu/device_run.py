#!/usr/bin/env python3
"""Everything that a real device must show, in one run: texts equal to the CPU tier's, every KV codec, every drafter equal to
none, the server under load, then speed. For a build of the hip tier on a machine with its device.

    device_run.py --turbo build/nvidia/bin/turbo [--hip-test build/release/tests/hip_test] [--models FOLDER] [--parts text,codecs,...]

Parts: test (needs --hip-test), text, codecs, drafters, server, speed, depth, ghosts. Speed needs models of the real shapes,
which are made in --models by tests/perf/make_model.py where they are missing. Prints a line for each check and the benchmark's
own lines; the exit status is 1 when a check failed. Needs nothing but Python's own library.
"""
import argparse
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, "models", "turbo-mini-q1.gguf")
PROMPT = "The git commit command"
CODECS = ["f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "q8", "q4", "tq2", "tq3", "tq4", "rq3_planar", "rq4_planar", "rq3_iso", "rq4_iso"]
NANO = os.path.join(ROOT, "models", "turbo-nano-q1.gguf")
DRAFTERS = {"ngram": [], "phantom": [], "self_spec": [], "first": ["--set", "drafter.over=[ngram,self_spec]"], "merge": ["--set", "drafter.over=[ngram,phantom]"],
            "standalone": ["--set", f"drafter.model={NANO}"], "saguaro": ["--set", "drafter.over=[standalone]", "--set", f"drafter.model={NANO}"]}
SHAPES = ["1.7B", "4B", "8B"]
failures = []


def note(good, what):
    print(("ok      " if good else "FAILED  ") + what, flush=True)
    if not good:
        failures.append(what)


def turbo(options, *arguments, seconds=180):
    done = subprocess.run([options.turbo, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=seconds)
    if done.returncode != 0:
        return None, done.stderr[-2000:]
    return done.stdout, done.stderr


def text_of(options, *more, tier="hip", tokens=200):
    return turbo(options, "run", "--quiet", "--tier", tier, "--model", MODEL, "--prompt", PROMPT, "--max-tokens", str(tokens), "--ignore-eos", *more)


def run_test(options):
    if not options.hip_test:
        return print("left out: no --hip-test")
    done = subprocess.run([options.hip_test], cwd=ROOT, capture_output=True, text=True, timeout=900)
    print("\n".join(done.stdout.splitlines()[-12:]))
    note(done.returncode == 0, "golden ids, logits, drafts, prefixes, batches (hip_test)")


def run_text(options):
    for temperature in ("0", "0.8"):
        more = ("--temperature", temperature, "--seed", "7")
        here, error = text_of(options, *more)
        if here is None:
            note(False, f"temperature {temperature}: {error}")
            continue
        again, _ = text_of(options, *more)
        note(here == again, f"temperature {temperature}: the same text twice")
        if temperature == "0":
            there, _ = text_of(options, *more, tier="cpu")
            note(here == there, "greedy: the text of the CPU tier, 200 tokens")


def run_codecs(options):
    for codec in CODECS:
        here, error = text_of(options, "--temperature", "0", "--kv-codec", codec)
        if here is None:
            note(False, f"{codec}: {error}")
            continue
        there, _ = text_of(options, "--temperature", "0", "--kv-codec", codec, tier="cpu")
        same = len(os.path.commonprefix([here, there or ""]))
        note(len(here) > 100, f"{codec}: 200 tokens; as the CPU tier's for {same} of {len(here)} characters")


def run_drafters(options):
    for temperature in ("0", "0.8"):
        more = ("--temperature", temperature, "--seed", "7")
        plain, error = text_of(options, *more, "--drafter", "off", tokens=300)
        if plain is None:
            return note(False, f"no drafter: {error}")
        for drafter, settings in DRAFTERS.items():
            with_it, error = text_of(options, *more, "--drafter", drafter, *settings, tokens=300)
            note(with_it == plain, f"{drafter} at temperature {temperature}: the text without a drafter" + ("" if with_it else f": {error}"))


def run_server(options):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = open("/dev/null", "w", encoding="utf-8")
    server = subprocess.Popen([options.turbo, "serve", "--tier", "hip", "--model", MODEL, "--port", str(port)], cwd=ROOT, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    for _ in range(300):
        try:
            urllib.request.urlopen(url + "/health", timeout=1).read()
            break
        except OSError:
            time.sleep(0.1)
    done = subprocess.run([sys.executable, os.path.join(ROOT, "tests/perf/load_client.py"), "--url", url, "--concurrency", "1,4,16", "--prompt-tokens", "64",
                           "--gen-tokens", "64", "--requests", "4", "--check"], capture_output=True, text=True, timeout=300)
    print(done.stdout.strip())
    note(done.returncode == 0, "server with 1, 4 and 16 clients: every answer as when asked alone" + done.stderr[-500:])
    server.send_signal(signal.SIGTERM)
    note(server.wait(60) == 0, "server ends by itself when told to")


def model_of(options, shape):
    path = os.path.join(options.models, f"g-{shape}.gguf")
    if not os.path.exists(path):
        subprocess.run([sys.executable, os.path.join(ROOT, "tests/perf/make_model.py"), shape, path], check=True)
    return path


def bench(options, shape, *arguments):
    out, error = turbo(options, "bench", "--quiet", "--tier", "hip", "--model", model_of(options, shape), *arguments, seconds=400)
    print(f"-- {shape} {' '.join(arguments)}")
    print((out or "").rstrip(), flush=True)
    note(out is not None, f"bench of {shape}" + ("" if out else f": {error}"))


def run_speed(options):
    for shape in SHAPES:
        for steps in ("true", "false"):
            bench(options, shape, "--prompt-tokens", "512,2048", "--gen-tokens", "128", "--verify", "1,2,4,8,16", "--reps", "3", "--context", "4096",
                  "--set", f"compute.step_kernel={steps}")


def run_depth(options):
    for shape in SHAPES[:1] if options.quick else SHAPES:
        for codec in ("f16", "tq4"):
            bench(options, shape, "--kv-codec", codec, "--prompt-tokens", "0", "--gen-tokens", "64", "--depth", "0,4096,32000", "--reps", "2", "--context", "32768")


def run_ghosts(options):
    for slots in (1, 2, 4, 8):
        bench(options, "1.7B", "--drafter", "phantom", "--draft-tokens", str(slots + 1), "--prompt-tokens", "0", "--gen-tokens", "128", "--reps", "2", "--context", "4096")


PARTS = {"test": run_test, "text": run_text, "codecs": run_codecs, "drafters": run_drafters, "server": run_server, "speed": run_speed, "depth": run_depth,
         "ghosts": run_ghosts}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turbo", required=True)
    parser.add_argument("--hip-test")
    parser.add_argument("--models", default="/tmp")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="depth at 1.7B alone")
    options = parser.parse_args()
    os.makedirs(options.models, exist_ok=True)
    options.turbo = os.path.abspath(options.turbo)
    if options.hip_test:
        options.hip_test = os.path.abspath(options.hip_test)
    for part in options.parts.split(","):
        print(f"## {part}", flush=True)
        began = time.time()
        PARTS[part](options)
        print(f"   {time.time() - began:.0f} s", flush=True)
    print("all checks passed" if not failures else f"{len(failures)} checks failed: " + "; ".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
