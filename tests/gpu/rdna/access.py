"""Vector memory instructions: global loads, stores and atomics, shared memory (LDS)."""
import re

import numpy as np

from .memory import Fault
from .operands import LANES, U, Unsupported, read_bits, read_scalar, read_wide, scalar_index, vector_index, write_typed

# What a load or store moves: (bytes, sign-extended, half of the register or None for all of it).
SIZES = {"ubyte": (1, 0, None), "u8": (1, 0, None), "sbyte": (1, 1, None), "i8": (1, 1, None), "byte": (1, 0, None), "b8": (1, 0, None),
         "ushort": (2, 0, None), "u16": (2, 0, None), "sshort": (2, 1, None), "i16": (2, 1, None), "short": (2, 0, None), "b16": (2, 0, None),
         "dword": (4, 0, None), "b32": (4, 0, None), "dwordx2": (8, 0, None), "b64": (8, 0, None), "dwordx3": (12, 0, None), "b96": (12, 0, None),
         "dwordx4": (16, 0, None), "b128": (16, 0, None), "ubyte_d16": (1, 0, 0), "d16_u8": (1, 0, 0), "u8_d16": (1, 0, 0),
         "sbyte_d16": (1, 1, 0), "d16_i8": (1, 1, 0), "i8_d16": (1, 1, 0), "short_d16": (2, 0, 0), "d16_b16": (2, 0, 0), "u16_d16": (2, 0, 0),
         "ubyte_d16_hi": (1, 0, 1), "d16_hi_u8": (1, 0, 1), "u8_d16_hi": (1, 0, 1), "sbyte_d16_hi": (1, 1, 1), "d16_hi_i8": (1, 1, 1),
         "short_d16_hi": (2, 0, 1), "d16_hi_b16": (2, 0, 1), "u16_d16_hi": (2, 0, 1), "b8_d16_hi": (1, 0, 1), "b16_d16_hi": (2, 0, 1),
         "byte_d16_hi": (1, 0, 1), "d16_hi_b8": (1, 0, 1)}
ATOMICS = {"add": lambda a, b, n: a + b, "sub": lambda a, b, n: a - b, "and": lambda a, b, n: a & b, "or": lambda a, b, n: a | b,
           "xor": lambda a, b, n: a ^ b, "swap": lambda a, b, n: b, "umax": lambda a, b, n: max(a, b), "umin": lambda a, b, n: min(a, b),
           "max_u": lambda a, b, n: max(a, b), "min_u": lambda a, b, n: min(a, b)}


def load_into(wave, register, lanes, data, size, signed, half):
    """Put bytes [n][size] into the lanes' registers."""
    if size >= 4:
        words = np.ascontiguousarray(data).view("<u4")
        for k in range(size // 4):
            wave.v[register + k][lanes] = words[:, k]
        return
    kind = {(1, 0): np.uint8, (1, 1): np.int8, (2, 0): np.uint16, (2, 1): np.int16}[size, signed]
    value = np.ascontiguousarray(data).view(kind)[:, 0].astype(np.int32).view(U)
    if half is None:
        wave.v[register][lanes] = value
    else:
        old, value = wave.v[register][lanes], value & U(0xFFFF)
        wave.v[register][lanes] = (old & U(0xFFFF)) | value << U(16) if half else (old & U(0xFFFF0000)) | value


def store_from(wave, register, lanes, size, half):
    if size >= 4:
        return np.ascontiguousarray(wave.v[register:register + size // 4, lanes].T).view(np.uint8)
    value = wave.v[register][lanes] >> U(16 if half else 0)
    return np.ascontiguousarray(value).view(np.uint8).reshape(-1, 4)[:, :size]


def bind_global(mnemonic, operands, modifiers, instruction):
    flat = mnemonic.startswith("flat_")
    found = re.fullmatch(r"(?:global|flat)_(load|store|atomic)_(\w+)", mnemonic)
    if not found:
        raise Unsupported(instruction.text)
    verb, what = found.groups()
    returns = verb == "load" or (verb == "atomic" and "glc" in modifiers)
    target = operands[0] if returns else None
    rest = operands[1:] if returns else operands
    address, data = rest[0], rest[1] if verb != "load" else None
    base = "off" if flat else rest[-1]
    offset = int(modifiers.get("offset", "0"), 0)
    if base == "off":
        wide = read_wide(address)
        addresses = lambda w: [int(a) + offset for a in wide(w)]  # noqa: E731
    else:
        start, index = read_scalar(base, 2), read_bits(address)
        addresses = lambda w: [start(w) + offset + int(i) for i in index(w)]  # noqa: E731
    if verb == "atomic":
        return bind_atomic(what, addresses, data, target, instruction.text)
    if what not in SIZES:
        raise Unsupported(instruction.text)
    size, signed, half = SIZES[what]
    register = vector_index(target if returns else data)
    text = instruction.text

    def run(w):
        every = addresses(w)
        w.note(instruction, every, size)
        lanes = np.nonzero(w.active)[0]
        if not len(lanes):
            return
        chosen = [every[lane] for lane in lanes]
        if verb == "load":
            load_into(w, register, lanes, w.memory.gather(chosen, lanes, size, text), size, signed, half)
        else:
            w.memory.scatter(chosen, lanes, store_from(w, register, lanes, size, half), text)
    return run


def bind_atomic(what, addresses, data, target, text):
    found = re.fullmatch(r"(add|sub|and|or|xor|swap|cmpswap|umax|umin|max_u|min_u)(?:_x2|_?[ub]?(?:32|64))?", what)
    if not found:
        raise Unsupported(text)
    base, words = found[1], 2 if what.endswith(("x2", "64")) else 1
    register, size = vector_index(data), 4 * words
    result = vector_index(target) if target else None

    def value(w, lane, at):
        return sum(int(w.v[register + at + k][lane]) << 32 * k for k in range(words))

    def run(w):
        every = addresses(w)
        for lane in np.nonzero(w.active)[0]:
            if every[lane] % size:
                raise Fault(f"{text}, lane {lane}: atomic at {every[lane]:#x} is not aligned")
            view = w.memory.read(every[lane], size, f"{text}, lane {lane}")
            w.memory._writable(view, text)
            old = int.from_bytes(view.tobytes(), "little")
            if base == "cmpswap":
                new = value(w, lane, 0) if old == value(w, lane, words) else old
            else:
                new = ATOMICS[base](old, value(w, lane, 0), size)
            view[:] = np.frombuffer((new & (1 << 8 * size) - 1).to_bytes(size, "little"), np.uint8)
            if result is not None:
                for k in range(words):
                    w.v[result + k][lane] = old >> 32 * k & 0xFFFFFFFF
    return run


def shared_index(w, addresses, lanes, size, text):
    top = len(w.shared)
    for address, lane in zip(addresses, lanes):
        if address + size > top:
            raise Fault(f"{text}, lane {lane}: shared memory at {address} of {top}")
        if address % min(size, 4):
            raise Fault(f"{text}, lane {lane}: shared memory at {address} is not aligned")
    return addresses.astype(np.int64)[:, None] + np.arange(size)


def bind_shared(mnemonic, operands, modifiers, text):
    """ds_*: reads and writes of one or two addresses, lane permutations, atomics."""
    if mnemonic == "ds_swizzle_b32":
        return bind_swizzle(operands, modifiers, text)
    if mnemonic in ("ds_bpermute_b32", "ds_permute_b32"):
        write, index, source, offset = write_typed(operands[0], "u"), read_bits(operands[1]), read_bits(operands[2]), int(modifiers.get("offset", "0"), 0)
        if mnemonic == "ds_permute_b32":
            raise Unsupported(text)

        def permute(w):
            lanes = (index(w) + U(offset)) >> U(2) & U(31)
            w.check_sources(lanes, text)
            write(w, source(w)[lanes])
        return permute
    if found := re.fullmatch(r"ds_(read|load|write|store)(2st64|2|_2addr_stride64|_2addr)?_(\w+)", mnemonic):
        verb = "load" if found[1] in ("read", "load") else "store"
        if found[3] in SIZES:
            return bind_shared_move(verb, found[3], bool(found[2]), "64" in (found[2] or ""), operands, modifiers, text)
    if found := re.fullmatch(r"ds_(add|sub|and|or|xor|max|min)_(?:(rtn)_)?([ubi])32", mnemonic):
        return bind_shared_atomic(found[1], bool(found[2]), found[3] == "i", operands, modifiers, text)
    raise Unsupported(text)


def bind_shared_move(verb, what, two, strided, operands, modifiers, text):
    size, signed, half = SIZES[what]
    address = read_bits(operands[0] if verb == "store" else operands[1])
    if two:
        unit = size * (64 if strided else 1)
        offsets = [int(modifiers.get(key, "0"), 0) * unit for key in ("offset0", "offset1")]
    else:
        offsets = [int(modifiers.get("offset", "0"), 0)]
    register = vector_index(operands[0])
    sources = [vector_index(name) for name in operands[1:]] if verb == "store" else []

    def run(w):
        lanes = np.nonzero(w.active)[0]
        if not len(lanes):
            return
        base = address(w)[lanes].copy()
        for k, offset in enumerate(offsets):
            index = shared_index(w, base.astype(np.int64) + offset, lanes, size, text)
            if verb == "load":
                load_into(w, register + k * (size // 4), lanes, w.shared[index], size, signed, half)
            else:
                w.shared[index] = store_from(w, sources[k], lanes, size, half)
    return run


def bind_shared_atomic(base, returns, signed, operands, modifiers, text):
    if signed:
        raise Unsupported(text)
    target = vector_index(operands[0]) if returns else None
    address, data = (read_bits(name) for name in (operands[1:] if returns else operands))
    offset = int(modifiers.get("offset", "0"), 0)
    combine = ATOMICS[base + "_u" if base in ("max", "min") else base]

    def run(w):
        at, value = address(w).copy(), data(w).copy()
        for lane in np.nonzero(w.active)[0]:
            index = shared_index(w, np.array([int(at[lane]) + offset]), [lane], 4, text)[0]
            old = int.from_bytes(w.shared[index].tobytes(), "little")
            w.shared[index] = np.frombuffer((combine(old, int(value[lane]), 4) & 0xFFFFFFFF).to_bytes(4, "little"), np.uint8)
            if target is not None:
                w.v[target][lane] = old
    return run


def bind_swizzle(operands, modifiers, text):
    pattern = modifiers.get("offset", "0")
    if found := re.fullmatch(r"swizzle\(SWAP,(\d+)\)", pattern):
        source = LANES ^ int(found[1])
    elif found := re.fullmatch(r"swizzle\(BITMASK_PERM,\"?([01pi]+)\"?\)", pattern):
        source = np.zeros(32, int)
        for bit, how in zip((16, 8, 4, 2, 1), found[1]):
            source |= {"0": 0 * LANES, "1": 0 * LANES + bit, "p": LANES & bit, "i": ~LANES & bit}[how]
    else:
        raise Unsupported(text)
    write, read = write_typed(operands[0], "u"), read_bits(operands[1])

    def run(w):
        w.check_sources(source, text)
        write(w, read(w)[source])
    return run

