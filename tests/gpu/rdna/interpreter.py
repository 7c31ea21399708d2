"""Executes kernels of an AMD code object (RDNA2, RDNA3, wave32) on numpy arrays.

    code = CodeObject("k.gfx1031.co", tools)
    result = launch(code, "scale", grid=2, threads=256, args=[x, y, np.uint32(n), np.float32(0.5)])

The kernel changes y in place. `args` is the kernel's one argument struct, member by member, laid out as C does: an array is
its device address, None a null address, a numpy scalar its bytes, a list a struct inside. Registers and shared memory start
with a pattern, so that a kernel that relies on zeros is noticed.

Told as Fault: any access of an active lane outside the arrays, or unaligned, or a write to a read-only array; lane
permutations that read a lane that is switched off; waves that disagree about a barrier; a launch without end.
An instruction that is not known is an error (Unsupported), never skipped. Not covered: wave64, scratch, wait counts, exact
rounding of the approximate instructions (rcp, rsq, exp, log, sin, cos).
"""
import re
import struct

import numpy as np

from . import access, scalar, vector
from .memory import Fault, Memory
from .operands import EXEC, VCC, U, Unsupported, split, to_bools

SKIPPED = re.compile(r"s_(nop|clause|waitcnt\w*|delay_alu|sendmsg|set_inst_prefetch_distance|inst_prefetch|sleep_var|setprio|denorm_mode|"
                     r"round_mode|icache_inv|version|setreg_imm32_b32|sethalt|dcache_inv|wait_idle)$|v_nop|buffer_gl\d_inv|buffer_gl\w+|s_gl1_inv$")
BRANCHES = {
    "s_branch": lambda w: True, "s_cbranch_scc0": lambda w: not w.scc, "s_cbranch_scc1": lambda w: w.scc,
    "s_cbranch_vccz": lambda w: w.s[VCC] == 0, "s_cbranch_vccnz": lambda w: w.s[VCC] != 0,
    "s_cbranch_execz": lambda w: w.s[EXEC] == 0, "s_cbranch_execnz": lambda w: w.s[EXEC] != 0,
}
SLICE = 20000  # instructions of a wave before others get a turn: lets waves wait for each other


class Result:
    """What a launch did: instructions executed, and accesses that deserve a look though they are no fault."""

    def __init__(self):
        self.instructions = 0
        self.mnemonics = {}
        self.partial = {}   # text: times a global access ran with lanes switched off
        self.stray = {}     # text: times a lane that was switched off held an address outside every array


class Wave:
    def __init__(self, code, memory, result, shared, entry, lanes):
        self.code, self.memory, self.result, self.shared = code, memory, result, shared
        self.s = [0xDEAD0000 + i for i in range(130)]
        self.v = np.full((256, 32), 0x7FBADBAD, U)  # a NaN
        self.s[EXEC], self.s[EXEC + 1] = (1 << lanes) - 1, 0
        self.present = to_bools(self.s[EXEC])
        self.scc, self.pc = 0, entry
        self.exec_changed()

    def exec_changed(self):
        self.active = to_bools(self.s[EXEC])

    def note(self, instruction, addresses, size):
        if self.s[EXEC] == 0xFFFFFFFF:
            return
        text, result = instruction.text, self.result
        result.partial[text] = result.partial.get(text, 0) + 1
        stray = sum(self.memory.find(addresses[lane], size) is None for lane in np.nonzero(self.present & ~self.active)[0])
        if stray:
            result.stray[text] = result.stray.get(text, 0) + stray

    def check_sources(self, lanes, text):
        """Hardware gives zeros or old values for lanes that are switched off."""
        if not self.active[lanes[self.active]].all():
            raise Fault(f"{text}: reads a lane that is switched off")

    def run(self):
        """Until a barrier, the end, or a pause; says which."""
        program, count = self.code.program, 0
        for count in range(1, SLICE + 1):
            instruction = program.get(self.pc)
            if instruction is None:
                raise Fault(f"execution left the program at {self.pc:#x}")
            if instruction.run is None:
                instruction.run = bind(instruction)
            outcome = instruction.run(self)
            if outcome is None:
                self.pc = instruction.next
            elif isinstance(outcome, str):
                self.pc = instruction.next
                self.result.instructions += count
                return outcome
            else:
                self.pc = outcome
        self.result.instructions += count
        return "pause"


def bind(instruction):
    """What executes an instruction: None means go on, an address is a branch, a word ends the turn."""
    mnemonic, target, text = instruction.mnemonic, instruction.target, instruction.text
    if mnemonic == "s_endpgm":
        return lambda w: "end"
    if mnemonic == "s_barrier":
        return lambda w: "barrier"
    if mnemonic == "s_sleep":
        return lambda w: "pause"
    if SKIPPED.match(mnemonic):
        return lambda w: None
    if mnemonic in BRANCHES:
        taken = BRANCHES[mnemonic]
        return lambda w: target if taken(w) else None
    execute = bind_data(mnemonic, text, instruction)

    def run(w):
        execute(w)
    return run


def bind_data(mnemonic, text, instruction):
    try:
        if " :: " in text:
            return vector.bind_dual([split(part) for part in text.split(" :: ")])
        mnemonic, operands, modifiers = split(text)
        if mnemonic.startswith("s_"):
            return scalar.bind(mnemonic, operands, modifiers, text)
        if mnemonic.startswith(("global_", "flat_")):
            return access.bind_global(mnemonic, operands, modifiers, instruction)
        if mnemonic.startswith("ds_"):
            return access.bind_shared(mnemonic, operands, modifiers, text)
        return vector.bind(mnemonic, operands, modifiers)
    except Unsupported as why:
        raise Unsupported(f"{text} ({why})") from None


def pack(args, memory):
    """Bytes of an argument struct, and its alignment."""
    data, widest = b"", 1
    for member in args:
        if member is None or (isinstance(member, np.ndarray) and member.ndim):
            piece, align = struct.pack("<Q", memory.address(member)), 8
        elif isinstance(member, (list, tuple)):
            piece, align = pack(member, memory)
        elif isinstance(member, np.generic):
            piece, align = member.tobytes(), member.itemsize
        else:
            raise TypeError(f"argument {member!r}: give arrays, None, numpy scalars or lists of them")
        data += b"\0" * (-len(data) % align) + piece
        widest = max(widest, align)
    return data + b"\0" * (-len(data) % widest), widest


def three(value):
    return tuple(value) + (1,) * (3 - len(value)) if isinstance(value, (tuple, list)) else (value, 1, 1)


def launch(code, name, grid, threads, args, shared_bytes=0, resident=False, memory=None, turns=10000):
    """Run a kernel to its end. Blocks run one after another, or side by side when `resident`."""
    kernel = code.kernels[name]
    fixed, scratch, _ = struct.unpack_from("<III", kernel.descriptor)
    if scratch or not kernel.properties & 0x400:
        raise Unsupported(f"{name}: scratch or wave64")
    if threads > kernel.number("max_flat_workgroup_size"):
        raise Fault(f"{name}: {threads} threads, bound {kernel.number('max_flat_workgroup_size')}")
    memory = memory or Memory()
    data, _ = pack(args, memory)
    explicit = sum(int(size) for size in re.findall(r"\.size:\s+(\d+)\n\s+\.value_kind:\s+by_value", kernel.meta.get("arguments", "")))
    if explicit and explicit != len(data):
        raise Fault(f"{name}: {len(data)} bytes of arguments, the kernel has {explicit}")
    dims = three(grid)
    # Hidden arguments of code object 5; version 4 reads the dispatch packet.
    data += b"\0" * (-len(data) % 8) + struct.pack("<IIIHHHHHH", *dims, threads, 1, 1, 0, 0, 0)
    arguments = read_only(data.ljust(max(kernel.number("kernarg_segment_size"), len(data)), b"\0"))
    packet = read_only(struct.pack("<HHHHHHIIIII", 0, 3, threads, 1, 1, 0, dims[0] * threads, dims[1], dims[2], 0, 0).ljust(64, b"\0"))
    result = Result()
    blocks = [(x, y, z) for z in range(dims[2]) for y in range(dims[1]) for x in range(dims[0])]
    state = (code, memory, result, kernel, memory.address(packet), memory.address(arguments), fixed + shared_bytes, threads)
    with np.errstate(all="ignore"):
        for group in [blocks] if resident else [[block] for block in blocks]:
            run_blocks([start_block(block, *state) for block in group], name, turns)
    return result


def read_only(data):
    array = np.frombuffer(bytes(data), np.uint8)
    return array


def start_block(block, code, memory, result, kernel, packet, arguments, shared_bytes, threads):
    shared = np.full(shared_bytes, 0xA5, np.uint8)
    waves = []
    for first in range(0, threads, 32):
        wave = Wave(code, memory, result, shared, kernel.entry, min(32, threads - first))
        at = 0
        for bit, count, value in ((1, 4, None), (2, 2, packet), (4, 2, 0), (8, 2, arguments), (16, 2, 0), (32, 2, 0), (64, 1, 0)):
            if kernel.properties & bit:
                if value is not None:
                    wave.s[at:at + count] = [value >> 32 * k & 0xFFFFFFFF for k in range(count)]
                at += count
        at = kernel.rsrc2 >> 1 & 31
        for axis in range(3):
            if kernel.rsrc2 >> (7 + axis) & 1:
                wave.s[at] = block[axis]
                at += 1
        wave.v[0] = np.arange(first, first + 32, dtype=U)
        wave.v[1] = wave.v[2] = 0
        waves.append(wave)
    return waves


def run_blocks(blocks, name, turns):
    """Turns for every wave until all have ended; a block's waves meet at its barriers."""
    states = [["run"] * len(block) for block in blocks]
    for _ in range(turns):
        busy = False
        for block, state in zip(blocks, states):
            for i, wave in enumerate(block):
                if state[i] in ("run", "pause"):
                    state[i] = wave.run()
                    busy = True
            if "barrier" in state and "pause" not in state:
                if "end" in state:
                    raise Fault(f"{name}: some waves of a block wait at a barrier that others passed by")
                state[:] = ["run"] * len(state)
                busy = True
        if not busy:
            return
    raise Fault(f"{name}: no end after {turns} turns")
