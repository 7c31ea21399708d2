"""What an AMD code object holds, read with LLVM's own tools: kernels, their resources, and their instructions as text.

Decoding is LLVM's work, so one reader serves every target. Nothing here needs numpy.
"""
import os
import re
import struct
import subprocess


class Instruction:
    """One line of disassembly. `text` is LLVM's, `target` the address that a branch leads to."""
    __slots__ = ("address", "text", "target", "next", "run")

    def __init__(self, address, text, target):
        self.address, self.text, self.target = address, text, target
        self.next = None  # address of the instruction behind it
        self.run = None   # bound by the interpreter at the first execution

    @property
    def mnemonic(self):
        return self.text.split(None, 1)[0]


class Kernel:
    """A kernel's numbers: `meta` as in the object's notes, `descriptor` the 64 bytes that start it."""

    def __init__(self, name, meta):
        self.name, self.meta = name, meta
        self.entry = None
        self.descriptor = None
        self.body = []  # its instructions, in order

    def number(self, key):
        return int(self.meta.get(key, "0"))

    @property
    def rsrc1(self):
        return struct.unpack_from("<I", self.descriptor, 48)[0]

    @property
    def rsrc2(self):
        return struct.unpack_from("<I", self.descriptor, 52)[0]

    @property
    def properties(self):
        return struct.unpack_from("<H", self.descriptor, 56)[0]


class CodeObject:
    """`kernels` by name, `program` by address."""

    def __init__(self, path, tools):
        self.path = path
        self.kernels = {}
        self.program = {}
        self._notes(_tool(tools, "llvm-readelf", "--notes", path))
        self._descriptors(_tool(tools, "llvm-readelf", "-sW", "-lW", path))
        self._instructions(_tool(tools, "llvm-objdump", "-d", path))

    def _notes(self, text):
        self.target = (re.search(r"amdhsa\.target:\s+\S*?(gfx\w+)", text) or [None, ""])[1]
        kernels = text.split("amdhsa.kernels:", 1)[-1]
        for entry in re.split(r"\n {2}- (?=\.)", kernels)[1:]:
            # Keys of the kernel itself stand at four columns; those of its arguments deeper.
            meta = dict(re.findall(r"^(?: {4})?\.(\w+): +(\S.*)$", entry, re.M))
            meta["arguments"] = entry
            self.kernels[meta["name"]] = Kernel(meta["name"], meta)

    def _descriptors(self, text):
        with open(self.path, "rb") as file:
            data = file.read()
        segments = [tuple(int(word, 16) for word in words)
                    for words in re.findall(r"LOAD\s+0x(\w+) 0x(\w+) 0x\w+ 0x(\w+)", text)]
        for value, name in re.findall(r": ([0-9a-f]{16})\s+64 OBJECT\s.*?(\S+)\.kd", text):
            at = int(value, 16)
            for offset, address, size in segments:
                if address <= at < address + size and name in self.kernels:
                    start = offset + at - address
                    self.kernels[name].descriptor = data[start:start + 64]

    def _instructions(self, text):
        symbols, lines, current = {}, [], None
        for line in text.splitlines():
            if found := re.match(r"([0-9a-f]+) <(\S+)>:", line):
                current = found[2]
                symbols[current] = int(found[1], 16)
            elif "s_code_end" in line:
                continue  # padding behind the last kernel
            elif found := re.match(r"\s+(\S.*?)\s*// ([0-9A-F]+): [0-9A-F ]+?(?: <(\S+?)(?:\+0x([0-9a-f]+))?>)?$", line):
                lines.append((current, int(found[2], 16), found[1], found[3], int(found[4] or "0", 16)))
        previous = None
        for symbol, address, words, where, offset in lines:
            # A branch to the end of the text has no symbol; nothing branches there.
            target = symbols[where] + offset if where in symbols else None
            instruction = Instruction(address, words, target)
            if previous:
                previous.next = address
            self.program[address] = previous = instruction
            if symbol in self.kernels:
                self.kernels[symbol].body.append(instruction)
        for name, kernel in self.kernels.items():
            kernel.entry = symbols[name]


def _tool(tools, name, *arguments):
    """Output of an LLVM tool of the device compiler's own version."""
    done = subprocess.run([os.path.join(tools, name), *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{name} {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def narrowed(body):
    """Addresses that may execute with lanes switched off by the kernel's own control flow.

    An exec mask is narrowed from a saveexec or v_cmpx to the s_or or s_mov that restores it, and in loops that lanes leave
    one by one. Text order stands for control flow, which holds for the structured code that LLVM makes.
    """
    found, depth = set(), 0
    for instruction in body:
        mnemonic, text = instruction.mnemonic, instruction.text
        if depth:
            found.add(instruction.address)
        if re.match(r"s_(and|andn2|and_not1|xor|or|orn2|nand)\w*_saveexec_b32", mnemonic):
            depth += 1 if not mnemonic.startswith("s_or_") else 0
        elif mnemonic.startswith("v_cmpx_"):
            depth += 1
        elif re.match(r"s_(or_b32|mov_b32) exec_lo\b", text):
            depth = max(0, depth - 1)
    for instruction in body:
        if instruction.target is not None and instruction.target <= instruction.address:
            loop = [i for i in body if instruction.target <= i.address <= instruction.address]
            if any(re.match(r"s_(andn2|and_not1|and)_b32 exec_lo\b", i.text) for i in loop):
                found.update(i.address for i in loop)
    return found
