#!/usr/bin/env python3
"""Where there is no AMD GPU, the hip tier loses with a reason that says what is missing, and the cpu tier serves.

Usage: fallback_test.py TURBO SOURCE CC
Three machines: one whose build left the hip libraries out, one without the runtime or without a device (whichever this
is), and one with a library of the runtime's name that is not it.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest

TURBO, SOURCE, CC = sys.argv[1:4]
MODEL = os.path.join(SOURCE, "models", "turbo-nano-q1.gguf")
PLUGINS = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(TURBO))), "lib", "turbo", "plugins")
HAS_PACK = bool(glob.glob(os.path.join(PLUGINS, "arch_rdna2", "lib*_hip.so")))


def turbo(*arguments, libraries=None):
    # A verdict of another machine must not be remembered here.
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "XDG_CACHE_HOME": cache}
        if libraries:
            environment["LD_LIBRARY_PATH"] = libraries
        return subprocess.run([TURBO, *arguments], capture_output=True, text=True, env=environment, timeout=60)


@unittest.skipIf(os.path.exists("/dev/kfd"), "there is an AMD GPU")
class Fallback(unittest.TestCase):
    def reason(self, libraries=None):
        """Why the pack of tier hip lost; the plan itself must be one for the cpu."""
        done = turbo("plan", "--profile", "rx6700xt", "--model", MODEL, "--json", libraries=libraries)
        self.assertEqual(done.returncode, 0, done.stderr)
        plan = json.loads(done.stdout)
        slot = next(slot for slot in plan["slots"] if slot["slot"] == "arch_pack")
        self.assertEqual(slot["chosen"]["tier"], "cpu")
        return json.dumps([lost for lost in slot["rejected"] if lost.get("tier") == "hip"])

    def refusal(self, libraries=None):
        """What turbo says when the tier is required."""
        done = turbo("plan", "--model", MODEL, "--tier", "hip", libraries=libraries)
        self.assertNotEqual(done.returncode, 0)
        self.assertGreater(done.returncode, 0, "ended by a signal")
        self.assertIn("required tier hip cannot be used", done.stderr)
        return done.stderr

    @unittest.skipIf(HAS_PACK, "the hip libraries are built")
    def test_left_out_of_the_build(self):
        self.assertIn("no plugin provides an arch_pack for tier hip", self.refusal())
        for manifest in glob.glob(os.path.join(PLUGINS, "*", "plugin.yaml")):
            with open(manifest, encoding="utf-8") as file:
                self.assertNotIn("tier: hip", file.read(), manifest)

    @unittest.skipUnless(HAS_PACK, "the hip libraries are not built")
    def test_no_runtime_or_no_device(self):
        for words in (self.reason(), self.refusal()):
            self.assertRegex(words, "HIP runtime: (library missing|no device): .*libamdhip64")

    @unittest.skipUnless(HAS_PACK, "the hip libraries are not built")
    def test_a_library_that_is_not_the_runtime(self):
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "other.c")
            with open(source, "w", encoding="utf-8") as file:
                file.write("int something_else(void) { return 1; }\n")
            for generation in (5, 6, 7):
                subprocess.run([CC, "-shared", "-fPIC", source, "-o", os.path.join(folder, f"libamdhip64.so.{generation}")], check=True)
            for words in (self.reason(folder), self.refusal(folder)):
                self.assertRegex(words, "HIP runtime: version: libamdhip64.so.7 has no hipInit")

    def test_the_cpu_tier_generates(self):
        done = turbo("run", "--model", MODEL, "--prompt", "The git commit command", "--max-tokens", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.strip())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
