"""Vector ALU instructions: a table of plain ones, and functions for those with odd operands."""
import re
from fractions import Fraction

import numpy as np

from .memory import Fault
from .operands import (F, H, I, LANES, U, Unsupported, pairs, read_bits, read_scalar, read_typed, scalar_index, strip_signs,
                       to_bools, to_mask, vector_index, write_scalar, write_typed)

F64, I64, U64 = np.float64, np.int64, np.uint64


def fma(a, b, c):
    """a * b + c of floats, rounded once: the double sum is rounded to odd before it becomes a float."""
    product, addend = a.astype(F64) * b.astype(F64), c.astype(F64)
    total = product + addend
    part = total - product
    error = (product - (total - part)) + (addend - part)
    bits = total.view(I64)
    inexact = (error != 0) & (bits & 1 == 0) & np.isfinite(total)
    return np.where(inexact, bits + np.where((error > 0) == (total > 0), 1, -1), bits).view(F64).astype(F)


def fma_double(a, b, c):
    """The same of doubles, by exact fractions: rare, so slow is fine."""
    def one(x, y, z):
        if not all(np.isfinite(v) for v in (x, y, z)):
            return x * y + z
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        return float(exact) if exact else x * y + z  # the sign of zero is the sum's
    return np.array([one(*values) for values in zip(a, b, c)], F64)


def fma_half(a, b, c):
    return fma(a.astype(F), b.astype(F), c.astype(F)).astype(H)  # the float sum of an exact product: rounding to half once more


def shift(v):
    return v & 31


def to_int(low, high, kind):
    """Float to integer as hardware does: towards zero, clamped, NaN is 0."""
    return lambda a: np.clip(np.nan_to_num(np.trunc(a.astype(F64)), nan=0, posinf=high, neginf=low), low, high).astype(kind)


def count_leading(v):
    """Zeros above the first one bit; ~0 where there is none."""
    return np.array([32 - int(x).bit_length() if x else 0xFFFFFFFF for x in v], U)


def count_trailing(v):
    return np.array([(int(x) & -int(x)).bit_length() - 1 if x else 0xFFFFFFFF for x in v], U)


def count_leading_signed(v):
    return np.array([32 - (~int(x) & 0xFFFFFFFF if x >> 31 else int(x)).bit_length() if int(x) not in (0, 0xFFFFFFFF) else 0xFFFFFFFF
                     for x in v], U)


def reverse(v):
    return np.array([int(f"{int(x):032b}"[::-1], 2) for x in v], U)


def ones(v):
    return np.array([bin(int(x)).count("1") for x in v], U)


def bytes_dot(a, b, c, a_signed=True, b_signed=True):
    total = c.astype(I64)
    for k in range(0, 32, 8):
        x, y = ((v >> U(k) & U(255)).astype(np.uint8) for v in (a, b))
        total = total + (x.view(np.int8) if a_signed else x).astype(I64) * (y.view(np.int8) if b_signed else y).astype(I64)
    return total.astype(U)


def halves(v):
    return (v & U(0xFFFF)).astype(np.uint16).view(H).astype(F), (v >> U(16)).astype(np.uint16).view(H).astype(F)


def permute_bytes(a, b, selector):
    """v_perm_b32: bytes of a (4 to 7) and b (0 to 3), 12 is 0, above is 255."""
    both = a.astype(U64) << U64(32) | b
    result = np.zeros(32, U)
    for k in range(4):
        which = selector >> U(8 * k) & U(255)
        if np.any((which >= 8) & (which < 12)):
            raise Unsupported("v_perm_b32 of sign bytes")
        byte = (both >> (np.minimum(which, 7) * U(8)).astype(U64) & U64(255)).astype(U)
        result |= np.where(which < 8, byte, np.where(which == 12, U(0), U(255))) << U(8 * k)
    return result


def frexp_exponent(a):
    return np.where(np.isfinite(a), np.frexp(a)[1], 0).astype(I)


def median(a, b, c):
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def pack_halves_toward_zero(a, b):
    def cut(v):
        h = v.astype(H)
        over = np.abs(h.astype(F)) > np.abs(v)
        return np.where(over, h.view(np.uint16) - np.uint16(1), h.view(np.uint16)).astype(U)
    return cut(a) | cut(b) << U(16)


def div_fixup(quotient, d, n):
    sign = np.signbit(d) ^ np.signbit(n)
    result = np.where(sign, -np.abs(quotient), np.abs(quotient))
    zero, infinite = np.where(sign, F(-0.0), F(0)), np.where(sign, F(-np.inf), F(np.inf))
    result = np.where((d == 0) | np.isinf(n), infinite, np.where((n == 0) | np.isinf(d), zero, result))
    bad = np.isnan(d) | np.isnan(n) | ((d == 0) & (n == 0)) | (np.isinf(d) & np.isinf(n))
    return np.where(bad, F(np.nan), result).astype(F)


# mnemonic: (kind written, kinds read, function). Kinds as in operands.read_typed; "@" reads what is written.
TABLE = {
    "v_mov_b32": ("u", "u", lambda a: a),
    "v_not_b32": ("u", "u", lambda a: ~a),
    "v_and_b32": ("u", "uu", lambda a, b: a & b),
    "v_or_b32": ("u", "uu", lambda a, b: a | b),
    "v_xor_b32": ("u", "uu", lambda a, b: a ^ b),
    "v_xnor_b32": ("u", "uu", lambda a, b: ~(a ^ b)),
    "v_lshlrev_b32": ("u", "uu", lambda a, b: b << shift(a)),
    "v_lshrrev_b32": ("u", "uu", lambda a, b: b >> shift(a)),
    "v_ashrrev_i32": ("i", "ui", lambda a, b: b >> shift(a).view(I)),
    "v_lshlrev_b64": ("U", "uU", lambda a, b: b << (a & 63).astype(U64)),
    "v_lshrrev_b64": ("U", "uU", lambda a, b: b >> (a & 63).astype(U64)),
    "v_ashrrev_i64": ("I", "uI", lambda a, b: b >> (a & 63).astype(I64)),
    "v_add_nc_u32": ("u", "uu", lambda a, b: a + b),
    "v_sub_nc_u32": ("u", "uu", lambda a, b: a - b),
    "v_subrev_nc_u32": ("u", "uu", lambda a, b: b - a),
    "v_add_nc_i32": ("u", "uu", lambda a, b: a + b),
    "v_sub_nc_i32": ("u", "uu", lambda a, b: a - b),
    "v_add3_u32": ("u", "uuu", lambda a, b, c: a + b + c),
    "v_xad_u32": ("u", "uuu", lambda a, b, c: (a ^ b) + c),
    "v_lshl_or_b32": ("u", "uuu", lambda a, b, c: a << shift(b) | c),
    "v_lshl_add_u32": ("u", "uuu", lambda a, b, c: (a << shift(b)) + c),
    "v_add_lshl_u32": ("u", "uuu", lambda a, b, c: (a + b) << shift(c)),
    "v_and_or_b32": ("u", "uuu", lambda a, b, c: a & b | c),
    "v_or3_b32": ("u", "uuu", lambda a, b, c: a | b | c),
    "v_xor3_b32": ("u", "uuu", lambda a, b, c: a ^ b ^ c),
    "v_bfe_u32": ("u", "uuu", lambda a, b, c: a >> shift(b) & ((U(1) << shift(c)) - U(1))),
    "v_bfe_i32": ("i", "iuu", lambda a, b, c: field_signed(a, b, c)),
    "v_bfi_b32": ("u", "uuu", lambda a, b, c: a & b | ~a & c),
    "v_bfm_b32": ("u", "uu", lambda a, b: ((U(1) << shift(a)) - U(1)) << shift(b)),
    "v_bfrev_b32": ("u", "u", reverse),
    "v_bcnt_u32_b32": ("u", "uu", lambda a, b: ones(a) + b),
    "v_ffbh_u32": ("u", "u", count_leading), "v_clz_i32_u32": ("u", "u", count_leading),
    "v_ffbl_b32": ("u", "u", count_trailing), "v_ctz_i32_b32": ("u", "u", count_trailing),
    "v_ffbh_i32": ("u", "u", count_leading_signed), "v_cls_i32": ("u", "u", count_leading_signed),
    "v_alignbit_b32": ("u", "uuu", lambda a, b, c: ((a.astype(U64) << U64(32) | b) >> shift(c).astype(U64)).astype(U)),
    "v_alignbyte_b32": ("u", "uuu", lambda a, b, c: ((a.astype(U64) << U64(32) | b) >> ((c & 3) * 8).astype(U64)).astype(U)),
    "v_perm_b32": ("u", "uuu", permute_bytes),
    "v_mul_u32_u24": ("u", "uu", lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF)),
    "v_mul_i32_i24": ("u", "uu", lambda a, b: (a << U(8)).view(I) // 256 * ((b << U(8)).view(I) // 256)),
    "v_mad_u32_u24": ("u", "uuu", lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c),
    "v_mad_i32_i24": ("i", "uui", lambda a, b, c: (a << U(8)).view(I) // 256 * ((b << U(8)).view(I) // 256) + c),
    "v_mul_lo_u32": ("u", "uu", lambda a, b: a * b),
    "v_mul_hi_u32": ("u", "uu", lambda a, b: (a.astype(U64) * b.astype(U64) >> U64(32)).astype(U)),
    "v_mul_hi_i32": ("u", "ii", lambda a, b: (a.astype(I64) * b.astype(I64) >> 32).astype(U)),
    "v_min_u32": ("u", "uu", np.minimum), "v_max_u32": ("u", "uu", np.maximum),
    "v_min_i32": ("i", "ii", np.minimum), "v_max_i32": ("i", "ii", np.maximum),
    "v_min3_u32": ("u", "uuu", lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    "v_max3_u32": ("u", "uuu", lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    "v_min3_i32": ("i", "iii", lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    "v_max3_i32": ("i", "iii", lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    "v_med3_i32": ("i", "iii", median), "v_med3_u32": ("u", "uuu", median), "v_med3_f32": ("f", "fff", median),
    "v_dot4c_i32_i8": ("u", "uu@", lambda a, b, c: bytes_dot(a, b, c.view(I))),
    "v_dot4_i32_i8": ("u", "uui", bytes_dot),
    "v_dot4_u32_u8": ("u", "uuu", lambda a, b, c: bytes_dot(a, b, c, False, False)),
    "v_dot2c_f32_f16": ("f", "uu@", lambda a, b, c: dot_halves(a, b, c.view(F))),
    "v_dot2acc_f32_f16": ("f", "uu@", lambda a, b, c: dot_halves(a, b, c.view(F))),
    "v_dot2_f32_f16": ("f", "uuf", lambda a, b, c: dot_halves(a, b, c)),
    "v_add_f32": ("f", "ff", lambda a, b: a + b),
    "v_sub_f32": ("f", "ff", lambda a, b: a - b),
    "v_subrev_f32": ("f", "ff", lambda a, b: b - a),
    "v_mul_f32": ("f", "ff", lambda a, b: a * b),
    "v_fma_f32": ("f", "fff", fma), "v_fmac_f32": ("f", "ff@", lambda a, b, c: fma(a, b, c.view(F))),
    "v_fmaak_f32": ("f", "fff", fma), "v_fmamk_f32": ("f", "fff", fma),
    "v_max_f32": ("f", "ff", np.fmax), "v_min_f32": ("f", "ff", np.fmin),
    "v_max3_f32": ("f", "fff", lambda a, b, c: np.fmax(np.fmax(a, b), c)),
    "v_min3_f32": ("f", "fff", lambda a, b, c: np.fmin(np.fmin(a, b), c)),
    "v_rcp_f32": ("f", "f", lambda a: (1 / a.astype(F64)).astype(F)),
    "v_rcp_iflag_f32": ("f", "f", lambda a: (1 / a.astype(F64)).astype(F)),
    "v_rsq_f32": ("f", "f", lambda a: (1 / np.sqrt(a.astype(F64))).astype(F)),
    "v_sqrt_f32": ("f", "f", np.sqrt),
    "v_exp_f32": ("f", "f", lambda a: np.exp2(a.astype(F64)).astype(F)),
    "v_log_f32": ("f", "f", lambda a: np.log2(a.astype(F64)).astype(F)),
    "v_sin_f32": ("f", "f", lambda a: np.sin(2 * np.pi * a.astype(F64)).astype(F)),
    "v_cos_f32": ("f", "f", lambda a: np.cos(2 * np.pi * a.astype(F64)).astype(F)),
    "v_fract_f32": ("f", "f", lambda a: a - np.floor(a)),
    "v_trunc_f32": ("f", "f", np.trunc), "v_floor_f32": ("f", "f", np.floor), "v_ceil_f32": ("f", "f", np.ceil),
    "v_rndne_f32": ("f", "f", np.rint),
    "v_ldexp_f32": ("f", "fi", lambda a, b: np.ldexp(a.astype(F64), b).astype(F)),
    "v_frexp_mant_f32": ("f", "f", lambda a: np.frexp(a)[0].astype(F)),
    "v_frexp_exp_i32_f32": ("i", "f", frexp_exponent),
    "v_div_fixup_f32": ("f", "fff", div_fixup),
    "v_cvt_f32_i32": ("f", "i", lambda a: a.astype(F)), "v_cvt_f32_u32": ("f", "u", lambda a: a.astype(F)),
    "v_cvt_i32_f32": ("i", "f", to_int(-2**31, 2**31 - 1, I)), "v_cvt_u32_f32": ("u", "f", to_int(0, 2**32 - 1, U)),
    "v_cvt_flr_i32_f32": ("i", "f", lambda a: to_int(-2**31, 2**31 - 1, I)(np.floor(a))),
    "v_cvt_f32_f16": ("f", "h", lambda a: a.astype(F)), "v_cvt_f16_f32": ("h", "f", lambda a: a.astype(H)),
    "v_cvt_f16_u16": ("h", "w", lambda a: a.astype(H)), "v_cvt_f16_i16": ("h", "k", lambda a: a.astype(H)),
    "v_cvt_i16_f16": ("k", "h", to_int(-32768, 32767, np.int16)), "v_cvt_u16_f16": ("w", "h", to_int(0, 65535, np.uint16)),
    "v_cvt_pkrtz_f16_f32": ("u", "ff", pack_halves_toward_zero), "v_cvt_pk_rtz_f16_f32": ("u", "ff", pack_halves_toward_zero),
    "v_cvt_f32_ubyte0": ("f", "u", lambda a: (a & 255).astype(F)),
    "v_cvt_f32_ubyte1": ("f", "u", lambda a: (a >> U(8) & 255).astype(F)),
    "v_cvt_f32_ubyte2": ("f", "u", lambda a: (a >> U(16) & 255).astype(F)),
    "v_cvt_f32_ubyte3": ("f", "u", lambda a: (a >> U(24)).astype(F)),
    "v_pack_b32_f16": ("u", "ww", lambda a, b: a.astype(U) | b.astype(U) << U(16)),
    "v_add_f16": ("h", "hh", lambda a, b: a + b), "v_sub_f16": ("h", "hh", lambda a, b: a - b),
    "v_mul_f16": ("h", "hh", lambda a, b: a * b), "v_max_f16": ("h", "hh", np.fmax), "v_min_f16": ("h", "hh", np.fmin),
    "v_fma_f16": ("h", "hhh", fma_half), "v_fmac_f16": ("h", "hh@", fma_half), "v_mov_b16": ("w", "w", lambda a: a),
    "v_add_nc_u16": ("w", "ww", lambda a, b: a + b), "v_sub_nc_u16": ("w", "ww", lambda a, b: a - b),
    "v_mul_lo_u16": ("w", "ww", lambda a, b: a * b), "v_mad_u16": ("w", "www", lambda a, b, c: a * b + c),
    "v_lshlrev_b16": ("w", "ww", lambda a, b: b << (a & 15)), "v_lshrrev_b16": ("w", "ww", lambda a, b: b >> (a & 15)),
    "v_ashrrev_i16": ("k", "wk", lambda a, b: b >> (a & 15).astype(np.int16)),
    "v_min_u16": ("w", "ww", np.minimum), "v_max_u16": ("w", "ww", np.maximum),
    "v_min_i16": ("k", "kk", np.minimum), "v_max_i16": ("k", "kk", np.maximum),
    "v_and_b16": ("w", "ww", lambda a, b: a & b), "v_or_b16": ("w", "ww", lambda a, b: a | b), "v_xor_b16": ("w", "ww", lambda a, b: a ^ b),
    "v_add_f64": ("D", "DD", lambda a, b: a + b), "v_mul_f64": ("D", "DD", lambda a, b: a * b), "v_fma_f64": ("D", "DDD", lambda a, b, c: fma_double(a, b, c)),
    "v_max_f64": ("D", "DD", np.fmax), "v_min_f64": ("D", "DD", np.fmin), "v_rcp_f64": ("D", "D", lambda a: 1 / a),
    "v_cvt_f64_f32": ("D", "f", lambda a: a.astype(F64)), "v_cvt_f32_f64": ("f", "D", lambda a: a.astype(F)),
    "v_cvt_f64_u32": ("D", "u", lambda a: a.astype(F64)), "v_cvt_f64_i32": ("D", "i", lambda a: a.astype(F64)),
    "v_cvt_u32_f64": ("u", "D", to_int(0, 2**32 - 1, U)), "v_cvt_i32_f64": ("i", "D", to_int(-2**31, 2**31 - 1, I)),
    "v_ldexp_f64": ("D", "Di", np.ldexp), "v_div_fixup_f64": ("D", "DDD", lambda q, d, n: n / d),
    "v_maxmin_u32": ("u", "uuu", lambda a, b, c: np.minimum(np.maximum(a, b), c)), "v_minmax_u32": ("u", "uuu", lambda a, b, c: np.maximum(np.minimum(a, b), c)),
    "v_maxmin_i32": ("i", "iii", lambda a, b, c: np.minimum(np.maximum(a, b), c)), "v_minmax_i32": ("i", "iii", lambda a, b, c: np.maximum(np.minimum(a, b), c)),
    "v_maxmin_f32": ("f", "fff", lambda a, b, c: np.fmin(np.fmax(a, b), c)), "v_minmax_f32": ("f", "fff", lambda a, b, c: np.fmax(np.fmin(a, b), c)),
    "v_sad_u32": ("u", "uuu", lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c),
}


def field_signed(a, offset, width):
    width = shift(width).view(I)
    up = (I(32) - width - shift(offset).view(I)).clip(0)
    return np.where(width == 0, 0, (a << up) >> (I(32) - width).clip(0, 31)).astype(I)


def dot_halves(a, b, c):
    (a0, a1), (b0, b1) = halves(a), halves(b)
    return fma(a1, b1, fma(a0, b0, c))


COMPARE = {"f": lambda a, b: np.zeros(32, bool), "t": lambda a, b: np.ones(32, bool), "tru": lambda a, b: np.ones(32, bool),
           "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
           "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "neq": lambda a, b: ~(a == b), "lg": lambda a, b: (a < b) | (a > b),
           "nlg": lambda a, b: ~((a < b) | (a > b)), "o": lambda a, b: (a == a) & (b == b), "u": lambda a, b: (a != a) | (b != b),
           "nlt": lambda a, b: ~(a < b), "nle": lambda a, b: ~(a <= b), "ngt": lambda a, b: ~(a > b), "nge": lambda a, b: ~(a >= b)}
KINDS = {"f32": "f", "i32": "i", "u32": "u", "i64": "I", "u64": "U", "f64": "D", "f16": "h", "i16": "k", "u16": "w"}


def classes(a, wanted):
    """v_cmp_class_f32: bits of `wanted` name the classes that count."""
    negative, magnitude = np.signbit(a), np.abs(a)
    quiet = a.view(U) & U(0x400000) != 0
    result = np.isnan(a) & np.where(quiet, wanted & 2 != 0, wanted & 1 != 0)
    tiny = F(np.finfo(F).tiny)
    for test, minus, plus in ((np.isinf(a), 4, 512), (np.isfinite(a) & (magnitude >= tiny), 8, 256),
                              ((magnitude < tiny) & (magnitude > 0), 16, 128), (magnitude == 0, 32, 64)):
        result |= test & np.where(negative, wanted & minus != 0, wanted & plus != 0)
    return result


def bind_compare(mnemonic, operands, modifiers):
    into_exec, how, kind = re.fullmatch(r"v_cmp(x?)_(\w+)_(\w\d\d)", mnemonic).groups()
    a, b = operands[-2:]
    target = "exec_lo" if into_exec else operands[0] if len(operands) == 3 else "vcc_lo"
    write = write_scalar(target)
    if how == "class":
        read_a, read_b, test = read_typed(a, "f"), read_typed(b, "u"), classes
    else:
        bits = [None, None]
        if any(key.startswith("src") for key in modifiers):
            bits = [sdwa_bits(a, modifiers.get("src0_sel", "DWORD")), sdwa_bits(b, modifiers.get("src1_sel", "DWORD"))]
        select = pairs(modifiers, "op_sel", (0, 0, 0))
        kind = KINDS[kind]
        read_a, read_b = read_typed(a, kind, select[0], bits[0]), read_typed(b, kind, select[1], bits[1])
        test = COMPARE[how]
    return lambda w: write(w, to_mask(test(read_a(w), read_b(w)) & w.active))


def sdwa_bits(name, select):
    """A source with a byte or a half of it selected."""
    found = re.fullmatch(r"-?\|?sext\((.*)\)\|?", name)
    bare = strip_signs(found[1] if found else name)[0]
    raw = read_bits(bare)
    if select == "DWORD":
        return raw
    kind, at = select.split("_")
    low, view = (U(8 * int(at)), np.int8) if kind == "BYTE" else (U(16 * int(at)), np.int16)
    unsigned = np.uint8 if kind == "BYTE" else np.uint16
    if found:
        return lambda w: (raw(w) >> low).astype(unsigned).view(view).astype(I).view(U)
    return lambda w: (raw(w) >> low).astype(unsigned).astype(U)


def sdwa_writer(name, kind, modifiers):
    """A destination of which only a byte or half is written."""
    select, unused = modifiers.get("dst_sel", "DWORD"), modifiers.get("dst_unused", "UNUSED_PAD")
    if select == "DWORD":
        return write_typed(name, kind, modifiers)
    part, at = select.split("_")
    width = 8 if part == "BYTE" else 16
    low, mask = U(width * int(at)), U((1 << width) - 1)
    write, index = write_typed(name, "u"), vector_index(name)
    if unused not in ("UNUSED_PAD", "UNUSED_PRESERVE"):
        raise Unsupported(unused)

    def run(w, value, only=None):
        value = (value.view(np.uint16).astype(U) if kind in "hwk" else value.view(U)) & mask
        old = w.v[index] & ~(mask << low) if unused == "UNUSED_PRESERVE" else U(0)
        write(w, old | value << low, only)
    return run


def dpp_source(name, modifiers):
    """(read of the permuted register, function giving the lanes that are written)."""
    bare = strip_signs(name)[0]
    index = vector_index(bare)
    lane = LANES
    row, column = lane & 16, lane & 15
    simple = {"row_xmask": lambda k: row | column ^ k, "row_share": lambda k: row | np.full(32, k), "row_ror": lambda k: row | (column - k) & 15,
              "row_shr": lambda k: np.where(column >= k, lane - k, -1), "row_shl": lambda k: np.where(column + k < 16, lane + k, -1)}
    key = next((k for k in modifiers if k in simple), None)
    if key:
        source = simple[key](int(modifiers[key]))
    elif "quad_perm" in modifiers:
        source = lane & 28 | np.array(pairs(modifiers, "quad_perm", ()))[lane & 3]
    elif "dpp8" in modifiers:
        source = lane & 24 | np.array(pairs(modifiers, "dpp8", ()))[lane & 7]
    elif "row_mirror" in modifiers or "row_half_mirror" in modifiers:
        source = lane ^ (15 if "row_mirror" in modifiers else 7)
    else:
        raise Unsupported(f"lane permutation {modifiers}")
    rows, banks = int(modifiers.get("row_mask", "0xf"), 0), int(modifiers.get("bank_mask", "0xf"), 0)
    enabled = (rows >> (lane >> 4) & 1 == 1) & (banks >> (lane >> 2 & 3) & 1 == 1)
    zero_fill = "bound_ctrl" in modifiers
    fetch_inactive = modifiers.get("fi") == "1"
    inside = source >= 0
    source = np.where(inside, source, 0)

    def valid(w):
        return inside if fetch_inactive else inside & w.active[source]

    def read(w):
        return np.where(valid(w), w.v[index][source], U(0))
    return read, lambda w: enabled if zero_fill else enabled & valid(w)


# With the clamp modifier, sums of integers saturate.
SATURATING = {
    "v_add_nc_u32": ("u", "uu", lambda a, b: np.minimum(a.astype(I64) + b, 2**32 - 1).astype(U)),
    "v_sub_nc_u32": ("u", "uu", lambda a, b: np.maximum(a.astype(I64) - b, 0).astype(U)),
    "v_subrev_nc_u32": ("u", "uu", lambda a, b: np.maximum(b.astype(I64) - a, 0).astype(U)),
    "v_add_nc_i32": ("i", "ii", lambda a, b: np.clip(a.astype(I64) + b, -2**31, 2**31 - 1).astype(I)),
    "v_sub_nc_i32": ("i", "ii", lambda a, b: np.clip(a.astype(I64) - b, -2**31, 2**31 - 1).astype(I)),
}


def bind_plain(mnemonic, operands, modifiers, form):
    """(compute, write) of an instruction of the table."""
    written, kinds, function = TABLE[mnemonic]
    if "clamp" in modifiers and mnemonic in SATURATING:
        written, kinds, function = SATURATING[mnemonic]
        modifiers = {key: value for key, value in modifiers.items() if key != "clamp"}
    accumulate = kinds.endswith("@")
    kinds = kinds.rstrip("@")
    if len(operands) != 1 + len(kinds):
        raise Unsupported(f"{mnemonic} of {len(operands)} operands")
    if any(key in modifiers for key in ("neg_lo", "neg_hi", "op_sel_hi")):
        raise Unsupported(f"{mnemonic} with packed modifiers")
    select = pairs(modifiers, "op_sel", (0,) * (len(kinds) + 1)) if "op_sel" in modifiers else [0] * 4
    bits = [None] * len(kinds)
    only = None
    if form == "dpp":
        bits[0], only = dpp_source(operands[1], modifiers)
    elif form == "sdwa":
        bits = [sdwa_bits(name, modifiers.get(f"src{i}_sel", "DWORD")) for i, name in enumerate(operands[1:])]
        operands = [re.sub(r"sext\((.*)\)", r"\1", name) for name in operands]
    reads = [read_typed(name, kind, select[i], bits[i]) for i, (name, kind) in enumerate(zip(operands[1:], kinds))]
    if accumulate:
        reads.append(read_typed(operands[0], written if written == "h" else "u"))
    if form == "sdwa":
        write = sdwa_writer(operands[0], written, modifiers)
    else:
        write = write_typed(operands[0], written, modifiers, select[len(kinds)] if len(select) > len(kinds) else 0)
    if len(reads) == 1:
        first = reads[0]
        compute = lambda w: function(first(w))  # noqa: E731
    elif len(reads) == 2:
        first, second = reads
        compute = lambda w: function(first(w), second(w))  # noqa: E731
    else:
        compute = lambda w: function(*[read(w) for read in reads])  # noqa: E731
    if only is None:
        return compute, write
    return compute, lambda w, value: write(w, value, only(w))


def bind_packed(mnemonic, operands, modifiers):
    """v_pk_*: the same for both halves, each chosen by op_sel and op_sel_hi."""
    plain = mnemonic.replace("v_pk_", "v_")
    plain = {"v_add_u16": "v_add_nc_u16", "v_sub_u16": "v_sub_nc_u16", "v_add_i16": "v_add_nc_u16", "v_sub_i16": "v_sub_nc_u16"}.get(plain, plain)
    if plain not in TABLE:
        raise Unsupported(mnemonic)
    kind, kinds, function = TABLE[plain]
    kinds = kinds.rstrip("@")
    n = len(kinds)
    low, high = pairs(modifiers, "op_sel", [0] * n), pairs(modifiers, "op_sel_hi", [1] * n)
    negate = pairs(modifiers, "neg_lo", [0] * n), pairs(modifiers, "neg_hi", [0] * n)

    def reader(name, k, where, minus):
        # A constant stands in the low half; its high half is zero.
        read = read_typed(name, k, where)
        return (lambda w: -read(w)) if minus else read
    reads = [[reader(name, k, half[i], negate[h][i]) for i, (name, k) in enumerate(zip(operands[1:], kinds))]
             for h, half in enumerate((low, high))]
    write = write_typed(operands[0], "u")

    def run(w):
        bottom, top = (function(*[read(w) for read in side]).view(np.uint16).astype(U) for side in reads)
        write(w, bottom | top << U(16))
    return run


def bind_mix(mnemonic, operands, modifiers):
    """v_fma_mix*: floats and halves in one fma; op_sel_hi says which are halves, op_sel which half."""
    select, half = pairs(modifiers, "op_sel", (0, 0, 0)), pairs(modifiers, "op_sel_hi", (0, 0, 0))
    reads = []
    for i, name in enumerate(operands[1:]):
        if half[i]:
            inner = read_typed(name, "h", select[i])
            reads.append(lambda w, inner=inner: inner(w).astype(F))
        else:
            reads.append(read_typed(name, "f"))
    if mnemonic == "v_fma_mix_f32":
        write = write_typed(operands[0], "f", modifiers)
        return lambda w: write(w, fma(*[read(w) for read in reads]))
    write = write_typed(operands[0], "h", modifiers, int(mnemonic == "v_fma_mixhi_f16"))
    return lambda w: write(w, fma(*[read(w) for read in reads]).astype(H))


def bind_special(mnemonic, operands, modifiers):
    """Instructions with scalar results, carries or lane numbers."""
    bits = [read_bits(name) if not name.startswith("|") and (vector_index(name) is not None or scalar_index(name) is not None or name[0] in "-0123456789")
            and strip_signs(name)[0] == name else None for name in operands]
    if mnemonic in ("v_add_co_u32", "v_sub_co_u32", "v_subrev_co_u32", "v_add_co_ci_u32", "v_sub_co_ci_u32", "v_subrev_co_ci_u32"):
        write, carry = write_typed(operands[0], "u"), write_scalar(operands[1])
        carried = read_scalar(operands[4]) if "_ci_" in mnemonic else lambda w: 0
        a, b = (bits[3], bits[2]) if "rev" in mnemonic else (bits[2], bits[3])
        sign = 1 if "add" in mnemonic else -1

        def run(w):
            total = a(w).astype(I64) + sign * (b(w).astype(I64) + to_bools(carried(w)))
            carry(w, to_mask((total >> 32 != 0) & w.active))
            write(w, total.astype(U))
        return run
    if mnemonic in ("v_mad_u64_u32", "v_mad_i64_i32"):
        kind = "u" if "u64" in mnemonic else "i"
        a, b, c = read_typed(operands[2], kind), read_typed(operands[3], kind), read_typed(operands[4], "U")
        write, carry = write_typed(operands[0], "U"), write_scalar(operands[1])
        wide = U64 if kind == "u" else I64

        def run(w):
            product, addend = (a(w).astype(wide) * b(w).astype(wide)).view(U64), c(w)
            total = product + addend
            carry(w, to_mask((total < product) & w.active))
            write(w, total)
        return run
    if mnemonic == "v_cndmask_b32":
        read_a, read_b = read_typed(operands[1], "f" if re.search(r"[|]|^-[vs]", operands[1]) else "u"), read_typed(operands[2], "f" if re.search(r"[|]|^-[vs]", operands[2]) else "u")
        mask, write = read_scalar(operands[3] if len(operands) > 3 else "vcc_lo"), write_typed(operands[0], "u")
        return lambda w: write(w, np.where(to_bools(mask(w)), read_b(w).view(U), read_a(w).view(U)))
    if mnemonic == "v_readfirstlane_b32":
        write = write_scalar(operands[0])
        return lambda w: write(w, int(bits[1](w)[int(np.argmax(w.active))]))
    if mnemonic == "v_readlane_b32":
        write, which = write_scalar(operands[0]), read_scalar(operands[2])
        return lambda w: write(w, int(bits[1](w)[which(w) & 31]))
    if mnemonic == "v_writelane_b32":
        value, which, index = read_scalar(operands[1]), read_scalar(operands[2]), vector_index(operands[0])

        def run(w):
            w.v[index][which(w) & 31] = value(w)
        return run
    if mnemonic in ("v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32"):
        write = write_typed(operands[0], "u")
        below = ((U64(1) << LANES.astype(U64)) - U64(1)).astype(U) if "lo" in mnemonic else np.zeros(32, U)
        return lambda w: write(w, ones(bits[1](w) & below) + bits[2](w))
    if mnemonic in ("v_permlanex16_b32", "v_permlane16_b32"):
        write, low, high = write_typed(operands[0], "u"), read_scalar(operands[2]), read_scalar(operands[3])
        other = 16 if "x16" in mnemonic else 0

        def run(w):
            table = low(w) | high(w) << 32
            source = np.array([(lane & 16 ^ other) | table >> 4 * (lane & 15) & 15 for lane in range(32)])
            w.check_sources(source, mnemonic)
            write(w, bits[1](w)[source])
        return run
    if mnemonic == "v_dot4_i32_iu8":
        first, second = pairs(modifiers, "neg_lo", (0, 0, 0))[:2]
        write = write_typed(operands[0], "u", modifiers)
        return lambda w: write(w, bytes_dot(bits[1](w), bits[2](w), bits[3](w).view(I), bool(first), bool(second)))
    if mnemonic == "v_div_scale_f64":
        # Not scaled, and the fixup takes the exact quotient: the same for numbers far from the ends of the range.
        read, write, flag = read_typed(operands[2], "D"), write_typed(operands[0], "D"), write_scalar(operands[1])

        def keep(w):
            write(w, read(w).copy())
            flag(w, 0)
        return keep
    if mnemonic == "v_div_fmas_f64":
        reads, write = [read_typed(name, "D") for name in operands[1:]], write_typed(operands[0], "D")
        return lambda w: write(w, fma_double(*[read(w) for read in reads]))
    if mnemonic == "v_div_scale_f32":
        return bind_div_scale(operands)
    if mnemonic == "v_div_fmas_f32":
        reads, write = [read_typed(name, "f") for name in operands[1:]], write_typed(operands[0], "f")

        def run(w):
            a, b, c = (read(w) for read in reads)
            scale = np.where(to_bools(w.s[106]), np.where((c.view(U) >> U(23) & 255) > 127, F64(2.0**64), F64(2.0**-64)), F64(1))
            write(w, (fma(a, b, c).astype(F64) * scale).astype(F))
        return run
    if mnemonic == "v_swap_b32":
        a, b = vector_index(operands[0]), vector_index(operands[1])

        def run(w):
            old = w.v[a].copy()
            w.v[a][w.active] = w.v[b][w.active]
            w.v[b][w.active] = old[w.active]
        return run
    raise Unsupported(mnemonic)


def bind_div_scale(operands):
    """Numbers whose quotient would over- or underflow on the way are scaled; vcc says that the result must be."""
    write, flag = write_typed(operands[0], "f"), write_scalar(operands[1])
    reads = [read_typed(name, "f") for name in operands[2:]]

    def run(w):
        value, d, n = (read(w) for read in reads)
        exponent = lambda v: (v.view(U) >> U(23) & U(255)).astype(I)  # noqa: E731
        up, down = (value.astype(F64) * 2.0**64).astype(F), (value.astype(F64) * 2.0**-64).astype(F)
        tiny = lambda v: (np.abs(v) < 2.0**-126) & (v != 0)  # noqa: E731
        inverse, quotient = 1 / d.astype(F64), n.astype(F64) / d.astype(F64)
        same_d, same_n = value == d, value == n
        cases = [((n == 0) | (d == 0), np.full(32, F(np.nan)), False), (exponent(n) - exponent(d) >= 96, np.where(same_d, up, value), True),
                 (tiny(d), up, False), (tiny(inverse) & tiny(quotient), np.where(same_d, up, value), True), (tiny(inverse), down, False),
                 (tiny(quotient), np.where(same_n, up, value), True), (exponent(n) <= 23, up, False)]
        result, scaled, open_ = value.copy(), np.zeros(32, bool), np.ones(32, bool)
        for test, then, flagged in cases:
            result = np.where(open_ & test, then, result)
            scaled |= open_ & test & flagged
            open_ &= ~test
        write(w, result.astype(F))
        flag(w, to_mask(scaled & w.active))
    return run


def bind(mnemonic, operands, modifiers):
    """A function that executes one vector instruction on a wave."""
    form = next((f for f in ("dpp", "sdwa", "dpp8") if mnemonic.endswith("_" + f)), None)
    mnemonic = re.sub(r"(_e32|_e64)?(_dpp8|_dpp|_sdwa)?$", "", mnemonic)
    form = "dpp" if form == "dpp8" else form
    if mnemonic.startswith("v_cmp"):
        if form == "dpp":
            raise Unsupported(mnemonic)
        return bind_compare(mnemonic, operands, modifiers)
    if mnemonic.startswith("v_fma_mix"):
        return bind_mix(mnemonic, operands, modifiers)
    if mnemonic.startswith("v_pk_"):
        return bind_packed(mnemonic, operands, modifiers)
    if mnemonic in TABLE:
        compute, write = bind_plain(mnemonic, operands, modifiers, form)
        return lambda w: write(w, compute(w))
    if form:
        raise Unsupported(mnemonic)
    return bind_special(mnemonic, operands, modifiers)


def bind_dual(parts):
    """Two instructions of one word (VOPD): both read the registers of before."""
    bound = []
    for mnemonic, operands, modifiers in parts:
        plain = re.sub(r"^v_dual_", "v_", mnemonic)
        if plain == "v_cndmask_b32":
            read_a, read_b = read_typed(operands[1], "u"), read_typed(operands[2], "u")
            mask = read_scalar(operands[3] if len(operands) > 3 else "vcc_lo")
            bound.append((lambda w, a=read_a, b=read_b, m=mask: np.where(to_bools(m(w)), b(w), a(w)), write_typed(operands[0], "u")))
        elif plain in TABLE:
            bound.append(bind_plain(plain, operands, modifiers, None))
        else:
            raise Unsupported(mnemonic)
    (compute_x, write_x), (compute_y, write_y) = bound

    def run(w):
        x, y = compute_x(w).copy(), compute_y(w).copy()
        write_x(w, x)
        write_y(w, y)
    return run


__all__ = ["bind", "bind_dual", "fma", "Fault"]
