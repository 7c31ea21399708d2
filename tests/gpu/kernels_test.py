#!/usr/bin/env python3
"""Kernels of the plugins, executed from their code objects: all of cases/. Usage: kernels_test.py DEVICE-JSON WORK [unittest options]"""
import os
import sys
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import case  # noqa: E402

if __name__ == "__main__":
    case.setup(*sys.argv[1:3])
    cases = unittest.defaultTestLoader.discover(os.path.join(HERE, "cases"), pattern="*_case.py")
    verbosity = 2 if "-v" in sys.argv[3:] else 1
    sys.exit(not unittest.TextTestRunner(verbosity=verbosity).run(cases).wasSuccessful())
