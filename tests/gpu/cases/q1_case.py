"""The Q1_0 kernels: products with fused norm and residual, prepared rows, rows of the matrix; partial tiles throughout."""
import numpy as np

from case import F, Fault, KernelCase, U, U64, every_target, launch
from rdna import reference

NO_TILE, FUSE_ADD = U(0xFFFFFFFF), U(1)


class Weights:
    """A matrix in the kernels' layout: tiles of 16 rows, scales behind the signs; rows that fill the last tile have zero scales."""

    def __init__(self, rng, rows, groups):
        self.rows, self.groups = rows, groups
        self.bits = rng.integers(0, 2, (rows, groups, 128), dtype=np.uint8)
        self.scales = (rng.random((rows, groups)) + 0.5).astype(np.float16)
        tiles = -(-rows // 16)
        signs, scales = np.zeros((tiles * 16, groups, 16), np.uint8), np.zeros((tiles * 16, groups), np.float16)
        signs[:rows] = np.packbits(self.bits, axis=2, bitorder="little")
        scales[:rows] = self.scales
        self.packed_signs = np.ascontiguousarray(signs.reshape(tiles, 16, groups, 16).swapaxes(1, 2))
        self.packed_scales = np.ascontiguousarray(scales.reshape(tiles, 16, groups).swapaxes(1, 2))
        for array in (self.packed_signs, self.packed_scales):
            array.flags.writeable = False

    def product(self, x):
        """Rows of x [n][cols] times the matrix, in the order that every kernel follows."""
        signs = self.bits.astype(np.int32) * 2 - 1
        length = -(-self.groups // 16)
        total = np.zeros((len(x), self.rows), F)
        quantised = [quantise(x[:, g * 128:g * 128 + 128]) for g in range(self.groups)]
        for begin in range(0, self.groups, length):
            acc = np.zeros_like(total)
            for g in range(begin, min(begin + length, self.groups)):
                q, scale = quantised[g]
                sums = (q @ signs[:, g].T).astype(F)
                acc = reference.fma(self.scales[None, :, g].astype(F) * scale[:, None], sums, acc)
            total = total + acc
        return total


def quantise(x):
    """(q, scale) of one group of each row."""
    largest = np.abs(x).max(1)
    scale = largest / F(127)
    with np.errstate(divide="ignore"):
        inverse = np.where(largest > 0, F(127) / largest, F(0)).astype(F)
    return np.clip(np.rint(x * inverse[:, None]), -127, 127).astype(np.int32), scale


class Product(KernelCase):
    source = "plugins/quant_q1g128/hip/product.hip"

    def arguments(self, weights, x, out, n_rows, norm=None, residual=None, planes=None, scales=None):
        matrix = [weights.packed_signs, weights.packed_scales, None, out, U64(out.shape[1]), U(weights.rows), U(0)]
        absent = [None, None, None, None, U64(0), U(0), NO_TILE]
        tiles = U(-(-weights.rows // 16))
        return [[matrix, absent, absent, absent], n_rows, x, U64(x.shape[1]), norm, residual,
                U64(residual.shape[1] if residual is not None else 0), planes, scales, F(1e-6), U(weights.groups), U(1), U(len(x)),
                tiles, tiles, FUSE_ADD if residual is not None else U(0), U(0)]

    def run_matvec(self, code, name, rows_at_once, groups, n):
        weights = Weights(self.rng, 40, groups)
        x, norm = self.rng.standard_normal((n, groups * 128)).astype(F), self.rng.random(groups * 128, F)
        residual, out = self.rng.standard_normal((n, 40)).astype(F), np.full((n, 40), np.nan, F)
        segments = -(-groups // -(-groups // 16))
        slots = 8 if rows_at_once == 1 else 4 if rows_at_once <= 4 else 2
        shared = rows_at_once * groups * (144 + 8) + rows_at_once * slots * (16 * 16 + 16) * 4
        launch(code, name, grid=(2, -(-n // rows_at_once)), threads=(segments + 1) // 2 * 32, shared_bytes=shared,
               args=self.arguments(weights, x, out, np.array([n], U), norm, residual))
        self.equal_bits(out, residual + weights.product(reference.rms_norm(x, norm, 1e-6)))

    @every_target
    def test_one_row(self, code):
        self.run_matvec(code, "q1_matvec_1", 1, 4, 1)

    @every_target
    def test_segments_of_two_groups(self, code):
        self.run_matvec(code, "q1_matvec_1", 1, 18, 1)

    @every_target
    def test_three_rows_of_four(self, code):
        self.run_matvec(code, "q1_matvec_4", 4, 3, 3)

    @every_target
    def test_many_rows_from_prepared_ones(self, code):
        weights = Weights(self.rng, 40, 2)
        x, norm = self.rng.standard_normal((5, 256)).astype(F), self.rng.random(256, F)
        planes, scales, out = np.zeros((5, 2, 128), np.uint8), np.zeros((5, 2, 2), U), np.full((5, 40), np.nan, F)
        args = self.arguments(weights, x, out, np.array([5], U), norm, None, planes, scales)
        launch(code, "q1_prepare", grid=5, threads=256, args=args)
        launch(code, "q1_gemm_4", grid=(1, 1), threads=128, args=args)
        self.equal_bits(out, weights.product(reference.rms_norm(x, norm, 1e-6)))

    @every_target
    def test_output_too_short_is_told(self, code):
        weights = Weights(self.rng, 40, 1)
        x, out = np.ones((1, 128), F), np.zeros((1, 39), F)
        with self.assertRaises(Fault):
            launch(code, "q1_matvec_1", grid=2, threads=32, shared_bytes=152 + 8 * 272 * 4,
                   args=self.arguments(weights, x, out, np.array([1], U)))


class Gather(KernelCase):
    source = "plugins/quant_q1g128/hip/rows.hip"

    @every_target
    def test_rows_of_the_matrix(self, code):
        weights = Weights(self.rng, 21, 5)
        ids, out = np.array([20, 0, 7, 16], np.int32), np.full((5, 640), np.nan, F)
        launch(code, "q1_gather", grid=5, threads=128,
               args=[weights.packed_signs, weights.packed_scales, ids, np.array([4], U), out, U64(640), U(5), U(21)])
        signs = weights.bits.astype(F) * 2 - 1
        self.equal_bits(out[:4], (signs * weights.scales[:, :, None].astype(F))[ids].reshape(4, 640))
        self.assertTrue(np.isnan(out[4]).all())
