#!/usr/bin/env python3
"""Closed-loop load on an OpenAI-compatible server: C clients, each sending its next request when the last is answered.

    load_client.py --url http://127.0.0.1:30000 --concurrency 1,4,8 --prompt-tokens 128 --gen-tokens 64 --requests 2

Prints one line for each concurrency: tokens per second over the whole run, time to first token and time between
tokens as the client sees them (p50 / p99). Prompts are token ids, different in every request, so that no prefix cache
helps; --shared N gives all prompts the same first N ids instead. --check compares every answer with the same request
sent alone (greedy), which must be equal. Requests that fail are counted, left out of the figures, and make the exit
status 1. Needs nothing but Python's own library.
"""
import argparse
import asyncio
import json
import sys
import time
from urllib.parse import urlsplit


class Failed(Exception):
    pass


async def stream(host, port, body):
    """One streamed completion: (time to first token, gaps, tokens, text)."""
    reader, writer = await asyncio.open_connection(host, port)
    payload = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
    sent = last = time.perf_counter()
    writer.write(head.encode() + payload)
    first, gaps, text, tokens = None, [], [], 0
    try:
        status = (await reader.readline()).split()
        if len(status) < 2 or status[1] != b"200":
            raise Failed((b" ".join(status) + b" " + await reader.read(2000)).decode(errors="replace"))
        while True:
            line = await reader.readline()
            if not line:
                raise Failed("the stream ended early")
            if not line.startswith(b"data: "):
                continue
            data = line[6:].strip()
            if data == b"[DONE]":
                break
            event = json.loads(data)
            if "error" in event:
                raise Failed(json.dumps(event["error"]))
            if event.get("usage"):
                tokens = event["usage"]["completion_tokens"]
            if not event.get("choices") or not event["choices"][0].get("text"):
                continue
            now = time.perf_counter()
            text.append(event["choices"][0]["text"])
            if first is None:
                first = now - sent
            else:
                gaps.append(now - last)
            last = now
    finally:
        writer.close()
    return first or 0.0, gaps, tokens, "".join(text)


def quantile(values, share):
    if not values:
        return 0.0
    values = sorted(values)
    return values[max(0, min(len(values) - 1, int(share * len(values) + 0.999999) - 1))]


async def load(args, host, port, concurrency):
    def body(client, index):
        seed = client * 1000003 + index * 7919
        ids = [(seed + i * 31) % args.vocab for i in range(args.prompt_tokens)]
        ids[: args.shared] = [(i * 17) % args.vocab for i in range(min(args.shared, args.prompt_tokens))]
        return {
            "model": "any", "prompt": ids, "max_tokens": args.gen_tokens, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}, "ignore_eos": True, "cache_prompt": args.shared > 0,
        }

    results, texts, failures = [], {}, []

    async def client(c):
        for i in range(args.requests):
            try:
                results.append(await stream(host, port, body(c, i)))
                texts[c, i] = results[-1][3]
            except (Failed, OSError) as failure:
                failures.append(str(failure))

    begin = time.perf_counter()
    await asyncio.gather(*(client(c) for c in range(concurrency)))
    seconds = time.perf_counter() - begin
    for failure in failures[:3]:
        print(f"load_client.py: {failure}", file=sys.stderr)
    if not results:
        raise Failed("no request was answered")
    if args.check:
        for (c, i), text in texts.items():
            alone = (await stream(host, port, body(c, i)))[3]
            if alone != text:
                raise Failed(f"client {c} request {i}: alone {alone!r}, under load {text!r}")
    firsts = [r[0] * 1e3 for r in results]
    gaps = [g * 1e3 for r in results for g in r[1]]
    return {
        "concurrency": concurrency, "requests": len(results), "failed": len(failures), "tokens_per_second": sum(r[2] for r in results) / seconds,
        "first_token_ms": {"p50": quantile(firsts, 0.5), "p99": quantile(firsts, 0.99)},
        "inter_token_ms": {"p50": quantile(gaps, 0.5), "p99": quantile(gaps, 0.99)},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:30000")
    parser.add_argument("--concurrency", default="1,4,8,16,64")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--gen-tokens", type=int, default=64)
    parser.add_argument("--requests", type=int, default=2, help="of each client")
    parser.add_argument("--shared", type=int, default=0, help="leading ids that all prompts share")
    parser.add_argument("--vocab", type=int, default=2000, help="ids are below this")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    address, failed = urlsplit(args.url), 0
    for concurrency in (int(c) for c in args.concurrency.split(",")):
        try:
            r = asyncio.run(load(args, address.hostname, address.port, concurrency))
        except (Failed, OSError) as failure:
            print(f"load_client.py: {failure}", file=sys.stderr)
            return 1
        failed += r["failed"]
        if args.json:
            print(json.dumps(r), flush=True)
        else:
            print(f"c{concurrency:<4} {r['tokens_per_second']:8.1f} tokens/s   first {r['first_token_ms']['p50']:7.0f} / {r['first_token_ms']['p99']:7.0f} ms"
                  f"   between {r['inter_token_ms']['p50']:6.1f} / {r['inter_token_ms']['p99']:6.1f} ms (p50 / p99)"
                  + (f"   {r['failed']} failed" if r["failed"] else ""), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
