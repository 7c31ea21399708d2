"""Compiling test kernels with the device compiler that the build found: <build>/hip/device.json."""
import json
import os
import subprocess


class Compiler:
    def __init__(self, settings, work):
        with open(settings, encoding="utf-8") as file:
            self.settings = json.load(file)
        self.tools = self.settings["tools"]
        self.archs = self.settings["archs"]
        self.work = work
        os.makedirs(work, exist_ok=True)

    def compile(self, source, arch, extra=(), name=None):
        """Path of the code object of a kernel file; raises with the compiler's words."""
        stem = name or os.path.splitext(os.path.basename(source))[0]
        output = os.path.join(self.work, f"{stem}.{arch}.co")
        command = [*self.settings["launcher"], self.settings["compiler"], *self.settings["flags"], "-c",
                   f"--offload-arch={arch}", f"-I{self.settings['include']}", *extra, source, "-o", output]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return output
