#!/usr/bin/env python3
"""Kernels of the plugins, executed from their code objects. Usage: kernels_test.py DEVICE-JSON WORK [CASE] [-v]

CASE is the start of a file's name in cases/ ("pack"); all of them when left out."""
import os
import sys
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import case  # noqa: E402

if __name__ == "__main__":
    case.setup(*sys.argv[1:3])
    names = [word for word in sys.argv[3:] if word != "-v"] or ["*"]
    cases = unittest.TestSuite(unittest.defaultTestLoader.discover(os.path.join(HERE, "cases"), pattern=f"{name}_case.py") for name in names)
    if not cases.countTestCases():
        sys.exit(f"no case of {', '.join(names)}")
    verbosity = 2 if "-v" in sys.argv[3:] else 1
    sys.exit(not unittest.TextTestRunner(verbosity=verbosity).run(cases).wasSuccessful())
