#!/usr/bin/env python3
"""Time to the first token of each turn of a growing conversation, with the prefix cache and without.

    chat_turns.py --url http://127.0.0.1:30000 --turns 20 --user-tokens 40 --answer-tokens 60

Each turn sends the whole history so far as token ids, as a chat client does, and reads a streamed answer. Both runs
must give the same text (greedy). Needs nothing but Python's own library.
"""
import argparse
import asyncio
import json
import sys
from urllib.parse import urlsplit

from load_client import Failed, stream


async def tokens_of(host, port, text):
    reader, writer = await asyncio.open_connection(host, port)
    payload = json.dumps({"content": text}).encode()
    writer.write(f"POST /tokenize HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {len(payload)}\r\n\r\n".encode() + payload)
    answer = await reader.read()
    writer.close()
    return json.loads(answer.split(b"\r\n\r\n", 1)[1])["tokens"]


async def conversation(args, host, port, cached):
    history, firsts, texts = [(i * 19) % args.vocab for i in range(args.system_tokens)], [], []
    for turn in range(args.turns):
        history += [(turn * 1009 + i * 31) % args.vocab for i in range(args.user_tokens)]
        body = {"model": "any", "prompt": history, "max_tokens": args.answer_tokens, "temperature": 0, "stream": True, "ignore_eos": True,
                "stream_options": {"include_usage": True}, "cache_prompt": cached}
        first, _, _, text = await stream(host, port, body)
        firsts.append((len(history), first * 1e3))
        texts.append(text)
        history += await tokens_of(host, port, text)
    return firsts, texts


async def measure(args, host, port):
    without, plain = await conversation(args, host, port, False)
    with_cache, reused = await conversation(args, host, port, True)
    if plain != reused:
        raise Failed("the prefix cache changed an answer")
    print("turn  prompt tokens  without cache  with cache")
    for turn, ((length, slow), (_, fast)) in enumerate(zip(without, with_cache), 1):
        print(f"{turn:4}  {length:13}  {slow:10.0f} ms  {fast:7.0f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:30000")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--system-tokens", type=int, default=100)
    parser.add_argument("--user-tokens", type=int, default=40)
    parser.add_argument("--answer-tokens", type=int, default=60)
    parser.add_argument("--vocab", type=int, default=2000, help="ids are below this")
    args = parser.parse_args()
    address = urlsplit(args.url)
    try:
        asyncio.run(measure(args, address.hostname, address.port))
    except (Failed, OSError) as failure:
        print(f"chat_turns.py: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
