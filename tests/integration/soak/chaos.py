"""Single blows to a running server, and what must be true afterwards. Standard library of Python only.

    chaos.py TURBO MODEL

Kill and restart under load, suspend and resume, the model file replaced and cut short while it is mapped, a full disk
under a saved prefix, a memory limit, a pool far too small. Prints one line for each.
"""
import http.client
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

TURBO, MODEL = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
PROMPTS = [[(i * 37 + k) % 2000 for i in range(40 + 30 * k)] for k in range(6)]


class Server:
    def __init__(self, *settings, model=MODEL, port=0, preexec=None):
        arguments = [TURBO, "serve", "--model", model, "--set", f"server.port={port}", "--set", "model.context=1024"]
        for setting in settings:
            arguments += ["--set", setting]
        self.process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, preexec_fn=preexec)
        self.log = []
        for line in self.process.stderr:
            self.log.append(line)
            if match := re.search(r"listening on http://127\.0\.0\.1:(\d+)", line):
                self.port = int(match.group(1))
                threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True).start()
                return
        raise AssertionError("did not start: " + "".join(self.log))

    def call(self, path, body=None, method=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method or ("POST" if body is not None else "GET"), path, json.dumps(body) if body is not None else None,
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, json.loads(text) if text.startswith(("{", "[")) else text

    def complete(self, prompt, n=40):
        status, answer = self.call("/v1/completions", {"prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": True})
        if status == 503 and answer["error"]["code"] in ("loading", "draining"):
            raise ConnectionError(answer["error"]["code"])
        assert status == 200, (status, answer)
        return answer["choices"][0]["text"]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, "the drain was not clean"

    def end(self):
        self.process.kill()
        self.process.wait()


def alone():
    server = Server()
    texts = [server.complete(p) for p in PROMPTS]
    server.stop()
    return texts


class Load:
    """Clients that go on until told to stop; failures of the connection are counted, wrong text is remembered."""

    def __init__(self, server, expected, n=6):
        self.server, self.expected, self.stopped, self.done, self.broken, self.wrong = server, expected, False, 0, 0, None
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(n)]
        for thread in self.threads:
            thread.start()

    def run(self, i):
        while not self.stopped:
            try:
                text = self.server.complete(PROMPTS[i])
            except (OSError, http.client.HTTPException):
                self.broken += 1
                time.sleep(0.05)
                continue
            except AssertionError as error:
                self.wrong = error
                return
            self.done += 1
            if text != self.expected[i]:
                self.wrong = f"{text!r} instead of {self.expected[i]!r}"

    def stop(self):
        self.stopped = True
        for thread in self.threads:
            thread.join()
        assert not self.wrong, self.wrong


def kill_and_restart(expected):
    server = Server()
    load = Load(server, expected)
    kills = 0
    for _ in range(3):
        time.sleep(1)
        server.end()
        kills += 1
        fresh = Server(port=server.port)
        server.process, server.log = fresh.process, fresh.log
    time.sleep(1)
    load.stop()
    server.stop()
    return f"{kills} kills on one port, {load.done} right answers, {load.broken} connections refused or cut"


def suspend(expected):
    server = Server()
    load = Load(server, expected)
    for _ in range(3):
        time.sleep(0.5)
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        server.process.send_signal(signal.SIGCONT)
    load.stop()
    assert load.broken == 0, "a connection was cut"
    server.stop()
    return f"3 stops of 1.5 s, {load.done} right answers, no connection cut"


def model_file(expected):
    with tempfile.TemporaryDirectory() as folder:
        model, other = os.path.join(folder, "m.gguf"), os.path.join(folder, "other")
        shutil.copy(MODEL, model)
        shutil.copy(MODEL, other)
        server = Server(f"server.prefix_dir={folder}", model=model)
        os.replace(other, model)  # another file under the same name
        assert [server.complete(p) for p in PROMPTS] == expected
        with open(model, "r+b") as file:
            file.truncate(1000)
        assert [server.complete(p) for p in PROMPTS] == expected
        server.stop()
        shutil.copy(MODEL, model)
        server = Server(f"server.prefix_dir={folder}", model=model)
        with open(model, "r+b") as file:  # the mapped file itself
            file.truncate(1000)
        assert [server.complete(p) for p in PROMPTS] == expected
        status, answer = server.call("/prefix/save", {"filename": "p", "prompt": PROMPTS[5]})
        assert status >= 400, answer  # it cannot say which model this was
        assert [server.complete(p) for p in PROMPTS] == expected
        server.stop()
    return "replaced and cut to 1000 bytes while mapped: answers stay right, saving is refused"


def full_disk(expected):
    with tempfile.TemporaryDirectory() as folder:
        server = Server(f"server.prefix_dir={folder}")
        assert server.complete(PROMPTS[5]) == expected[5]
        assert server.call("/prefix/save", {"filename": "p", "prompt": PROMPTS[5]})[0] == 200
        before = os.path.getsize(os.path.join(folder, "p"))
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (before // 2, resource.RLIM_INFINITY))
        status, answer = server.call("/prefix/save", {"filename": "p", "prompt": PROMPTS[5]})
        assert status == 507, (status, answer)
        assert os.listdir(folder) == ["p"] and os.path.getsize(os.path.join(folder, "p")) == before
        assert [server.complete(p) for p in PROMPTS] == expected
        server.stop()
        server = Server(f"server.prefix_dir={folder}")
        status, answer = server.call("/prefix/restore", {"filename": "p"})
        assert status == 200 and answer["n_restored"] == len(PROMPTS[5]) // 64 * 64, answer
        status, answer = server.call("/v1/completions", {"prompt": PROMPTS[5], "max_tokens": 40, "temperature": 0, "ignore_eos": True})
        assert answer["choices"][0]["text"] == expected[5] and answer["usage"]["prompt_tokens_details"]["cached_tokens"] == answer_tokens(PROMPTS[5])
        server.stop()
    return "507, the old file is whole and serves after a restart, no temporary file stays"


def answer_tokens(prompt):
    return (len(prompt) - 1) // 64 * 64


def memory_limit(expected):
    limit = 700 << 20  # of address space
    server = Server("kv.pool_tokens=2048", preexec=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    load = Load(server, expected)
    time.sleep(2)
    load.stop()
    server.stop()
    wanting = subprocess.run([TURBO, "serve", "--model", MODEL, "--set", "server.port=0", "--set", "kv.pool_tokens=2000000"], capture_output=True,
                             text=True, timeout=60, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    assert wanting.returncode not in (0, -6, -9, -11) and "hint:" in wanting.stderr, (wanting.returncode, wanting.stderr[-400:])
    return f"{load.done} right answers within 700 MiB of address space; a pool beyond it is refused with code {wanting.returncode}"


def tiny_pool(expected):
    server = Server("kv.pool_tokens=512", "model.context=448")
    load = Load(server, expected)
    time.sleep(3)
    load.stop()
    metrics = server.call("/metrics")[1]
    preempted = re.search(r"^turbo_preemptions_total (\d+)", metrics, re.M).group(1)
    server.stop()
    return f"pool of 8 blocks, 6 clients: {load.done} right answers, {preempted} preemptions"


def main():
    expected = alone()
    for blow in (kill_and_restart, suspend, model_file, full_disk, memory_limit, tiny_pool):
        try:
            print(f"{blow.__name__:<18} {blow(expected)}", flush=True)
        except AssertionError as error:
            print(f"{blow.__name__}: {error}", file=sys.stderr)
            sys.exit(1)


if __name__ == "__main__":
    main()
