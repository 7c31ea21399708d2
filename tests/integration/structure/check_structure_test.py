#!/usr/bin/env python3
"""Each rule of check_structure.py finds its violation and passes its counterexample."""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import check_structure  # noqa: E402


class Rules(unittest.TestCase):
    def check(self, files):
        with tempfile.TemporaryDirectory() as root:
            files = {"core/main.cpp": "int main() {}\n", "plugins/quant_demo/plugin.yaml": "schema: 1\n", **files}
            for name, text in files.items():
                path = os.path.join(root, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w") as file:
                    file.write(text)
            return check_structure.check_repository(root)

    def refused(self, files, words):
        found = self.check(files)
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0])

    def test_clean(self):
        self.assertEqual(self.check({
            "core/engine/engine.cpp": '#include "sched/planner.h"\n#include <turbo/abi/base.h>\n',
            "core/sched/planner.h": '// Plans.\n#include "kv/cache.h"\n',
            "plugins/quant_demo/src/plugin.cpp": '#include "layout.h"\n#include <turbo/plugin.hpp>\n',
        }), [])

    def test_include_order(self):
        self.refused({"core/kv/cache.cpp": '\n#include "engine/engine.h"\n'}, "core/kv/cache.cpp:2: core/kv may not include")
        self.refused({"core/kv/cache.cpp": '#include "sched/planner.h"\n'}, "may not include")
        self.refused({"core/base/a.cpp": '#include <profile/profile.h>\n'}, "may not include")
        self.refused({"core/kv/cache.cpp": '#include "../base/status.h"\n'}, "from core/")
        self.refused({"core/extra/a.cpp": "int a;\n"}, "no place")

    def test_core_names_no_plugin(self):
        self.refused({"core/kv/a.cpp": 'auto a = "quant_demo";\n'}, "names the plugin")
        self.refused({"core/kv/a.cpp": 'auto a = "libturbo_quant_demo_cpu.so";\n'}, "names the plugin")
        self.refused({"core/kv/a.cpp": 'auto a = "dev.turbo.other";\n'}, "plugin id")
        self.assertEqual(self.check({"core/kv/a.cpp": "// quant_demo is an example\nint quant_demonstration;\n"}), [])

    def test_plugin_includes_nothing_of_core(self):
        self.refused({"plugins/quant_demo/src/a.cpp": '#include "core/base/status.h"\n'}, "a plugin includes")
        self.refused({"plugins/quant_demo/src/a.cpp": '#include "../../../core/base/status.h"\n'}, "outside its own folder")
        self.refused({"plugins/quant_demo/src/a.cpp": '#include "base/status.h"\n', "core/base/status.h": "// Status.\n"},
                     "a plugin includes core/base/status.h")

    def test_header_comment(self):
        self.refused({"core/kv/a.h": "#pragma once\n"}, "starts with a comment")

    def test_machine_paths(self):
        self.refused({"docs/a.md": "see /ho" + "me/ann/turbo\n"}, "path of one machine")
        self.assertEqual(self.check({"docs/a.md": "see https://example.org/ho" + "me/page and $HOME/x and /home/someone/x and /usr/lib\n"}), [])

    def test_links(self):
        self.refused({"docs/a.md": "see [b](b.md)\n"}, "leads nowhere")
        self.assertEqual(self.check({"docs/a.md": "[b](../docs/b.md#part) and [c](https://example.org/c)\n", "docs/b.md": "\n"}), [])

    def test_size(self):
        limit = check_structure.MAX_TRACKED_BYTES
        check_structure.MAX_TRACKED_BYTES = 10
        try:
            self.refused({}, "more than 10")
        finally:
            check_structure.MAX_TRACKED_BYTES = limit


if __name__ == "__main__":
    unittest.main()
