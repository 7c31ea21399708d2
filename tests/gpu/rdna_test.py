#!/usr/bin/env python3
"""The interpreter agrees with references on small kernels for every target, finds faults, and notices broken code.

Usage: rdna_test.py DEVICE-JSON WORK [unittest options]
"""
import os
import sys
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import numpy as np  # noqa: E402
import case  # noqa: E402
from case import F, Fault, KernelCase, U, Unsupported, code_of, every_target, launch  # noqa: E402
from rdna import reference  # noqa: E402
from rdna.operands import split  # noqa: E402



class Kernels(KernelCase):
    source = "tests/gpu/kernels/basic.hip"

    @every_target
    def test_vector_add(self, code):
        a, b, out = self.rng.random(300, F), self.rng.random(300, F), np.zeros(300, F)
        result = launch(code, "vector_add", grid=2, threads=256, args=[a, b, out, U(300)])
        self.equal_bits(out, a + b)
        self.assertGreater(result.instructions, 16 * 10)

    @every_target
    def test_sums_of_waves_and_blocks(self, code):
        for cols, threads in ((256, 256), (100, 128), (7, 32)):
            x = (self.rng.standard_normal((3, cols)) * 9).astype(F)
            waves = threads // 32
            out = np.zeros((3, waves, 5), F)
            launch(code, "sums", grid=3, threads=threads, args=[x, out, U(cols)])
            padded = np.zeros((3, threads), F)
            padded[:, :cols] = x
            by_wave = padded.reshape(3, waves, 32)
            sums = reference.wave_sum(by_wave)
            self.equal_bits(out[:, :, 0], sums)
            self.equal_bits(out[:, :, 1], by_wave.max(2))
            self.equal_bits(out[:, :, 2], np.trunc(by_wave).sum(2))
            np.testing.assert_array_equal(out[:, :, 3].copy().view(U), np.packbits(by_wave > 0, axis=2, bitorder="little").view("<u4")[:, :, 0])
            total = np.zeros(3, F)
            for w in range(waves):
                total = total + sums[:, w]
            self.equal_bits(out[:, :, 4], np.repeat(total[:, None], waves, 1))

    @every_target
    def test_rms_norm(self, code):
        for cols in (512, 320, 40):
            x, weight = self.rng.standard_normal((2, cols)).astype(F), self.rng.random(cols, F)
            out = np.zeros((2, cols), F)
            launch(code, "rms_norm_row", grid=2, threads=256, args=[x, weight, out, U(cols), F(1e-5)])
            # Approximate reciprocal and root are refined to the rounded result by the code itself.
            self.equal_bits(out, reference.rms_norm(x, weight, 1e-5))

    def matvec(self, code, rows=6, cols=512, rng=None):
        """(result, reference) of the 1-bit product; six rows leave the second block partly idle."""
        rng = rng or np.random.default_rng(3)
        bits = rng.integers(0, 1 << 32, (rows, cols // 32), dtype=np.uint64).astype(U)
        scales = (rng.random((rows, cols // 128)) + 0.5).astype(np.float16)
        q, q_scales = rng.integers(-127, 128, cols).astype(np.int8), rng.random(cols // 128, F) + F(0.5)
        out = np.full(rows, np.nan, F)
        launch(code, "matvec_1bit", grid=(rows + 3) // 4, threads=128, args=[bits, scales, q, q_scales, out, U(rows), U(cols)])
        signs = (bits[:, :, None] >> np.arange(32, dtype=U) & 1).astype(np.int32).reshape(rows, cols) * 2 - 1
        sums = (signs * q).reshape(rows, -1, 128).sum(2)
        expected = np.zeros(rows, F)
        for g in range(cols // 128):
            expected = reference.fma(scales[:, g].astype(F) * q_scales[g], sums[:, g].astype(F), expected)
        return out, expected

    @every_target
    def test_1bit_matvec_on_partial_tiles(self, code):
        for rows in (1, 4, 6):
            self.equal_bits(*self.matvec(code, rows))

    @every_target
    def test_conversions(self, code):
        every = np.arange(65536, dtype=np.uint16)
        floats = np.concatenate([self.rng.standard_normal(30000).astype(F) * F(10) ** self.rng.integers(-9, 6, 30000).astype(F),
                                 np.linspace(65400, 65600, 1000, dtype=F), np.array([0, -0.0, np.inf, -np.inf, np.nan], F)])
        floats = np.concatenate([floats, np.zeros(65536 - len(floats), F)]).astype(F)
        as_float, as_half = np.zeros(65536, F), np.zeros(65536, np.uint16)
        launch(code, "convert", grid=256, threads=256, args=[every, floats, as_float, as_half])
        expected = every.view(np.float16).astype(F)
        number = ~np.isnan(expected)
        self.equal_bits(as_float[number], expected[number])
        self.assertTrue(np.isnan(as_float[~number]).all())
        with np.errstate(over="ignore"):
            halves = floats.astype(np.float16)
        number = ~np.isnan(halves)
        np.testing.assert_array_equal(as_half[number], halves.view(np.uint16)[number])

    @every_target
    def test_softmax(self, code):
        x = (self.rng.standard_normal((2, 300)) * 4).astype(F)
        out = np.zeros((2, 300), F)
        launch(code, "softmax_row", grid=2, threads=128, args=[x, out, U(300)], shared_bytes=1200)
        expected = np.exp(x.astype(float) - x.max(1, keepdims=True))
        np.testing.assert_allclose(out, expected / expected.sum(1, keepdims=True), rtol=2e-6)
        with self.assertRaisesRegex(Fault, "shared memory at"):
            launch(code, "softmax_row", grid=2, threads=128, args=[x, out, U(300)], shared_bytes=1196)

    @every_target
    def test_rotation_angles(self, code):
        position = self.rng.integers(0, 200000, 256).astype(U)  # far: the slow reduction of large angles
        position[:64] = np.arange(64)
        frequency, out = F(10000) ** -self.rng.random(256, F), np.zeros((256, 2), F)
        launch(code, "rotate", grid=1, threads=256, args=[position, frequency, out, U(256)])
        angle = (position.astype(F) * frequency).astype(float)
        np.testing.assert_allclose(out, np.stack([np.cos(angle), np.sin(angle)], 1), atol=3e-7)

    @every_target
    def test_blocks_that_wait_for_each_other(self, code):
        arrived, seen, highest, out = np.zeros(1, U), np.zeros(1, U), np.zeros(1, np.uint64), np.zeros((5, 2), U)
        launch(code, "meet_all", grid=5, threads=64, args=[arrived, seen, highest, out], resident=True)
        self.assertEqual(sorted(out[:, 0]), [0, 1, 2, 3, 4])
        self.assertTrue((out[:, 1] == 31).all())
        self.assertEqual(int(highest[0]), 4 * 0x100000001)
        arrived[:] = 0
        with self.assertRaisesRegex(Fault, "no end"):
            launch(code, "meet_all", grid=5, threads=64, args=[arrived, seen, highest, out], turns=50)

    @every_target
    def test_struct_inside_and_missing_array(self, code):
        x, y, out = self.rng.random(32, F), self.rng.random(40, F), np.zeros(32, F)
        launch(code, "nested", grid=1, threads=32, args=[[x, F(3)], [y[8:], F(2)], out])
        self.equal_bits(out, x * F(3) + y[8:] * F(2))
        launch(code, "nested", grid=1, threads=32, args=[[x, F(3)], [None, F(2)], out])
        self.equal_bits(out, x * F(3) + F(0.5))

    @every_target
    def test_faults(self, code):
        a, out = np.ones(300, F), np.zeros(300, F)
        args = lambda **change: list({"a": a, "b": a, "out": out, "n": U(300), **change}.values())  # noqa: E731
        cases = [(args(out=np.zeros(299, F)), "write of 4 bytes.*outside"), (args(b=np.ones(299, F)), "read of 4 bytes.*outside"),
                 (args(a=None), "read of 4 bytes.*outside"), (args(out=np.zeros(302 * 4, np.uint8)[2:]), "not aligned"),
                 (args()[:3], "bytes of arguments")]
        for given, words in cases:
            with self.subTest(words), self.assertRaisesRegex(Fault, words):
                launch(code, "vector_add", grid=2, threads=256, args=given)
        fixed = np.zeros(300, F)
        fixed.flags.writeable = False
        with self.assertRaisesRegex(Fault, "read-only"):
            launch(code, "vector_add", grid=2, threads=256, args=args(out=fixed))
        with self.assertRaisesRegex(Fault, "threads, bound 256"):
            launch(code, "vector_add", grid=1, threads=512, args=args())

    def test_unknown_instruction(self):
        code = code_of(self.source, case.compiler.archs[0])
        broken = code.kernels["vector_add"].body[0]
        original, broken.text, broken.run = broken.text, "v_never_heard_b32 v0, v1", None
        with self.assertRaisesRegex(Unsupported, "v_never_heard_b32"):
            launch(code, "vector_add", grid=1, threads=32, args=[np.ones(32, F), np.ones(32, F), np.ones(32, F), U(32)])
        broken.text, broken.run = original, None


class Mutants(unittest.TestCase):
    """Change one instruction: the result must change, or the launch must fault."""

    SWAPS = {"v_lshlrev_b32": "v_lshrrev_b32", "v_and_b32": "v_or_b32", "v_add_f32": "v_mul_f32", "v_mul_f32": "v_add_f32",
             "v_fmac_f32": "v_mul_f32", "v_dot4c_i32_i8": "v_add_nc_u32", "v_dot4_i32_iu8": None, "v_mul_lo_u32": "v_add_nc_u32",
             "v_mul_u32_u24": "v_add_nc_u32", "v_bfe_u32": "v_bfi_b32", "v_xor_b32": "v_and_b32", "v_add_nc_u32": "v_sub_nc_u32",
             "v_sub_nc_u32": "v_add_nc_u32", "v_cvt_f32_i32": "v_cvt_f32_u32", "v_cvt_f32_f16": "v_mov_b32", "s_and_b32": "s_or_b32",
             "s_add_u32": "s_sub_u32", "s_lshl_b32": "s_lshr_b32", "s_lshr_b32": "s_lshl_b32", "s_mul_i32": "s_add_i32",
             "s_add_i32": "s_sub_i32", "v_lshl_or_b32": "v_and_or_b32", "v_lshrrev_b32": "v_lshlrev_b32", "v_or_b32": "v_and_b32"}
    # Instructions whose change cannot show: padding of a mask that is whole, the upper half of an address below 4 GiB, ...
    MAY_SURVIVE = 0.12

    def test_single_instruction_mutants_of_the_matvec(self):
        for arch in ("gfx1031", "gfx1100"):
            if arch not in case.compiler.archs:
                continue
            with self.subTest(arch):
                code = code_of(Kernels.source, arch)
                kernels = Kernels()
                total, survived = 0, []
                for instruction in code.kernels["matvec_1bit"].body:
                    original = instruction.text
                    if " :: " in original:
                        continue
                    mnemonic = split(original)[0]
                    bare = mnemonic.removesuffix("_e32").removesuffix("_e64")
                    if not self.SWAPS.get(bare):
                        continue
                    instruction.text, instruction.run = original.replace(mnemonic, self.SWAPS[bare], 1), None
                    total += 1
                    try:
                        out, expected = kernels.matvec(code, cols=256)
                        if np.array_equal(out.view(U), expected.view(U)):
                            survived.append(original)
                    except (Fault, Unsupported, IndexError):
                        pass
                    instruction.text, instruction.run = original, None
                print(f"{arch}: {total} mutants, {len(survived)} survived: {survived}")
                self.assertGreater(total, 15)
                self.assertLessEqual(len(survived), total * self.MAY_SURVIVE, survived)
                np.testing.assert_array_equal(*kernels.matvec(code, cols=256))


if __name__ == "__main__":
    case.setup(*sys.argv[1:3])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
