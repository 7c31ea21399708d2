"""turbo's commands as a user runs them. Usage: cli_test.py TURBO SOURCE_FOLDER"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TURBO, SOURCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
MINI = os.path.join(SOURCE, "models", "turbo-mini-q1.gguf")


def turbo(*args, stdin="", env=None, cwd=None, timeout=120):
    return subprocess.run([TURBO, *args], input=stdin.encode(), capture_output=True, timeout=timeout, cwd=cwd,
                          env=env if env is not None else {"PATH": os.environ["PATH"]})


def data(result):
    return json.loads(result.stdout)


class Run(unittest.TestCase):
    def test_greedy_text_and_json_fields(self):
        result = turbo("run", "--prompt", "The git commit command records changes to the repository. ", "--temperature", "0",
                       "--max-tokens", "12", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        answer = data(result)
        self.assertTrue(answer["text"].startswith(" The git commit command can be used to"))
        self.assertEqual(answer["finish_reason"], "length")
        self.assertEqual(answer["usage"], {"prompt_tokens": 11, "completion_tokens": 12})
        self.assertEqual(len(answer["token_ids"]), 12)
        for field in ("load_ms", "prompt_ms", "prompt_per_second", "predicted_ms", "predicted_per_second", "ttft_ms"):
            self.assertIn(field, answer["timings"])
        self.assertIsNone(answer["speculation"])
        memory = answer["memory"]
        # 10 layers, 2 kv heads of 128, keys and values, two bytes each.
        self.assertEqual(memory["kv_bytes_per_token"], 10 * 2 * 128 * 2 * 2)
        self.assertEqual(memory["kv_pool_bytes"] % memory["kv_bytes_per_token"], 0)
        self.assertEqual(answer["resolved"]["tier"], "cpu")

    def test_chat_ids_stop_and_seed(self):
        chat = turbo("run", "--chat", "--prompt", "What is 12 + 7?", "--temperature", "0", "--json")
        self.assertIn("12 + 7 = 19", data(chat)["text"])
        self.assertEqual(data(chat)["finish_reason"], "stop")
        ids = turbo("run", "--prompt-ids", "463,1947,2306", "--max-tokens", "4", "--temperature", "0", "--json")
        self.assertEqual(data(ids)["prompt_token_ids"], [463, 1947, 2306])
        stopped = turbo("run", "--prompt", "The git commit command records changes to the repository. ", "--temperature", "0",
                        "--stop", "can be", "--json")
        self.assertEqual(data(stopped)["text"], " The git commit command ")
        self.assertEqual(data(stopped)["finish_reason"], "stop")
        sampled = [data(turbo("run", "--prompt", "Once", "--seed", "5", "--max-tokens", "24", "--json"))["token_ids"] for _ in range(2)]
        self.assertEqual(sampled[0], sampled[1])

    def test_every_instruction_set_gives_the_same_text(self):
        texts = set()
        flags = open("/proc/cpuinfo").read()
        isas = ["scalar"] + (["avx2"] if "avx2" in flags else []) + (["avx512"] if "avx512_vnni" in flags else [])
        for isa in isas:
            for threads in ("1", "2"):
                result = turbo("run", "--prompt", "Debian is", "--temperature", "0", "--max-tokens", "16", "--quiet", "--threads", threads,
                               env={"PATH": os.environ["PATH"], "TURBO_CPU_ISA": isa})
                self.assertEqual(result.returncode, 0, result.stderr)
                texts.add(result.stdout)
        self.assertEqual(len(texts), 1)

    def test_interrupt_ends_with_130(self):
        process = subprocess.Popen([TURBO, "run", "--prompt", "a", "--max-tokens", "2000", "--ignore-eos"], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL)
        process.stdout.read(20)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=20), 130)
        process.stdout.close()


class Refusals(unittest.TestCase):
    def refused(self, code, *args, **kwargs):
        result = turbo(*args, **kwargs)
        self.assertEqual(result.returncode, code, (args, result.stderr))
        self.assertIn(b"turbo: error: ", result.stderr)
        return result

    def test_usage(self):
        self.assertIn(b"--prompt", self.refused(2, "run", "--promt", "x").stderr)
        self.assertIn(b"perplexity", self.refused(2, "perplexty").stderr)
        self.refused(2, "run", "hello")
        self.refused(2, "run", "--prompt", "a", "--prompt-ids", "1")
        self.refused(2, "run", "--prompt", "a", "--temperature", "nan")
        self.refused(2, "run", "--prompt", "a", "--set", "kv.kodec=f16")
        self.refused(2, "run", "--profile", "no-such-profile")
        self.refused(2, "run", "--prompt", "a", "--kv-codec", "tq9")
        self.refused(2, "serve", "--api-key", "")
        self.refused(2, "run", "--prompt", "a", "--drafter", "no_such_drafter")

    def test_models(self):
        self.refused(3, "run", "--model", "/no/such.gguf", "--prompt", "a")
        self.refused(3, "run", "--model", "/etc/passwd", "--prompt", "a")
        with tempfile.TemporaryDirectory() as folder:
            cut = os.path.join(folder, "cut.gguf")
            with open(MINI, "rb") as source, open(cut, "wb") as target:
                target.write(source.read(5_000_000))
            self.refused(3, "run", "--model", cut, "--prompt", "a")
        self.assertEqual(data(self.refused(3, "run", "--model", "/no/such.gguf", "--prompt", "a", "--json"))["error"]["code"], "not_found")

    def test_tiers(self):
        plan = turbo("plan", "--profile", "rx6700xt", "--json")
        self.assertEqual(plan.returncode, 0, plan.stderr)
        resolved = data(plan)
        self.assertEqual(resolved["tier"], "cpu")
        lost = {(slot["slot"], rejected["tier"]) for slot in resolved["slots"] for rejected in slot["rejected"]}
        self.assertIn(("arch_pack", "hip"), lost)
        self.assertIn(("arch_pack", "generic"), lost)
        self.assertIn(b"hip", self.refused(4, "plan", "--profile", "rx6700xt", "--set", "require=hip").stderr)
        self.refused(4, "run", "--tier", "hip", "--prompt", "a", "--json")

    def test_a_path_on_the_wrong_instruction_set_says_so(self):
        result = self.refused(4, "run", "--prompt", "a", env={"PATH": os.environ["PATH"], "TURBO_CPU_ISA": "sse9"})
        self.assertIn(b"TURBO_CPU_ISA", result.stderr)


class Surroundings(unittest.TestCase):
    def test_no_environment_no_home_read_only_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o555)
            result = turbo("run", "--prompt", "a", "--max-tokens", "2", "--quiet", env={}, cwd=folder)
            os.chmod(folder, 0o755)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_paths_beyond_ascii(self):
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "ein Modell – größer 模型.gguf")
            shutil.copy(MINI, model)
            result = turbo("run", "--model", model, "--prompt", "a", "--max-tokens", "2", "--quiet")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_environment_twins(self):
        result = turbo("run", "--prompt", "a", "--json", env={"PATH": os.environ["PATH"], "TURBO_MAX_TOKENS": "3", "TURBO_KV_CODEC": "f32"})
        self.assertEqual(data(result)["usage"]["completion_tokens"], 3)
        self.assertEqual(data(result)["memory"]["kv_bytes_per_token"], 10 * 2 * 128 * 2 * 4)


class Tools(unittest.TestCase):
    def test_tokenize_round_trip(self):
        text = "Hello 🌍 naïve <|im_end|> x"
        ids = data(turbo("tokenize", "--text", text, "--json"))["ids"]
        self.assertIn(16376, ids)
        self.assertNotIn(16376, data(turbo("tokenize", "--text", text, "--no-special", "--json"))["ids"])
        self.assertEqual(data(turbo("detokenize", *map(str, ids), "--json"))["text"], text)
        self.assertEqual(turbo("detokenize", stdin=json.dumps(ids)).stdout.decode(), text + "\n")

    def test_inspect_plugins_doctor(self):
        facts = data(turbo("inspect", MINI, "--json"))
        self.assertEqual(facts["architecture"], "qwen3")
        names = {(row["kind"], row["name"]) for row in data(turbo("plugins", "list", "--json"))}
        self.assertIn(("weight_format", "q1_0"), names)
        self.assertEqual(turbo("plugins", "explain").returncode, 0)
        self.assertTrue(any(row["check"] == "cpu" for row in data(turbo("doctor", "--json"))))

    def test_perplexity_and_bench(self):
        text = os.path.join(SOURCE, "docs", "profiles.md")
        result = data(turbo("perplexity", "--file", text, "--window", "128", "--max-tokens", "512", "--against", "f32", "--json"))
        self.assertEqual(result["scored"], 4 * 63)
        self.assertGreater(result["perplexity"], 1)
        self.assertLess(result["kl_mean"], 2e-3)
        self.assertGreater(result["same_top_share"], 0.95)
        bench = data(turbo("bench", "--prompt-tokens", "16", "--gen-tokens", "4", "--reps", "1", "--batch", "1,2", "--json"))
        self.assertEqual([row["test"] for row in bench["results"]], ["pp16", "tg4", "tg4 x2"])
        self.assertTrue(all(row["tokens_per_second"]["median"] > 0 for row in bench["results"]))

    def test_a_full_disk_is_an_error_and_never_an_abort(self):
        with open("/dev/full", "wb") as full:
            for args in (["run", "--prompt", "a", "--max-tokens", "2", "--quiet"], ["plan"], ["plan", "--json"], ["tokenize", "--text", "a"]):
                self.assertEqual(subprocess.run([TURBO, *args], stdout=full, stderr=full, timeout=120).returncode, 1, args)
            self.assertEqual(subprocess.run([TURBO, "run", "--prompt", "a", "--max-tokens", "2"], stdout=subprocess.DEVNULL, stderr=full,
                                            timeout=120).returncode, 0)

    def test_help_fits(self):
        for args in (["--help"], ["run", "--help"], ["help", "flags"], ["--version"]):
            result = turbo(*args)
            self.assertEqual(result.returncode, 0)
            self.assertTrue(result.stdout)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=2)
