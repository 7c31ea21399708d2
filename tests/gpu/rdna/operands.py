"""Operands of instruction text, bound once to functions that read and write them in a wave."""
import re

import numpy as np

U, I, F, H = np.uint32, np.int32, np.float32, np.float16
LANES = np.arange(32)
VCC, M0, NULL, EXEC = 106, 124, 125, 126
NAMES = {"vcc_lo": VCC, "vcc_hi": VCC + 1, "vcc": VCC, "m0": M0, "null": NULL, "exec_lo": EXEC, "exec_hi": EXEC + 1, "exec": EXEC}
FLAGS = r"\s+(clamp|glc|slc|dlc|gds|row_mirror|row_half_mirror)\b"
MODIFIER = r"(?:^|\s)([a-z]\w*):(\[[^\]]*\]|swizzle\([^)]*\)|\S+)"


class Unsupported(NotImplementedError):
    """Instruction text that the interpreter does not know: never guessed."""


def split(text):
    """(mnemonic, operands, modifiers) of one instruction."""
    mnemonic, _, rest = text.strip().partition(" ")
    modifiers = dict(re.findall(MODIFIER, rest))
    rest = re.sub(MODIFIER, "", rest)
    for flag in re.findall(FLAGS, " " + rest):
        modifiers[flag] = True
    rest = re.sub(FLAGS, "", " " + rest).strip()
    return mnemonic, [part.strip() for part in rest.split(",")] if rest else [], modifiers


def pairs(modifiers, key, default):
    """A bit list such as op_sel:[0,1] as a list of ints."""
    return [int(bit) for bit in modifiers[key].strip("[]").split(",")] if key in modifiers else list(default)


def to_bools(mask):
    return np.unpackbits(np.array([mask], "<u4").view(np.uint8), bitorder="little").view(bool)


def to_mask(bools):
    return int(np.packbits(bools, bitorder="little").view("<u4")[0])


def scalar_index(name):
    if name in NAMES:
        return NAMES[name]
    found = re.fullmatch(r"s\[?(\d+)(?::\d+\])?", name)
    return int(found[1]) if found else None


def vector_index(name):
    found = re.fullmatch(r"v\[?(\d+)(?::\d+\])?", name)
    return int(found[1]) if found else None


def constant(name, kind):
    """Bits of a literal or inline constant; `kind` decides what a float means: f (32 bits) or h (16 bits)."""
    if re.fullmatch(r"-?0x[0-9a-f]+|-?\d+", name):
        return int(name, 0)
    if re.fullmatch(r"-?\d+\.\d*(e[+-]?\d+)?", name):
        if kind == "h":
            return int(np.array(float(name), H).view(np.uint16))
        return int(np.array(float(name), F).view(U))
    raise Unsupported(f"operand {name}")


def read_scalar(name, words=1):
    limit = (1 << 32 * words) - 1
    if name == "scc":
        return lambda w: w.scc
    index = scalar_index(name)
    if index is None:
        value = constant(name, "f") & limit
        return lambda w: value
    if index == NULL:
        return lambda w: 0
    if words == 1:
        return lambda w: w.s[index]
    return lambda w: w.s[index] | w.s[index + 1] << 32


def write_scalar(name, words=1):
    index = scalar_index(name)
    if index is None:
        raise Unsupported(f"operand {name}")
    if index == NULL:
        return lambda w, value: None

    def write(w, value):
        w.s[index] = value & 0xFFFFFFFF
        if words == 2:
            w.s[index + 1] = value >> 32 & 0xFFFFFFFF
        if index <= EXEC < index + words:
            w.exec_changed()
    return write


def read_bits(name, word=0, kind="f"):
    """32 lanes of raw 32-bit words."""
    index = vector_index(name)
    if index is not None:
        return lambda w: w.v[index + word]
    index = scalar_index(name)
    if index is not None:
        if index == NULL:
            zero = np.zeros(32, U)
            return lambda w: zero
        return lambda w: np.full(32, w.s[index + word], U)
    value = np.full(32, constant(name, kind) >> 32 * word & 0xFFFFFFFF, U)
    return lambda w: value


def read_wide(name):
    """32 lanes of 64-bit words."""
    if scalar_index(name) is None and vector_index(name) is None:
        value = np.full(32, constant(name, "f") & 0xFFFFFFFFFFFFFFFF, np.uint64)
        return lambda w: value
    low, high = read_bits(name), read_bits(name, 1)
    return lambda w: low(w).astype(np.uint64) | high(w).astype(np.uint64) << np.uint64(32)


def strip_signs(name):
    """(bare name, negate, absolute): -|v1|. A minus before a number belongs to the number."""
    negate = name.startswith("-") and not re.match(r"-[\d.]", name)
    name = name[1:] if negate else name
    found = re.fullmatch(r"\|(.*)\|", name)
    return (found[1], negate, True) if found else (name, negate, False)


def signed(read, negate, absolute):
    if absolute:
        inner = read
        read = lambda w: np.abs(inner(w))  # noqa: E731
    if negate:
        bare = read
        read = lambda w: -bare(w)  # noqa: E731
    return read


def read_double(name):
    """32 lanes of doubles. A literal holds the upper word; inline numbers are what they say."""
    if scalar_index(name) is None and vector_index(name) is None:
        if re.fullmatch(r"0x[0-9a-f]+", name):
            value = np.full(32, int(name, 16) << 32, np.uint64).view(np.float64)
        elif "." in name:
            value = np.full(32, float(name), np.float64)
        else:
            value = np.full(32, int(name) & 0xFFFFFFFFFFFFFFFF, np.uint64).view(np.float64)
        return lambda w: value
    wide = read_wide(name)
    return lambda w: wide(w).view(np.float64)


VIEWS = {"u": U, "f": F, "i": I, "U": np.uint64, "I": np.int64}


def read_typed(name, kind, high=0, bits=None):
    """Lanes of one type: u, i, f; U, I, D (64 bits); h, w, k (16 bits: float, unsigned, signed), from the high half if asked.
    `bits` replaces the plain register read (DPP, SDWA)."""
    name, negate, absolute = strip_signs(name)
    if kind == "D":
        return signed(read_double(name), negate, absolute)
    if kind in "UI":
        wide = read_wide(name)
        view = VIEWS[kind]
        return lambda w: wide(w).view(view)
    raw = bits or read_bits(name, kind="h" if kind == "h" else "f")
    if kind in "hwk":
        shift = U(16 if high else 0)
        view = {"h": H, "w": np.uint16, "k": np.int16}[kind]
        return signed(lambda w: (raw(w) >> shift).astype(np.uint16).view(view), negate, absolute)
    view = VIEWS[kind]
    return signed(lambda w: raw(w).view(view), negate, absolute)


def write_typed(name, kind, modifiers=None, high=0):
    """Function (wave, lanes' values, mask of lanes or None) that writes where exec allows."""
    modifiers = modifiers or {}
    index = vector_index(name)
    if index is None:
        raise Unsupported(f"operand {name}")
    scale = {"mul:2": 2, "mul:4": 4, "div:2": 0.5}.get(next((f"{k}:{modifiers[k]}" for k in ("mul", "div") if k in modifiers), ""), None)
    clamp = "clamp" in modifiers
    if (clamp and kind not in "fh") or (scale is not None and kind != "f"):
        raise Unsupported("clamp or output modifier of an integer")

    def write(w, value, only=None):
        mask = w.active if only is None else w.active & only
        if scale is not None:
            value = value * F(scale)
        if clamp:
            value = np.where(np.isnan(value), 0, np.minimum(np.maximum(value, 0), 1)).astype(value.dtype)
        if kind in "UID":
            value = value.view(np.uint64)
            w.v[index][mask] = (value & np.uint64(0xFFFFFFFF)).astype(U)[mask]
            w.v[index + 1][mask] = (value >> np.uint64(32)).astype(U)[mask]
        elif kind in "hwk":
            # The other half stays: what this generation of hardware does.
            half = value.view(np.uint16).astype(U)
            old = w.v[index]
            value = (old & U(0xFFFF)) | half << U(16) if high else (old & U(0xFFFF0000)) | half
            w.v[index][mask] = value[mask]
        else:
            w.v[index][mask] = value.view(U)[mask]
    return write
