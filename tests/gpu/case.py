"""Cases for kernels of plugins, in a few lines each:

    class Gather(KernelCase):
        source = "plugins/quant_q1g128/hip/rows.hip"

        @every_target
        def test_rows(self, code):
            launch(code, "q1_gather", grid=3, threads=128, args=[signs, scales, ids, n_rows, dst, U64(stride), U(groups), U(rows)])
            self.equal_bits(dst, expected)

The code objects are those of the build; a kernel file that no library of the build holds is compiled here.
"""
import functools
import os
import unittest

import numpy as np
from device_compiler import Compiler
from rdna.code_object import CodeObject
from rdna.interpreter import Fault, Unsupported, launch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
U, I, F, U64 = np.uint32, np.int32, np.float32, np.uint64
compiler = None
built = {}


def setup(settings, work):
    """Call once before the tests run."""
    global compiler
    compiler = Compiler(settings, work)
    with open(compiler.settings["objects"], encoding="utf-8") as file:
        for line in file:
            if line.strip():
                source, arch, path = line.rstrip("\n").split("|")
                built[os.path.realpath(source), arch] = path


@functools.lru_cache(maxsize=None)
def code_of(source, arch):
    path = os.path.realpath(os.path.join(ROOT, source))
    if not os.path.exists(path):
        raise unittest.SkipTest(f"there is no {source}")
    return CodeObject(built.get((path, arch)) or compiler.compile(path, arch), compiler.tools)


def every_target(test):
    """Run a test method once a target, with the code object of the class's source."""
    @functools.wraps(test)
    def run(self):
        for arch in compiler.archs:
            with self.subTest(arch):
                test(self, code_of(self.source, arch))
    return run


class KernelCase(unittest.TestCase):
    source = None

    def setUp(self):
        self.rng = np.random.default_rng(7)

    def equal_bits(self, a, b):
        np.testing.assert_array_equal(np.asarray(a, F).view(U), np.asarray(b, F).view(U))


__all__ = ["F", "Fault", "I", "KernelCase", "U", "U64", "Unsupported", "code_of", "every_target", "launch", "setup"]
