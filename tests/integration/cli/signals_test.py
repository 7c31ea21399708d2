"""What SIGINT and SIGTERM end, and when. Usage: signals_test.py TURBO SOURCE_FOLDER"""
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
import unittest

TURBO = os.path.abspath(sys.argv[1])
ENDLESS = ["--max-tokens", "2000", "--ignore-eos"]


class Terminal:
    """turbo run on a terminal of its own, as a person uses it."""

    def __init__(self, *args):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(TURBO, [TURBO, "run", *args], {"PATH": os.environ["PATH"], "TERM": "dumb"})
        self.seen = ""

    def read_until(self, done, seconds=30):
        end = time.monotonic() + seconds
        while not done(self.seen):
            if time.monotonic() > end or not select.select([self.fd], [], [], end - time.monotonic())[0]:
                raise AssertionError(f"not seen in time; the terminal shows {self.seen!r}")
            try:
                self.seen += os.read(self.fd, 4096).decode(errors="replace")
            except OSError:  # the other side has gone
                raise AssertionError(f"ended early; the terminal shows {self.seen!r}") from None

    def type(self, text):
        self.seen = ""
        os.write(self.fd, text.encode())

    def send(self, number):
        os.kill(self.pid, number)

    def exit_code(self, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    os.read(self.fd, 4096)
                except OSError:
                    pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)
        raise AssertionError("still running")


class Chat(unittest.TestCase):
    def answering(self):
        terminal = Terminal(*ENDLESS)
        terminal.read_until(lambda seen: "> " in seen)
        terminal.type("Count to five.\r")
        terminal.read_until(lambda seen: len(seen) > 60)  # more than the line's echo
        return terminal

    def test_an_interrupt_ends_the_answer_only(self):
        terminal = self.answering()
        terminal.send(signal.SIGINT)
        terminal.read_until(lambda seen: "cancelled]" in seen and seen.rstrip(" ").endswith(">"))
        terminal.type("/exit\r")
        self.assertEqual(terminal.exit_code(), 0)

    def test_a_termination_ends_the_program(self):
        terminal = self.answering()
        terminal.send(signal.SIGTERM)
        self.assertEqual(terminal.exit_code(), 130)

    def test_either_ends_the_program_where_a_line_is_awaited(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            terminal = Terminal()
            terminal.read_until(lambda seen: "> " in seen)
            terminal.send(number)
            self.assertEqual(terminal.exit_code(), 130)


class OneShot(unittest.TestCase):
    def start(self, *args, **streams):
        return subprocess.Popen([TURBO, "run", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **streams)

    def test_one_signal_is_enough_while_the_prompt_is_read(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            for options in ([], ["--json"]):
                process = self.start(*options, stdin=subprocess.PIPE)  # and nothing ever comes
                time.sleep(1.5)
                process.send_signal(number)
                try:
                    self.assertEqual(process.wait(timeout=10), 130)
                    if options:
                        self.assertEqual(json.loads(process.stdout.read())["error"]["code"], "cancelled")
                finally:
                    process.kill()
                    process.communicate()

    def test_an_interrupted_run_gives_what_it_has_as_json(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.start("--prompt", "Once", "--json", *ENDLESS, stdin=subprocess.DEVNULL)
            time.sleep(2)
            process.send_signal(number)
            out, _ = process.communicate(timeout=20)
            self.assertEqual(process.returncode, 130)
            answer = json.loads(out)
            self.assertEqual(answer["finish_reason"], "cancelled")
            self.assertEqual(answer["usage"]["completion_tokens"], len(answer["token_ids"]))
            self.assertGreater(len(answer["token_ids"]), 0)
            self.assertTrue(answer["text"])

    def test_what_was_streamed_is_kept(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.start("--prompt", "a", *ENDLESS, stdin=subprocess.DEVNULL)
            self.assertEqual(len(process.stdout.read(20)), 20)
            process.send_signal(number)
            process.communicate(timeout=20)
            self.assertEqual(process.returncode, 130)


class OtherCommands(unittest.TestCase):
    def ended(self, seconds, *args):
        for number in (signal.SIGINT, signal.SIGTERM):
            for options in ([], ["--json"]):
                process = subprocess.Popen([TURBO, *args, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                try:
                    time.sleep(seconds)
                    process.send_signal(number)
                    begin = time.monotonic()
                    self.assertEqual(process.wait(timeout=10), 130, (args, options))
                    self.assertLess(time.monotonic() - begin, 5)
                    out, err = process.stdout.read(), process.stderr.read()
                    self.assertIn(b"turbo: error: interrupted", err)
                    if options:
                        self.assertEqual(json.loads(out)["error"]["code"], "cancelled")
                finally:
                    process.kill()
                    process.communicate()

    def test_while_input_is_read(self):
        self.ended(1, "tokenize")
        self.ended(1, "detokenize")
        self.ended(2, "perplexity", "--file", "-")

    def test_while_it_works_or_loads(self):
        self.ended(3, "bench", "--reps", "1000")
        self.ended(0.5, "bench", "--reps", "1000")
        self.ended(3, "perplexity", "--file", os.path.join(sys.argv[2], "docs", "profiles.md"), "--window", "16", "--against", "f32")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=2)
