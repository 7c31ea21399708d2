"""turbo's commands as a user runs them. Usage: cli_test.py TURBO SOURCE_FOLDER"""
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

TURBO, SOURCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
MINI = os.path.join(SOURCE, "models", "turbo-mini-q1.gguf")
# The hip tier with kernels that run in this process, where the build has it.
FIBER = os.path.join(os.path.dirname(os.path.dirname(TURBO)), "lib", "turbo-fiber", "plugins")
FIBER = FIBER if os.path.exists(os.path.join(FIBER, "arch_rdna2", "plugin.yaml")) else ""


def turbo(*args, stdin="", env=None, cwd=None, timeout=120):
    return subprocess.run([TURBO, *args], input=stdin.encode(), capture_output=True, timeout=timeout, cwd=cwd,
                          env=env if env is not None else {"PATH": os.environ["PATH"]})


def data(result):
    return json.loads(result.stdout)


def with_template(source, target, template):
    """A copy of a model with another chat template, padded to the old one's length so that nothing else moves."""
    content = open(source, "rb").read()
    key = b"tokenizer.chat_template"
    at = content.index(struct.pack("<Q", len(key)) + key) + 8 + len(key) + 4
    (length,) = struct.unpack_from("<Q", content, at)
    assert len(template) <= length
    with open(target, "wb") as file:
        file.write(content[:at + 8] + template.ljust(length) + content[at + 8 + length:])


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
        # The first token came with the prompt.
        self.assertEqual([(width["rows"], width["steps"]) for width in answer["steps_by_rows"]], [(1, 11)])
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

    def test_two_bit_keys_answer_on_every_machine_and_warn_once(self):
        result = turbo("run", "--prompt", "hello", "--profile", "default", "--kv-codec", "tq2", "--max-tokens", "3", "--ignore-eos", "--json",
                       env={"PATH": os.environ["PATH"], "TURBO_CPU_ISA": "scalar"})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(data(result)["token_ids"]), 3)
        self.assertEqual(result.stderr.count(b"keys of 2 bits are for large models"), 1, result.stderr)

    def test_experimental_drafters_say_so_once(self):
        for words in (["--drafter", "self_spec"], ["--drafter", "ngram", "--ssd-enable"]):
            ran = turbo("run", "--prompt", "a", "--max-tokens", "1", *words)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            self.assertEqual(ran.stderr.count(b"is experimental"), 1, ran.stderr)
            self.assertEqual(turbo("plan", *words).stdout.count(b"is experimental"), 1, words)

    def test_a_side_overrides_the_codec_of_both(self):
        for args in (["--kv-codec", "tq4", "--set", "kv.k=q8"], ["--set", "kv.k=q8", "--kv-codec", "tq4"]):
            kv = data(turbo("plan", *args, "--json"))["kv"]
            self.assertEqual((kv["k"], kv["v"]), ("q8", "tq4"))

    def test_plan_and_inspect_say_what_loading_may_add(self):
        told = "before the self-check, which may keep some layers' K in q8"
        planned = turbo("plan", "--kv-codec", "tq3").stdout.decode()
        self.assertRegex(planned, told + r": [0-9]+ bytes a token if it kept every layer's")
        self.assertRegex(planned, r"fits into .* \(the model's context is [0-9]+\)")
        self.assertIn(told, turbo("inspect", MINI, "--kv-codec", "tq3").stdout.decode())
        facts = data(turbo("inspect", MINI, "--kv-codec", "tq3", "--json"))
        kv = data(turbo("plan", "--kv-codec", "tq3", "--json"))["kv"]
        self.assertTrue(kv["self_check_may_promote"] and facts["kv_self_check_may_promote"])
        self.assertEqual(facts["kv_bytes_per_token"], kv["bytes_per_token"])
        self.assertEqual(facts["kv_bytes_per_token_promoted"], kv["bytes_per_token_promoted"])
        self.assertGreater(kv["bytes_per_token_promoted"], kv["bytes_per_token"])
        self.assertEqual(kv["model_context"], facts["context_length"])
        self.assertNotIn("self-check", turbo("plan", "--kv-codec", "tq4").stdout.decode())
        self.assertNotIn("self-check", turbo("inspect", MINI, "--kv-codec", "f16").stdout.decode())

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
        self.assertNotIn(b"looked in", self.refused(2, "run", "--profile", "/no/such.yaml").stderr)
        self.refused(2, "run", "--profile", "no-such-profile")
        self.refused(2, "run", "--prompt", "a", "--kv-codec", "tq9")
        self.refused(2, "serve", "--api-key", "")
        self.refused(2, "run", "--prompt", "a", "--drafter", "no_such_drafter")
        for command in (["plan"], ["run", "--prompt", "a"]):
            # What it would need matters only where there is one.
            self.assertIn(b"drafter 'eagle3': no plugin provides it", self.refused(2, *command, "--drafter", "eagle3").stderr)
            self.assertIn(b"drafter.model is not set", self.refused(2, *command, "--drafter", "standalone").stderr)

    def test_wrong_codec_settings_are_usage_errors_wherever_they_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            def profile(kv):
                path = os.path.join(folder, "p.yaml")
                with open(path, "w") as file:
                    file.write(f"model: {{ path: {MINI} }}\ntiers: [cpu]\nkv: {kv}\n")
                return ["--profile", path]

            settings = (["--kv-codec", "tq9"], ["--set", "kv.k=tq9"], profile("{ v: tq9 }"), ["--kv-codec", "a b"],
                        ["--kv-codec", "tq3", "--set", "kv.options.snks=1"], ["--set", "kv.options.bogus=1"],
                        ["--kv-codec", "tq3", "--set", "kv.options.boundary=many"], ["--kv-codec", "tq3", "--set", "kv.options.prefill=often"],
                        ["--kv-codec", "tq3", "--set", "kv.options.center=maybe"], ["--kv-codec", "tq3", "--set", "kv.options.sinks=many"],
                        ["--kv-codec", "tq3", "--set", "kv.options.scale=huge"], ["--kv-codec", "tq3", "--set", "kv.options.promote_k=zzz"],
                        ["--kv-codec", "tq3", "--set", "kv.k_options.boundary=1"], ["--kv-codec", "tq3", "--set", "kv.v_options.snks=1"])
            for given in settings:
                for command in (["plan"], ["run", "--prompt", "a"], ["inspect", MINI], ["serve", "--port", "0"]):
                    self.refused(2, *command, *given)
            for kv in ("{ options: { bogus: 1 } }", "{ codec: tq3, options: { boundary: many } }", "{ codec: tq3, options: { promote_v: zzz } }",
                       "{ codec: tq3, v_options: { center: off } }", "{ codek: tq3 }"):
                self.refused(2, "plan", *profile(kv))
                self.refused(2, "run", "--prompt", "a", *profile(kv))
        self.refused(2, "perplexity", "--file", os.path.join(SOURCE, "README.md"), "--max-tokens", "128", "--window", "64", "--against", "tq9")

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

    def test_profiles_with_a_drafter_give_the_same_text(self):
        prompt = ["--prompt", "one two three four one two three four one two", "--max-tokens", "60", "--temperature", "0", "--ignore-eos", "--json"]
        plain = data(turbo("run", *prompt))
        self.assertIsNone(plain["speculation"])
        for profile in ("cpu-phantom", "cpu-standalone", "rx6700xt-phantom", "rx6700xt-ngram"):
            # Whether drafts pay is for the machine to say, which may be busy; here they are wanted in any case.
            drafted = data(turbo("run", "--profile", profile, "--set", "drafter.adaptive=false", *prompt))
            self.assertEqual(drafted["text"], plain["text"], profile)
            self.assertGreater(drafted["speculation"]["accepted"], 0, profile)
            widths = drafted["steps_by_rows"]
            self.assertEqual(sum(width["steps"] * (width["rows"] - 1) for width in widths), drafted["speculation"]["drafted"], profile)
            self.assertGreater(drafted["speculation"]["draft_ms"], 0, profile)

    def test_a_path_on_the_wrong_instruction_set_says_so(self):
        result = self.refused(2, "run", "--prompt", "a", env={"PATH": os.environ["PATH"], "TURBO_CPU_ISA": "sse9"})
        self.assertIn(b"TURBO_CPU_ISA", result.stderr)


    def test_a_wrong_variable_is_named(self):
        for command, option, value in ((["run", "--prompt", "a"], "MAX_TOKENS", "abc"), (["run", "--prompt", "a"], "TEMPERATURE", "hot"),
                                       (["run"], "PROMPT_IDS", "one"), (["run"], "PROMPT_FILE", "/no/such.txt"),
                                       (["run", "--prompt", "a"], "THREADS", "abc"), (["run", "--prompt", "a"], "SET", "nothing"),
                                       (["perplexity", "--file", os.path.join(SOURCE, "README.md")], "COUNT", "some"),
                                       (["bench"], "REPS", "many"), (["bench"], "GEN_TOKENS", "1"),
                                       (["bench"], "PROMPT_FILE", "/no/such.txt"), (["tokenize"], "FILE", "/no/such.txt")):
            stderr = self.refused(2, *command, env={"PATH": os.environ["PATH"], "TURBO_" + option: value}).stderr.decode()
            self.assertIn("TURBO_" + option, stderr)
            self.assertNotIn("--" + option.lower().replace("_", "-"), stderr)
        both = self.refused(2, "run", "--prompt", "a", env={"PATH": os.environ["PATH"], "TURBO_PROMPT_FILE": "f"}).stderr
        self.assertIn(b"--prompt and TURBO_PROMPT_FILE: give one", both)
        # The command line outranks the variable, in messages too.
        self.assertIn(b"--seed", self.refused(2, "run", "--prompt", "a", "--seed", "x",
                                              env={"PATH": os.environ["PATH"], "TURBO_SEED": "1"}).stderr)

    def test_a_wrong_instruction_set_is_one_sentence(self):
        stderr = self.refused(2, "run", "--prompt", "a", env={"PATH": os.environ["PATH"], "TURBO_CPU_ISA": "foo"}).stderr.decode()
        self.assertEqual(stderr.count("TURBO_CPU_ISA: expected scalar, avx2, avx512 but found 'foo'"), 1, stderr)
        self.assertNotIn("plugin's folder", stderr)

    def test_bench_beyond_the_context(self):
        for option, value in (("--depth", "1000000"), ("--prompt-tokens", "100000"), ("--gen-tokens", "100000")):
            stderr = self.refused(2, "bench", option, value).stderr
            self.assertIn(option.encode() + b": ", stderr)
            self.assertIn(b"--context", stderr.split(b"hint: ")[1])

    def test_threads(self):
        for value in ("0", "1025", "abc"):
            self.assertIn(b"from 1 to 1024, or auto", self.refused(2, "run", "--prompt", "a", "--threads", value).stderr)
        self.assertEqual(turbo("plan", "--threads", "1024").returncode, 0)

    def test_inspect_settings(self):
        for args in (["--threads", "abc"], ["--context", "99999999999"], ["--set", "bogus=1"], ["--profile", "nope"], ["--kv-codec", "zzz"]):
            self.refused(2, "inspect", MINI, *args)

    def test_a_refused_manifest_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "mine"))
            with open(os.path.join(folder, "mine", "plugin.yaml"), "w") as file:
                file.write("nosuch: 1\n")
            stderr = self.refused(2, "run", "--prompt", "a", "--set", f"plugins.paths=[{folder}]", "--set", "sampler.name=mine").stderr
        error = stderr[stderr.index(b"turbo: error: "):].decode()
        self.assertIn("was refused: ", error)
        self.assertIn(folder, error)
        self.assertNotIn("put the plugin", error)

    def test_detokenize_negative(self):
        self.assertIn(b"token -1 is outside the vocabulary", self.refused(2, "detokenize", "5", "-1").stderr)

    def test_input_files(self):
        for command in (["run", "--prompt-file"], ["perplexity", "--file"], ["tokenize", "--file"], ["bench", "--prompt-file"]):
            self.assertIn(command[1].encode(), self.refused(2, *command, "/no/such.txt").stderr)

    def test_errors_are_objects_too(self):
        for args in (["nosuch"], ["help", "nosuch"], ["help", "run", "extra"], ["run", "--nosuch"]):
            self.assertEqual(data(self.refused(2, *args, "--json"))["error"]["code"], "invalid_argument", args)
            self.assertTrue(data(self.refused(2, *args, env={"PATH": os.environ["PATH"], "TURBO_JSON": "1"})), args)

    def test_help_takes_one_word(self):
        for args in (["help", "run", "extra"], ["help", "flags", "extra"], ["--help", "nosuch"], ["--version", "extra"]):
            self.assertIn(args[-1].encode(), self.refused(2, *args).stderr)

    def test_detokenize_nothing(self):
        for stdin in ("", " \n"):
            self.assertIn(b"no token ids", self.refused(2, "detokenize", stdin=stdin).stderr)
        self.refused(2, "detokenize", "")
        self.assertEqual(turbo("detokenize", stdin="[]").stdout, b"\n")  # an empty list is what tokenize makes of no text

    def test_a_pool_beyond_memory(self):
        tokens = self.refused(2, "run", "--prompt", "a", "--set", "kv.pool_tokens=4000000000").stderr
        self.assertRegex(tokens, rb"error: kv.pool_tokens: 4000000000 tokens need [0-9.]+ \w+ of KV cache but [0-9.]+ \w+ is all")
        size = self.refused(2, "run", "--prompt", "a", "--set", "kv.pool_bytes=1000TiB").stderr
        self.assertRegex(size, rb"error: kv.pool_bytes: expected at most [0-9.]+ \w+, all the memory there is, but found 1000.0 TiB")
        capped = turbo("run", "--prompt", "a", "--max-tokens", "1", "--set", "kv.pool_bytes=200MiB")
        self.assertEqual(capped.returncode, 0, capped.stderr)
        self.assertIn(b"kv.pool_bytes", capped.stderr)

    # The same words and the same code, before weights are read.
    def refused_by_plan_and_start(self, *settings):
        told = [self.refused(2, *command, *settings).stderr.split(b"turbo: error: ")[1]
                for command in (["plan"], ["run", "--prompt", "a", "--max-tokens", "1"], ["serve", "--port", "0"])]
        self.assertEqual(told[0], told[1])
        self.assertEqual(told[0], told[2])
        self.assertIn(b"hint: ", told[0])
        return told[0]

    def test_pools_that_cannot_be_are_refused_by_plan_too(self):
        self.assertIn(b"granted by kv.pool_bytes", self.refused_by_plan_and_start("--set", "kv.pool_bytes=1MiB"))
        for kv in ("kv.pool_bytes=1000TiB", "kv.pool_tokens=4000000000"):
            self.refused_by_plan_and_start("--set", kv)
        planned = turbo("plan", "--set", "kv.pool_bytes=1MiB").stdout
        self.assertIn(b"one sequence of 64 tokens fits into 1.0 MiB", planned)

    def test_what_a_drafter_refuses_is_refused_by_plan_too(self):
        said = self.refused_by_plan_and_start("--drafter", "self_spec", "--set", "drafter.options.layers=99")
        self.assertIn(b"expected fewer layers than the target's 10 but found 99", said)
        said = self.refused_by_plan_and_start("--drafter", "self_spec", "--set", "drafter.steps=63", "--set", "drafter.topk=2")
        self.assertIn(b"steps 63 with topk 2", said)
        self.refused_by_plan_and_start("--drafter", "ngram", "--set", "drafter.options.corpus=/no/such/folder/corpus")
        nano = os.path.join(SOURCE, "models", "turbo-nano-q1.gguf")
        with tempfile.TemporaryDirectory() as folder:
            ids = os.path.join(folder, "ids")
            with open(ids, "w") as file:
                file.write("1, 2, x")
            for drafter in (["self_spec"], ["standalone", "--set", "drafter.model=" + nano]):
                self.assertIn(b"'x'", self.refused_by_plan_and_start("--drafter", *drafter, "--set", "drafter.token_map=" + ids))

    def test_a_draft_model_with_a_broken_tokenizer_is_named(self):
        with open(os.path.join(SOURCE, "models", "turbo-nano-q1.gguf"), "rb") as file:
            content = bytearray(file.read())
        key = b"tokenizer.ggml.merges"
        at = content.index(struct.pack("<Q", len(key)) + key) + 8 + len(key) + 4 + 4 + 8
        (length,) = struct.unpack_from("<Q", content, at)
        content[at + 8:at + 8 + length] = b"x" * length
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "broken.gguf")
            with open(model, "wb") as file:
                file.write(content)
            said = self.refused(3, "plan", "--drafter", "standalone", "--set", "drafter.model=" + model).stderr
        self.assertIn(b"drafter.model: broken.gguf: tokenizer: merge 0", said)
        self.assertIn(b"hint: drafter.model must be a model of the target's own family", said)

    def test_plan_tells_what_a_drafter_says_at_its_start(self):
        planned = turbo("plan", "--drafter", "ngram", "--ssd-enable", "--threads", str(os.cpu_count()))
        self.assertEqual(planned.returncode, 0, planned.stderr)
        self.assertEqual(planned.stdout.count(b"go through unchanged, none is made ahead"), 1, planned.stdout)
        for command in (["plan"], ["run", "--prompt", "a", "--max-tokens", "1"]):
            result = turbo(*command, "--drafter", "merge", "--set", "drafter.over=ngram,self_spec", "--ssd-enable", "--threads", "1")
            self.assertEqual(result.returncode, 0, result.stderr)
            told = result.stdout + result.stderr
            self.assertEqual(told.count(b"drafts of 'merge' go through unchanged, none is made ahead"), 1, told)
            if len(os.sched_getaffinity(0)) > 1:
                self.assertIn(b"'self_spec' cannot draft for a text that may come to be", told)
            self.assertEqual(told.count(b"is experimental"), 2, told)

    def test_addresses(self):
        for host in ("not a host", "http://localhost", "a" * 300):
            self.assertIn(b"server.host: expected", self.refused(2, "serve", "--host", host).stderr)
        foreign = self.refused(1, "serve", "--host", "192.0.2.1").stderr  # a network for examples, no machine's own
        self.assertIn(b"address", foreign.split(b"hint: ")[1])
        self.assertNotIn(b"stop the program", foreign)
        self.assertIn(b"hint: ", self.refused(2, "serve", "--host", "no-such-host.invalid").stderr)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            self.assertIn(b"another server.port", self.refused(1, "serve", "--port", port).stderr)

    def test_a_required_key_is_not_lost(self):
        for key in (["--api-key", "secret"], []):
            env = {"PATH": os.environ["PATH"]} | ({} if key else {"TURBO_API_KEY": "secret"})
            refusal = self.refused(2, "serve", *key, "--set", "server.api_keys=[]", env=env)
            self.assertIn(b"server.api_keys", refusal.stderr)
            self.assertIn(key[0].encode() if key else b"TURBO_API_KEY", refusal.stderr)

    def test_templates_are_part_of_the_model(self):
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "m.gguf")
            for template, code in ((b"{% for i in range(1000000000000) %}x{% endfor %}", 3), (b"{{ ", 3), (b"{{ 1/0 }}", 3),
                                   (b"{{ nosuch.field }}", 3), (b"{{ nosuch() }}", 3), (b"{{ raise_exception('no') }}", 2)):
                with_template(MINI, model, template)
                self.refused(code, "run", "--model", model, "--chat", "--prompt", "a")


class DoctorReport(unittest.TestCase):
    """What the owner of a card sends: complete on every machine, whatever works there."""

    def report(self, *args, code=0, **env):
        result = turbo("doctor", "--report", "--quiet", "--json", *args, env={"PATH": os.environ["PATH"], **env}, timeout=600)
        self.assertEqual(result.returncode, code, result.stderr)
        return data(result)

    def test_sections_and_nothing_private(self):
        with tempfile.TemporaryDirectory() as home:
            plugins = os.path.join(home, "plugins", "broken")
            os.makedirs(plugins)
            with open(os.path.join(plugins, "plugin.yaml"), "w") as file:
                file.write("nosuch: 1\n")
            report = self.report(HOME=home, TURBO_PLUGIN_PATH=os.path.dirname(plugins), TURBO_SERVER_KEY="hunter2", TURBO_TIER="cpu",
                                 TURBO_KV_CODEC="q8", HSA_OVERRIDE_GFX_VERSION="10.3.0")
            text = json.dumps(report)
            self.assertNotIn(home, text)
        self.assertNotIn("hunter2", text)
        if len(socket.gethostname()) > 3:
            self.assertNotIn(socket.gethostname(), text)
        self.assertEqual(list(report)[:2], ["report", "schema"])
        for section in ("turbo", "system", "processor", "displays", "driver", "device_files", "runtimes", "variables", "hip_plugins", "hip_tier",
                        "self_test", "bench", "faults"):
            self.assertIn(section, report)
        self.assertEqual(report["faults"], [])
        self.assertEqual(report["variables"]["HSA_OVERRIDE_GFX_VERSION"], "10.3.0")
        self.assertEqual(report["variables"]["TURBO_SERVER_KEY"], "(set, not shown)")
        self.assertTrue(any("~/plugins/broken" in row["path"] and row["state"] == "refused" for row in report["hip_plugins"]))
        if not os.path.exists("/dev/kfd"):
            self.assertIn("required tier hip cannot be used", report["hip_tier"]["error"])
            self.assertTrue(report["self_test"].startswith("not reached: "))
            self.assertTrue(report["bench"].startswith("not run: "))
            self.assertEqual(report["device_files"]["nodes"][0], {"path": "/dev/kfd", "state": "not there"})

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, check in (("r.json", lambda text: json.loads(text)["turbo"]), ("r.txt", lambda text: self.assertIn("\nhip_tier:\n", text))):
                path = os.path.join(folder, name)
                result = turbo("doctor", "--report", path, timeout=600)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(result.stdout, b"")
                self.assertIn(name.encode(), result.stderr)
                check(open(path).read())
            for wrong in (folder, os.path.join(folder, "no", "such.txt"), "/dev/full"):
                result = turbo("doctor", "--report", wrong)
                self.assertEqual(result.returncode, 1, wrong)
                self.assertIn(b"turbo: error: ", result.stderr)
        self.assertEqual(turbo("doctor", "file").returncode, 2)

    def test_a_wrong_profile_is_part_of_the_report(self):
        report = self.report("--profile", "no-such-profile")
        self.assertIn("no-such-profile", report["hip_tier"]["error"])
        self.assertIn("error", report["hip_plugins"])

    @unittest.skipUnless(FIBER, "the hip tier is not built over fibers")
    def test_a_tier_that_works(self):
        # The plugins as they are installed, but for the code of the device: both tiers in one manifest.
        installed = os.path.join(os.path.dirname(os.path.dirname(FIBER)), "turbo", "plugins")
        with tempfile.TemporaryDirectory() as folder:
            for name in os.listdir(FIBER):
                shutil.copytree(os.path.join(installed, name), os.path.join(folder, name))
                library = f"libturbo_{name}_hip.so"
                if not os.path.exists(os.path.join(folder, name, library)):
                    self.skipTest("the hip tier is built over fibers alone")
                shutil.copy(os.path.join(FIBER, name, library), os.path.join(folder, name, library))
            report = self.report(TURBO_PLUGIN_PATH=folder)
        self.assertEqual(report["hip_tier"]["tier"], "hip")
        self.assertEqual(report["self_test"], "passed")
        self.assertTrue(any(row["component"] == "arch_pack rdna2" and row["score"] > 0 for row in report["hip_plugins"]))
        for run in report["bench"]:
            self.assertGreater(run["hip"]["generated_per_second"], 0)
            self.assertGreater(run["cpu"]["generated_per_second"], 0)
            self.assertTrue(run["same_ids"], run)
        self.assertEqual(report["faults"], [])

    @unittest.skipUnless(FIBER, "the hip tier is not built over fibers")
    def test_a_device_that_fails(self):
        report = self.report(TURBO_PLUGIN_PATH=FIBER, TURBO_FIBER_FAIL="launch:1")
        self.assertIn("injected failure", report["hip_tier"]["error"])
        self.assertIn("injected failure", report["self_test"])
        none = self.report(TURBO_PLUGIN_PATH=FIBER, TURBO_FIBER_DEVICES="0")
        self.assertIn("no device", none["self_test"])


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
    def test_one_token_has_no_rate(self):
        self.assertIn(b"1 generated, length]", turbo("run", "--prompt", "a", "--max-tokens", "1").stderr)
        self.assertRegex(turbo("run", "--prompt", "a", "--max-tokens", "3", "--ignore-eos").stderr, rb"3 generated at [0-9.]+/s")

    def test_inspect_counts_what_is_asked(self):
        plain = data(turbo("inspect", MINI, "--json"))
        f32 = data(turbo("inspect", MINI, "--json", "--context", "512", "--kv-codec", "f32"))
        self.assertEqual(f32["kv_bytes_per_token"], 2 * plain["kv_bytes_per_token"])
        self.assertEqual([row["context"] for row in f32["memory_at_context"]], [512])
        weights = plain["memory_at_context"][0]["bytes"] - 2048 * plain["kv_bytes_per_token"]
        self.assertEqual(f32["memory_at_context"][0]["bytes"], weights + 512 * f32["kv_bytes_per_token"])
        self.assertIn(b"at context 512: about", turbo("inspect", MINI, "--context", "512").stdout)

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

    def test_bench_draws_as_it_is_told(self):
        options = ("--prompt-tokens", "0", "--gen-tokens", "4", "--reps", "1")
        drawn = data(turbo("bench", *options, "--temperature", "0.7", "--top-k", "20", "--top-p", "0.8", "--json"))
        self.assertEqual(drawn["sampling"], {"temperature": 0.7, "top_k": 20, "top_p": 0.8})
        self.assertEqual([row["test"] for row in drawn["results"]], ["tg4"])
        self.assertEqual(data(turbo("bench", *options, "--json"))["sampling"]["temperature"], 0)
        self.assertEqual(turbo("bench", *options, "--temperature", "3").returncode, 2)
        self.assertEqual(turbo("bench", *options, "--top-p", "-1").returncode, 2)

    def test_bench_measures_the_machine_and_verify_steps(self):
        options = ("--prompt-tokens", "0", "--gen-tokens", "4", "--reps", "1", "--roofline", "--verify", "2,4", "--depth", "0,70")
        bench = data(turbo("bench", *options, "--json"))
        machine = bench["roofline"]
        self.assertGreater(machine["read_gb_s"], 0.5)
        self.assertGreater(machine["read_gb_s_one_thread"], 0.5)
        self.assertEqual(machine["int8_gmac_s"] > 0, bool(machine["int8_instruction"]))
        for row in bench["results"]:
            self.assertGreater(row["bandwidth_percent"], 0)
            self.assertAlmostEqual(row["bandwidth_percent"], 100 * row["bandwidth_gb_s"] / machine["read_gb_s"], places=6)
        self.assertEqual([verify["depth"] for verify in bench["verify"]], [0, 70])
        for verify in bench["verify"]:
            self.assertEqual([step["rows"] for step in verify["steps"]], [1, 2, 4])
            self.assertEqual(verify["steps"][0]["relative"], 1)
            self.assertTrue(all(step["ms"] > 0 for step in verify["steps"]))
        shown = turbo("bench", *options).stdout.decode()
        self.assertRegex(shown, r"machine: [0-9.]+ GB/s read by")
        self.assertRegex(shown, r"tg4 .*MB/token, [0-9.]+ GB/s \([0-9]+ % of")
        self.assertRegex(shown, r"verify@d70 +1 row .*4 rows [0-9.]+ ms \([0-9.]+x\)")
        self.assertEqual(turbo("bench", "--verify", "65").returncode, 2)

    def test_a_full_disk_is_an_error_and_never_an_abort(self):
        with open("/dev/full", "wb") as full:
            for args in (["run", "--prompt", "a", "--max-tokens", "2", "--quiet"], ["plan"], ["plan", "--json"], ["tokenize", "--text", "a"]):
                self.assertEqual(subprocess.run([TURBO, *args], stdout=full, stderr=full, timeout=120).returncode, 1, args)
            self.assertEqual(subprocess.run([TURBO, "run", "--prompt", "a", "--max-tokens", "2"], stdout=subprocess.DEVNULL, stderr=full,
                                            timeout=120).returncode, 0)
            for args in (["--help"], ["--version"], ["run", "--help"], ["help", "run"], ["help", "flags"], ["nosuch", "--json"]):
                self.assertNotIn(subprocess.run([TURBO, *args], stdout=full, stderr=subprocess.DEVNULL, timeout=120).returncode, (0, -6), args)

    def test_help_fits(self):
        for args in (["--help"], ["run", "--help"], ["help", "flags"], ["--version"]):
            result = turbo(*args)
            self.assertEqual(result.returncode, 0)
            self.assertTrue(result.stdout)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=2)
