#!/usr/bin/env python3
"""The gate finds what it is there for: each kernel of faults/ is refused for its one fault, the clean ones pass.

Usage: gate_test.py DEVICE-JSON WORK
A fault file says in its first lines what to expect ("ok", or words of the refusal, alternatives split by |), and may give
compiler flags, a budget and targets (gfx1031 otherwise).
"""
import json
import os
import re
import shutil
import sys
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import gate  # noqa: E402
from device_compiler import Compiler  # noqa: E402

compiler = None


class Faults(unittest.TestCase):
    def check(self, source, budget=None, flags=(), arch="gfx1031", table=None):
        """Problems of a kernel file that lies alone with its budgets in a folder."""
        name = os.path.basename(source)
        folder = os.path.join(compiler.work, name[:-4])
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        path = shutil.copy(source, folder)
        if table is None and budget is not None:
            table = {name: {"*": budget}}
        if table is not None:
            with open(os.path.join(folder, "gate.json"), "w", encoding="utf-8") as file:
                json.dump(table, file)
        return gate.check_object(path, arch, compiler.compile(path, arch, flags), compiler.tools, lambda line: None)

    def test_each_fault(self):
        for name in sorted(os.listdir(os.path.join(HERE, "faults"))):
            source = os.path.join(HERE, "faults", name)
            with open(source, encoding="utf-8") as file:
                says = dict(re.findall(r"^// (flags|budget|archs|expect): (.*)$", file.read(), re.M))
            for arch in says.get("archs", "gfx1031").split():
                with self.subTest(name, arch=arch):
                    problems = self.check(source, json.loads(says.get("budget", "{}")), says.get("flags", "").split(), arch)
                    if says["expect"] == "ok":
                        self.assertEqual(problems, [])
                    else:
                        self.assertTrue(any(re.search(says["expect"], problem) for problem in problems), problems)
                        # One fault a file, so that none hides that another check is blind.
                        others = [p for p in problems if not re.search(says["expect"], p)]
                        allowed = {"spill.hip": "scratch", "call.hip": "scratch|dynamic stack"}.get(name)
                        self.assertTrue(all(allowed and re.search(allowed, p) for p in others), others)

    def test_tables(self):
        source = os.path.join(HERE, "faults", "clean.hip")
        refused = [
            ({"clean.hip": {"gone": {}}}, "clean.hip has no kernel gone"),
            ({"gone.hip": {"*": {}}}, "there is no gone.hip"),
            ({"clean.hip": {"clean": {"vgpr": 3}}}, "vgpr is not a budget"),
            ({"*": {"*": {"bpermutes": 1}}}, "5 ds_bpermutes, budget 1"),
            ({"clean.hip": {"*": {"bpermutes": 9}, "clean": {"bpermutes": 1}}}, "5 ds_bpermutes, budget 1"),
        ]
        for table, words in refused:
            with self.subTest(words):
                problems = self.check(source, table=table)
                self.assertEqual(len(problems), 1, problems)
                self.assertIn(words, problems[0])

    def test_object_of_another_target_or_file(self):
        source = os.path.join(HERE, "faults", "clean.hip")
        built = compiler.compile(source, "gfx1031")
        quiet = lambda line: None  # noqa: E731
        self.assertIn("not gfx1030", gate.check_object(source, "gfx1030", built, compiler.tools, quiet)[0])
        other = os.path.join(HERE, "faults", "bound.hip")
        self.assertTrue(any("kernel bound" in p and "missing" in p
                            for p in gate.check_object(other, "gfx1031", built, compiler.tools, quiet)))


if __name__ == "__main__":
    settings, work = sys.argv[1:3]
    compiler = Compiler(settings, work)
    unittest.main(argv=sys.argv[:1])
