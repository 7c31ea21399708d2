"""The Q1_0 kernels: rows to bytes, products with norm and residual, bytes of the outcome, rows of the matrix; partial units
throughout."""
import numpy as np

from case import F, Fault, KernelCase, U, U64, every_target, launch
from rdna import reference

NO_UNIT, FUSE_ADD = U(0xFFFFFFFF), U(1)
EPS = F(1e-6)
Bytes = reference.Bytes


def place_signs(bits):
    """Column c of a group of 128 to byte c % 16, bit c / 32 + 4 * (c / 16 % 2)."""
    halves = bits.reshape(*bits.shape[:-1], 4, 2, 16)                       # tile, half, byte
    return np.packbits(np.moveaxis(halves, -1, -3).swapaxes(-1, -2).reshape(*bits.shape[:-1], 16, 8), axis=-1, bitorder="little")[..., 0]


class Weights:
    """A matrix in the kernels' layout: pairs of tiles of 16 rows, scales behind the signs; rows that fill the last pair have
    zero scales."""

    def __init__(self, rng, rows, groups):
        self.rows, self.groups = rows, groups
        self.bits = rng.integers(0, 2, (rows, groups, 128), dtype=np.uint8)
        self.scales = (rng.random((rows, groups)) + 0.5).astype(np.float16)
        tiles = -(-rows // 32) * 2
        signs, scales = np.zeros((tiles * 16, groups, 16), np.uint8), np.zeros((tiles * 16, groups), np.float16)
        signs[:rows] = place_signs(self.bits)
        scales[:rows] = self.scales
        self.packed_signs = np.ascontiguousarray(signs.reshape(tiles, 16, groups, 16).swapaxes(1, 2))
        self.packed_scales = np.ascontiguousarray(scales.reshape(tiles, 16, groups).swapaxes(1, 2))
        for array in (self.packed_signs, self.packed_scales):
            array.flags.writeable = False

    def product(self, rows):
        """Bytes (class Bytes) times the matrix, in the order that every kernel follows."""
        bits, codes = self.bits.astype(np.int32).reshape(self.rows, self.groups * 4, 32), rows.codes.astype(np.int32)
        length = -(-self.groups // 32)
        total = np.zeros((len(rows.codes), self.rows), F)
        for begin in range(0, self.groups, length):
            acc = np.zeros_like(total)
            for g in range(begin, min(begin + length, self.groups)):
                base = np.zeros(len(rows.codes), F)
                for t in range(4 * g, 4 * g + 4):
                    base = reference.fma(rows.scale[:, t], rows.sum[:, t], base)
                inner = np.broadcast_to(-base[:, None], total.shape)
                for t in range(4 * g, 4 * g + 4):
                    sums = (codes[:, t] @ bits[:, t].T).astype(F)
                    inner = reference.fma(np.broadcast_to(2 * rows.scale[:, t, None], total.shape), sums, inner)
                acc = reference.fma(np.broadcast_to(self.scales[None, :, g].astype(F), total.shape), inner, acc)
            total = total + acc
        return total


class Product(KernelCase):
    source = "plugins/quant_q1g128/hip/product.hip"

    def arguments(self, weights, x, out, n_rows, normed=False, residual=None, out_bytes=None, out_norm=None):
        matrix = [weights.packed_signs, weights.packed_scales, None, out, U64(out.shape[1]), U(weights.rows), U(0)]
        absent = [None, None, None, None, U64(0), U(0), NO_UNIT]
        codes, scales, squares = out_bytes if out_bytes else (None, None, None)
        return [[matrix, absent, absent, absent], n_rows, x.codes, x.scales(), x.squares if normed else None, None, residual,
                U64(residual.shape[1] if residual is not None else 0), [codes, scales, squares, U64(weights.rows // 32)], out_norm, EPS,
                U(weights.groups), U(1), U(len(x.codes)), U(-(-weights.rows // 32)), FUSE_ADD if residual is not None else U(0)]

    @staticmethod
    def team_waves(groups):
        segments = -(-groups // -(-groups // 32))
        return (segments + 1) // 2

    def shared_bytes(self, rows_at_once, groups, teams=1):
        items = 4 if rows_at_once == 1 else 2
        rounds = 2 if rows_at_once <= 2 else 1
        return rows_at_once * (groups * 160 + 4 * (1 + 64 + teams * items * rounds * 2 * (2 * self.team_waves(groups) + 1) * 16))

    def run_matvec(self, code, name, rows_at_once, groups, n):
        weights = Weights(self.rng, 40, groups)
        x, norm = self.rng.standard_normal((n, groups * 128)).astype(F), self.rng.random(groups * 128, F)
        residual, out = self.rng.standard_normal((n, 40)).astype(F), np.full((n, 40), np.nan, F)
        rows = Bytes(x, norm)
        for teams in (1, 2) if self.team_waves(groups) <= 8 else (1,):
            out[:] = np.nan
            launch(code, name, grid=(3 - teams, -(-n // rows_at_once)), threads=teams * self.team_waves(groups) * 32,
                   shared_bytes=self.shared_bytes(rows_at_once, groups, teams),
                   args=self.arguments(weights, rows, out, np.array([n], U), True, residual))
            self.equal_bits(out, residual + weights.product(rows) * rows.factor(EPS)[:, None])

    @every_target
    def test_one_row(self, code):
        self.run_matvec(code, "q1_matvec_1", 1, 4, 1)

    @every_target
    def test_segments_of_two_groups(self, code):
        self.run_matvec(code, "q1_matvec_1", 1, 34, 1)

    @every_target
    def test_three_rows_of_four(self, code):
        self.run_matvec(code, "q1_matvec_4", 4, 3, 3)

    @every_target
    def test_rows_to_bytes(self, code):
        x, norm = self.rng.standard_normal((3, 384)).astype(F), self.rng.random(384, F)
        rows = reference.no_bytes(3, 384)
        launch(code, "q1_prepare", grid=4, threads=256, args=[x, U64(384), norm, np.array([3], U), None, [*rows, U64(12)]])
        want = Bytes(x, norm)
        np.testing.assert_array_equal(rows[0].reshape(3, 12, 32), want.codes)
        np.testing.assert_array_equal(rows[1], want.scales())
        self.equal_bits(rows[2], want.squares)

    @every_target
    def test_many_rows_and_bytes_of_the_outcome(self, code):
        weights = Weights(self.rng, 64, 2)
        x, norm, out_norm = self.rng.standard_normal((5, 256)).astype(F), self.rng.random(256, F), self.rng.random(64, F)
        rows = Bytes(x, norm)
        for kernel in "q1_gemm_2", "q1_gemm_4":
            out, made = np.full((5, 64), np.nan, F), reference.no_bytes(5, 64)
            launch(code, kernel, grid=(1, 1), threads=128, args=self.arguments(weights, rows, out, np.array([5], U), True, None, made, out_norm))
            self.equal_bits(out, weights.product(rows) * rows.factor(EPS)[:, None])
            want = Bytes(out, out_norm)
            np.testing.assert_array_equal(made[0].reshape(5, 2, 32), want.codes)
            np.testing.assert_array_equal(made[1], want.scales())
            self.equal_bits(made[2], want.squares)

    @every_target
    def test_output_too_short_is_told(self, code):
        weights = Weights(self.rng, 40, 1)
        out = np.zeros((1, 39), F)
        with self.assertRaises(Fault):
            launch(code, "q1_matvec_1", grid=2, threads=32, shared_bytes=self.shared_bytes(1, 1),
                   args=self.arguments(weights, Bytes(np.ones((1, 128), F)), out, np.array([1], U)))


class Gather(KernelCase):
    source = "plugins/quant_q1g128/hip/rows.hip"

    @every_target
    def test_rows_of_the_matrix(self, code):
        weights = Weights(self.rng, 21, 5)
        ids, out, norm = np.array([20, 0, 7, 16], np.int32), np.full((5, 640), np.nan, F), self.rng.random(640, F)
        codes, scales, squares = reference.no_bytes(5, 640)
        launch(code, "q1_gather", grid=5, threads=256,
               args=[weights.packed_signs, weights.packed_scales, ids, np.array([4], U), out, U64(640), [codes, scales, squares, U64(20)], norm,
                     U(5), U(21)])
        signs = weights.bits.astype(F) * 2 - 1
        self.equal_bits(out[:4], (signs * weights.scales[:, :, None].astype(F))[ids].reshape(4, 640))
        self.assertTrue(np.isnan(out[4]).all())
        want = Bytes(out[:4], norm)
        np.testing.assert_array_equal(codes[:4].reshape(4, 20, 32), want.codes)
        self.equal_bits(squares[:4], want.squares)
        self.assertTrue((codes[4] == 99).all())
