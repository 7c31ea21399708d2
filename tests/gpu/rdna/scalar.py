"""Scalar instructions: integers of the wave, its exec mask, loads of constants."""
import re

from .operands import Unsupported, read_scalar, scalar_index, write_scalar

M32 = 0xFFFFFFFF


def to_signed(value, bits=32):
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def lowest_one(value):
    return (value & -value).bit_length() - 1 if value else M32


def leading_zeros(value, bits):
    return bits - value.bit_length() if value else M32


def field(value, spec, bits, signed=False):
    """s_bfe: spec has the offset in its low bits and the width from bit 16."""
    offset, width = spec & (bits - 1), spec >> 16 & 127
    result = value >> offset & ((1 << width) - 1)
    if signed and width and result >> (width - 1) & 1:
        result -= 1 << width
    return result


# base: function of (a, b, bits). The result is cut to the width; scc is set to "not zero".
LOGIC = {
    "and": lambda a, b, n: a & b, "or": lambda a, b, n: a | b, "xor": lambda a, b, n: a ^ b, "not": lambda a, b, n: ~a,
    "andn2": lambda a, b, n: a & ~b, "and_not1": lambda a, b, n: a & ~b, "orn2": lambda a, b, n: a | ~b, "or_not1": lambda a, b, n: a | ~b,
    "nand": lambda a, b, n: ~(a & b), "nor": lambda a, b, n: ~(a | b), "xnor": lambda a, b, n: ~(a ^ b),
    "lshl": lambda a, b, n: a << (b & n - 1), "lshr": lambda a, b, n: a >> (b & n - 1), "ashr": lambda a, b, n: to_signed(a, n) >> (b & n - 1),
    "bcnt1": lambda a, b, n: bin(a).count("1"), "bcnt0": lambda a, b, n: n - bin(a).count("1"),
}
# The same, without a change of scc.
SILENT = {
    "mov": lambda a, b, n: a, "mul": lambda a, b, n: a * b, "bfm": lambda a, b, n: ((1 << (a & n - 1)) - 1) << (b & n - 1),
    "ff1": lambda a, b, n: lowest_one(a), "ctz": lambda a, b, n: lowest_one(a),
    "flbit": lambda a, b, n: leading_zeros(a, n), "clz": lambda a, b, n: leading_zeros(a, n),
    "brev": lambda a, b, n: int(f"{a:0{n}b}"[::-1], 2), "pack_ll": lambda a, b, n: a & 0xFFFF | b << 16,
    "pack_lh": lambda a, b, n: a & 0xFFFF | b & 0xFFFF0000, "pack_hh": lambda a, b, n: a >> 16 | b & 0xFFFF0000,
    "sext_i32": lambda a, b, n: a,
}
COMPARE = {"eq": lambda a, b: a == b, "lg": lambda a, b: a != b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
           "lt": lambda a, b: a < b, "le": lambda a, b: a <= b}


def bind_load(operands, modifiers, text, words):
    """s_load: offset from a literal, a register, or both."""
    base, index = read_scalar(operands[1], 2), scalar_index(operands[0])
    offset = read_scalar(operands[2]) if len(operands) > 2 else lambda w: 0
    literal = scalar_index(operands[2]) is None if len(operands) > 2 else False
    more = int(modifiers.get("offset", "0"), 0)

    def run(w):
        extra = to_signed(offset(w)) if literal else offset(w)
        data = w.memory.read((base(w) + extra + more) & ~3, 4 * words, text)
        w.s[index:index + words] = data.view("<u4").tolist() if data.ctypes.data % 4 == 0 else data.copy().view("<u4").tolist()
    return run


def bind_compare(mnemonic, operands):
    how, kind = re.fullmatch(r"s_cmpk?_(\w+)_(\w\d\d)", mnemonic).groups()
    words = 2 if kind.endswith("64") else 1
    a, b, test, signed = read_scalar(operands[0], words), read_scalar(operands[1], words), COMPARE[how], kind == "i32"

    def run(w):
        x, y = a(w), b(w)
        w.scc = int(test(to_signed(x), to_signed(y)) if signed else test(x, y))
    return run


def bind_saveexec(mnemonic, operands):
    how = re.fullmatch(r"s_(\w+)_saveexec_b32", mnemonic)[1]
    combine = {"and": lambda a, e: a & e, "or": lambda a, e: a | e, "xor": lambda a, e: a ^ e, "andn2": lambda a, e: a & ~e,
               "and_not1": lambda a, e: a & ~e, "andn1": lambda a, e: ~a & e, "and_not0": lambda a, e: ~a & e,
               "orn2": lambda a, e: a | ~e, "or_not1": lambda a, e: a | ~e, "orn1": lambda a, e: ~a | e}.get(how)
    if not combine:
        raise Unsupported(mnemonic)
    source, save, write = read_scalar(operands[1]), write_scalar(operands[0]), write_scalar("exec_lo")

    def run(w):
        old, mask = w.s[126], source(w)
        save(w, old)
        write(w, combine(mask, old) & M32)
        w.scc = int(w.s[126] != 0)
    return run


def bind_sum(base, kind, operands):
    """Additions and subtractions: carry, borrow or overflow goes to scc."""
    a, b, write = read_scalar(operands[1]), read_scalar(operands[2]), write_scalar(operands[0])
    sign, with_carry, signed = (1 if base.startswith("add") else -1), base in ("addc", "subb"), kind == "i32"

    def run(w):
        x, y = a(w), b(w)
        carry = w.scc if with_carry else 0
        if signed:
            total = to_signed(x) + sign * to_signed(y)
            w.scc = int(not -2**31 <= total < 2**31)
        else:
            total = x + sign * (y + carry)
            w.scc = int(not 0 <= total <= M32)
        write(w, total)
    return run


def bind_small(mnemonic, operands):
    """s_movk, s_addk, s_mulk, s_cmovk: a 16-bit constant."""
    base = re.fullmatch(r"s_(mov|add|mul|cmov)k_i32", mnemonic)[1]
    value, old, write = read_scalar(operands[1]), read_scalar(operands[0]), write_scalar(operands[0])

    def run(w):
        k = to_signed(value(w) & 0xFFFF, 16)
        if base == "mov":
            write(w, k)
        elif base == "cmov":
            write(w, k if w.scc else old(w))
        elif base == "mul":
            write(w, to_signed(old(w)) * k)
        else:
            total = to_signed(old(w)) + k
            w.scc = int(not -2**31 <= total < 2**31)
            write(w, total)
    return run


def bind(mnemonic, operands, modifiers, text):
    """A function that executes one scalar instruction on a wave."""
    if found := re.fullmatch(r"s_load_(?:dword(?:x(\d+))?|b(\d+))", mnemonic):
        return bind_load(operands, modifiers, text, int(found[2]) // 32 if found[2] else int(found[1] or 1))
    if re.fullmatch(r"s_cmpk?_\w+_\w\d\d", mnemonic):
        return bind_compare(mnemonic, operands)
    if "_saveexec_" in mnemonic:
        return bind_saveexec(mnemonic, operands)
    if re.fullmatch(r"s_(mov|add|mul|cmov)k_i32", mnemonic):
        return bind_small(mnemonic, operands)
    found = re.fullmatch(r"s_(\w+?)(?:_([biu]\d\d))(?:_[bi]\d\d)?", mnemonic)
    if not found:
        raise Unsupported(text)
    base, kind = found[1], found[2]
    words = 2 if kind.endswith("64") else 1
    if base in ("bitcmp0", "bitcmp1"):
        a, b = read_scalar(operands[0], words), read_scalar(operands[1])

        def test(w):
            w.scc = int((a(w) >> (b(w) & 32 * words - 1) & 1) == int(base[-1]))
        return test
    if base in ("bitset0", "bitset1"):
        a, b, write = read_scalar(operands[0], words), read_scalar(operands[1]), write_scalar(operands[0], words)
        return lambda w: write(w, a(w) | 1 << (b(w) & 31) if base[-1] == "1" else a(w) & ~(1 << (b(w) & 31)))
    if base in ("add", "sub", "addc", "subb") and words == 1:
        return bind_sum(base, kind, operands)
    one_word = base in ("lshl", "lshr", "ashr", "bfe", "bfm") or base.startswith("pack")
    a = read_scalar(operands[1], 1 if base == "bfm" else words)
    b = read_scalar(operands[2], 1 if one_word else words) if len(operands) > 2 else lambda w: 0
    # Counts of 64 bits fit one register.
    narrow = base in ("bcnt0", "bcnt1", "ff1", "ctz", "flbit", "clz")
    write = write_scalar(operands[0], 1 if narrow else words)
    limit = (1 << 32 * words) - 1
    if base == "cselect":
        return lambda w: write(w, a(w) if w.scc else b(w))
    if base == "cmov":
        old = read_scalar(operands[0], words)
        return lambda w: write(w, a(w) if w.scc else old(w))
    if base in ("min", "max"):
        choose, signed = (min if base == "min" else max), kind == "i32"

        def pick(w):
            x, y = a(w), b(w)
            result = choose(to_signed(x), to_signed(y)) if signed else choose(x, y)
            w.scc = int(result == (to_signed(x) if signed else x))
            write(w, result)
        return pick
    if base == "mul_hi":
        return lambda w: write(w, (to_signed(a(w)) * to_signed(b(w)) if kind == "i32" else a(w) * b(w)) >> 32)
    if base == "sext":
        bits = 8 if mnemonic.endswith("_i8") else 16
        return lambda w: write(w, to_signed(a(w) & (1 << bits) - 1, bits))
    if found := re.fullmatch(r"lshl([1-4])_add", base):
        k = int(found[1])

        def shifted(w):
            total = ((a(w) << k) & M32) + b(w)
            w.scc = int((a(w) << k) + b(w) > M32)
            write(w, total)
        return shifted
    if base in ("bfe", "abs", "absdiff"):
        compute = {"bfe": lambda x, y: field(x, y, 32 * words, kind[0] == "i"), "abs": lambda x, y: abs(to_signed(x)),
                   "absdiff": lambda x, y: abs(to_signed(x) - to_signed(y))}[base]
    elif base in LOGIC or base in SILENT:
        function = LOGIC.get(base) or SILENT[base]
        compute = lambda x, y: function(x, y, 32 * words)  # noqa: E731
    else:
        raise Unsupported(text)
    silent = base in SILENT

    def run(w):
        result = compute(a(w), b(w)) & limit
        if not silent:
            w.scc = int(result != 0)
        write(w, result)
    return run
