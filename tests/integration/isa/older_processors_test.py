#!/usr/bin/env python3
"""older_processors_test.py QEMU TURBO SOURCE: turbo on processors without AVX-512, without AVX2 and without AVX, emulated.

An instruction that such a processor lacks ends the process (SIGILL). The kernels chosen must be those of the processor, and
the negative log-likelihood of a text must be equal to the last bit on all of them, which compares every logit row.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

QEMU, TURBO, SOURCE = sys.argv[1:4]
MODEL = os.path.join(SOURCE, "models", "turbo-nano-q1.gguf")
TEXT = "The history of the town begins with a river, a mill and a quarrel over who may use the water. " * 3
ENVIRONMENT = {"PATH": os.environ.get("PATH", ""), "HOME": os.environ.get("HOME", "/"), "LC_ALL": "C.UTF-8"}


def turbo(processor, *arguments, isa=None):
    emulator = [QEMU, "-cpu", processor] if processor else []
    environment = dict(ENVIRONMENT, **({"TURBO_CPU_ISA": isa} if isa else {}))
    return subprocess.run([*emulator, TURBO, *arguments, "--model", MODEL, "--threads", "1"], capture_output=True, text=True,
                          env=environment, timeout=500)


def likelihood(processor, activations, isa=None):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(TEXT)
        file.flush()
        answer = turbo(processor, "perplexity", "--file", file.name, "--window", "24", "--max-tokens", "24", "--count", "all",
                       "--set", f"compute.activations={activations}", "--json", isa=isa)
    if answer.returncode != 0:
        raise AssertionError(f"{processor or 'this processor'}: exit {answer.returncode}\n{answer.stderr}")
    result = json.loads(answer.stdout)
    return result["nll"], result["scored"]


class OlderProcessors(unittest.TestCase):
    def test_same_bits_on_all(self):
        # Without fused multiply-add the float path is emulated twice over: minutes, so the operator tests cover it.
        for activations, processors in (("int8", ("Nehalem", "Haswell")), ("f32", ("Haswell",))):
            here = likelihood(None, activations)
            self.assertGreater(here[1], 20)
            for processor in processors:
                self.assertEqual(likelihood(processor, activations), here, f"{processor}, {activations}")

    def test_kernels_are_those_of_the_processor(self):
        for processor, isa in (("Nehalem", "scalar"), ("SandyBridge", "scalar"), ("Haswell,-avx2", "scalar"), ("Haswell", "avx2")):
            devices = turbo(processor, "plan", "--json")
            self.assertEqual(devices.returncode, 0, devices.stderr)
            self.assertEqual(json.loads(devices.stdout)["device"]["isa"], isa, processor)

    def test_a_set_the_processor_lacks_is_refused_and_never_run(self):
        for processor, isa in (("Nehalem", "avx2"), ("Haswell", "avx512")):
            answer = turbo(processor, "run", "--prompt", "x", "--max-tokens", "1", isa=isa)
            self.assertGreater(answer.returncode, 0, "refused, not killed by a signal")
            self.assertIn("TURBO_CPU_ISA", answer.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
