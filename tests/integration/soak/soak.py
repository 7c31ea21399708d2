"""Soak and chaos on a real server: clients of every kind at once, and nobody's text, blocks or memory may suffer.

    soak.py TURBO --model FILE [--seconds 1800] [--streams 64] [--seed 1] [--pool-tokens 4096]

Kinds of client: plain and streamed requests with shared beginnings; ones that leave at a random moment, by close or
reset; ones that cancel by id; ones that read slowly or never; ones that send a byte at a time, a head and nothing
more, rubbish, too much, or several requests in one go; ones with priorities and salts. Every whole answer must equal
the answer that the same request got alone. At the end no KV block may be held, the idle self-check must have found
no leak, and resident memory must be flat over the second half. Exits 0 when all of it holds.
"""
import argparse
import asyncio
import json
import os
import random
import re
import signal
import struct
import socket
import subprocess
import sys
import threading
import time


def fail(message):
    print(f"soak.py: {message}", file=sys.stderr)
    sys.exit(1)


class Server:
    def __init__(self, args):
        self.log = open(args.log, "w") if args.log else None
        self.process = subprocess.Popen(
            [args.turbo, "serve", "--model", args.model, "--port", "0", "--set", f"kv.pool_tokens={args.pool_tokens}",
             "--set", "model.context=1024", "--set", "engine.max_running=16", "--set", "server.max_queue=2000",
             "--set", "server.max_connections=2000", "--set", "server.idle_timeout_ms=3s", "--threads", str(args.threads),
             "--set", "server.expose_slots=true"],
            stderr=subprocess.PIPE, text=True)
        self.port = None
        for line in self.process.stderr:
            if match := re.search(r"listening on http://127\.0\.0\.1:(\d+)", line):
                self.port = int(match.group(1))
                break
        if not self.port:
            fail("the server did not start")
        threading.Thread(target=self.keep_log, daemon=True).start()

    def keep_log(self):
        for line in self.process.stderr:
            if self.log:
                self.log.write(line)

    def rss(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def request_bytes(path, body, extra=""):
    payload = json.dumps(body).encode() if body is not None else b""
    verb = "POST" if body is not None else "GET"
    return f"{verb} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{extra}Content-Length: {len(payload)}\r\n\r\n".encode() + payload


async def read_head(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), head


async def read_response(reader):
    status, head = await read_head(reader)
    if b"transfer-encoding: chunked" in head.lower():
        body = b""
        while True:
            size = int(await reader.readline(), 16)
            body += await reader.readexactly(size)
            await reader.readexactly(2)
            if size == 0:
                return status, body
    length = next(int(l.split(b":")[1]) for l in head.lower().split(b"\r\n") if l.startswith(b"content-length"))
    return status, await reader.readexactly(length)


def stream_text(body):
    events = [line[6:] for line in body.decode().split("\n") if line.startswith("data: ")]
    if events[-1] != "[DONE]":
        raise AssertionError(f"the stream did not end well: {events[-1][:200]}")
    return "".join(json.loads(e)["choices"][0]["text"] for e in events[:-1])


class Soak:
    def __init__(self, args, server):
        self.args, self.server, self.rng = args, server, random.Random(args.seed)
        self.expected, self.counts, self.slots_seen = {}, {}, 0
        self.bodies = [self.make_body(i) for i in range(24)]
        self.end = 0.0

    def make_body(self, i):
        beginning = [[(k * 37 + b * 101) % 2000 for k in range(300)] for b in range(3)][i % 3][: self.rng.randrange(20, 300)]
        body = {"prompt": beginning + [self.rng.randrange(2000) for _ in range(self.rng.randrange(1, 60))],
                "max_tokens": self.rng.randrange(1, 60), "ignore_eos": True}
        body |= {"temperature": 0} if i % 2 else {"temperature": 0.9, "top_p": 0.9, "seed": i}
        if i % 5 == 0:
            body["logit_bias"] = {"11": -100, "13": 5}
        return body

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    async def connect(self):
        return await asyncio.open_connection("127.0.0.1", self.server.port, limit=1 << 22)

    async def ask(self, body, extra=None, stream=False):
        reader, writer = await self.connect()
        try:
            writer.write(request_bytes("/v1/completions", {**body, "stream": stream, **(extra or {})}))
            return await asyncio.wait_for(read_response(reader), 120)
        finally:
            writer.close()

    async def alone(self):
        for i, body in enumerate(self.bodies):
            status, answer = await self.ask(body)
            if status != 200:
                fail(f"request {i} alone: {status} {answer[:300]}")
            self.expected[i] = json.loads(answer)["choices"][0]["text"]

    def check(self, i, text):
        if text != self.expected[i]:
            raise AssertionError(f"request {i}: alone {self.expected[i]!r}, in the mix {text!r}")

    # ---- kinds of client ----

    async def whole(self, i):
        own = {"priority": self.rng.randrange(-2, 3)}
        if self.rng.random() < 0.2:
            own["cache_salt"] = f"tenant{self.rng.randrange(3)}"
        status, answer = await self.ask(self.bodies[i], {"turbo": own, "user": f"u{i % 4}"})
        if status != 200:
            raise AssertionError(f"{status} {answer[:300]}")
        self.check(i, json.loads(answer)["choices"][0]["text"])

    async def streamed(self, i):
        status, answer = await self.ask(self.bodies[i], stream=True)
        if status != 200:
            raise AssertionError(f"{status} {answer[:300]}")
        self.check(i, stream_text(answer))

    async def leaves(self, i):
        reader, writer = await self.connect()
        writer.write(request_bytes("/v1/completions", {**self.bodies[i], "max_tokens": 600, "stream": self.rng.random() < 0.7}))
        await asyncio.sleep(self.rng.random() ** 3 * 0.5)
        if self.rng.random() < 0.5:  # reset instead of a polite end
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    async def cancels(self, i):
        reader, writer = await self.connect()
        writer.write(request_bytes("/v1/completions", {**self.bodies[i], "max_tokens": 600, "stream": True}))
        await read_head(reader)
        while b"data: " not in (line := await asyncio.wait_for(reader.readline(), 60)):
            pass
        own = json.loads(line[6:])["id"]
        r2, w2 = await self.connect()
        w2.write(request_bytes("/v1/cancel", {"id": own}))
        status, answer = await asyncio.wait_for(read_response(r2), 30)
        if status != 200 or "cancelled" not in json.loads(answer):
            raise AssertionError(f"cancel: {status} {answer[:200]}")
        w2.close()
        await asyncio.wait_for(reader.read(), 30)
        writer.close()

    async def never_reads(self, i):
        reader, writer = await self.connect()
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        writer.transport.pause_reading()
        writer.write(request_bytes("/v1/completions", {**self.bodies[i], "max_tokens": 600, "stream": True, "logprobs": 5}))
        await asyncio.sleep(self.rng.random() * 4)
        writer.transport.abort()

    async def slowloris(self, _):
        reader, writer = await self.connect()
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n")
        try:
            for _ in range(self.rng.randrange(1, 6)):
                writer.write(b"X-A: b\r\n")
                await writer.drain()
                await asyncio.sleep(self.rng.random())
        except OSError:
            pass
        writer.close()

    async def byte_by_byte(self, i):
        reader, writer = await self.connect()
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request_bytes("/tokenize", {"content": "grüße, 世界 🙂"}):
            writer.write(bytes([byte]))
            await writer.drain()
        status, answer = await asyncio.wait_for(read_response(reader), 30)
        if status != 200 or not json.loads(answer)["tokens"]:
            raise AssertionError(f"{status} {answer[:200]}")
        writer.close()

    async def rubbish(self, _):
        reader, writer = await self.connect()
        writer.write(self.rng.choice([b"\x00" * 100, b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n",
                                      b"A" * 70000, request_bytes("/v1/completions", {"prompt": [1], "max_tokens": -1})]))
        try:
            await asyncio.wait_for(reader.read(400), 10)
        except (OSError, asyncio.TimeoutError):
            pass
        writer.close()

    async def too_much(self, _):
        reader, writer = await self.connect()
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 8000000\r\n\r\n")
        try:
            for _ in range(40):
                writer.write(b"[" * 200000)
                await writer.drain()
            await asyncio.wait_for(reader.read(400), 10)
        except (OSError, asyncio.TimeoutError):
            pass
        writer.close()

    async def pipelines(self, i):
        reader, writer = await self.connect()
        j = self.rng.randrange(len(self.bodies))
        writer.write(request_bytes("/v1/completions", self.bodies[i]) + request_bytes("/health", None) + request_bytes("/v1/completions", self.bodies[j]))
        first = await asyncio.wait_for(read_response(reader), 120)
        health = await asyncio.wait_for(read_response(reader), 120)
        second = await asyncio.wait_for(read_response(reader), 120)
        writer.close()
        self.check(i, json.loads(first[1])["choices"][0]["text"])
        self.check(j, json.loads(second[1])["choices"][0]["text"])
        if health[0] != 200:
            raise AssertionError(f"health: {health}")

    async def looks(self, _):
        for path in ("/metrics", "/slots", "/props", "/v1/models"):
            reader, writer = await self.connect()
            writer.write(request_bytes(path, None))
            status, answer = await asyncio.wait_for(read_response(reader), 30)
            writer.close()
            if status != 200:
                raise AssertionError(f"{path}: {status} {answer[:200]}")
            if path == "/slots":
                self.slots_seen = max(self.slots_seen, len(json.loads(answer)))

    async def client(self):
        kinds = [self.whole] * 6 + [self.streamed] * 6 + [self.leaves] * 6 + [self.cancels] * 2 + [self.pipelines, self.byte_by_byte,
                 self.rubbish, self.too_much, self.never_reads, self.slowloris, self.looks]
        while time.monotonic() < self.end:
            kind = self.rng.choice(kinds)
            await kind(self.rng.randrange(len(self.bodies)))
            self.count(kind.__name__)

    async def watch(self):
        while time.monotonic() < self.end:
            self.memory.append(self.server.rss())
            await asyncio.sleep(min(5, self.args.seconds / 40))

    async def metric(self, name):
        reader, writer = await self.connect()
        writer.write(request_bytes("/metrics", None))
        _, text = await read_response(reader)
        writer.close()
        return sum(float(line.split()[-1]) for line in text.decode().splitlines() if line.startswith(name) and line[len(name)] in " {")

    async def run(self):
        await self.alone()
        self.end, self.memory = time.monotonic() + self.args.seconds, []
        await asyncio.gather(self.watch(), *(self.client() for _ in range(self.args.streams)))
        for _ in range(100):
            if await self.metric("turbo_kv_blocks_used") == 0 and await self.metric("turbo_requests_running") == 0:
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.5)  # the idle self-check
        held, leaks = await self.metric("turbo_kv_blocks_used"), await self.metric("turbo_kv_block_leaks_total")
        if held or leaks:
            raise AssertionError(f"{held} blocks are still held, {leaks} idle self-checks failed")
        await self.alone_again()
        half = self.memory[len(self.memory) // 2:]
        quarter = max(1, len(half) // 4)
        early, late = max(half[:quarter]), max(half[-quarter:])
        if self.args.seconds >= 60 and late > early + (16 << 20):
            raise AssertionError(f"memory grew from {early >> 20} to {late >> 20} MiB over the second half")
        print(json.dumps({"seconds": self.args.seconds, "streams": self.args.streams, "done": self.counts, "most_slots": self.slots_seen,
                          "preemptions": await self.metric("turbo_preemptions_total"),
                          "cached_prompt_tokens": await self.metric("turbo_cached_prompt_tokens_total"),
                          "cancelled": await self.metric("turbo_cancelled_total"),
                          "rss_mib": {"first": self.memory[0] >> 20, "half": early >> 20, "last": late >> 20}}))

    async def alone_again(self):
        for i, body in enumerate(self.bodies):
            _, answer = await self.ask(body)
            self.check(i, json.loads(answer)["choices"][0]["text"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("turbo")
    parser.add_argument("--model", required=True)
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pool-tokens", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log")
    args = parser.parse_args()
    args.turbo = os.path.abspath(args.turbo)
    server = Server(args)
    try:
        asyncio.run(Soak(args, server).run())
    except AssertionError as wrong:
        server.process.kill()
        fail(str(wrong))
    code = server.stop()
    if code != 0:
        fail(f"the server ended with {code}")


if __name__ == "__main__":
    main()
