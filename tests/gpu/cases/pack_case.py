"""The HIP pack's own kernels: norm, rotation, element-wise ops, top-k, the step table's copy, softmax and merge of attention
taken apart. Rows beyond the live ones, widths that end inside a block, groups that do not fill one."""
import numpy as np

from case import F, Fault, I, KernelCase, U, U64, every_target, launch
from rdna import reference

ADD, SILU, GELU, COPY, CONCAT = (U(i) for i in range(5))
HALVES, INTERLEAVED = U(0), U(1)


def table(counts, position, rows=None, **arrays):
    """A turbo_device_table of which kernels here read counts and positions."""
    names = ("token", "position", "row_seq", "slot", "path_length", "path", "committed", "block_table", "open_table", "logit_row")
    arrays["position"] = position
    return [counts, *(arrays.get(name) for name in names), U(1), U(1)]


class Pack(KernelCase):
    source = "plugins/arch_rdna2/hip/ops.hip"

    def normal(self, *shape):
        return self.rng.standard_normal(shape).astype(F)

    def padded(self, rows, width, stride, fill=np.nan):
        x = np.full((rows, stride), fill, F)
        x[:, :width] = self.normal(rows, width)
        return x

    @every_target
    def test_norm_of_whole_rows(self, code):
        for width in (300, 48, 1024):
            x, weight, out = self.padded(3, width, width + 8), self.rng.random(width, F), np.full((3, width + 4), -7, F)
            launch(code, "rdna2_norm", grid=(1, 3), threads=256,
                   args=[np.array([2], U), x, weight, out, U64(width + 8), U64(width + 4), U(width), U(1), F(1e-6), U(0)])
            self.equal_bits(out[:2, :width], reference.rms_norm(x[:2, :width], weight, 1e-6))
            self.assertTrue((out[2] == -7).all() and (out[:, width:] == -7).all(), "padding is not touched")

    @every_target
    def test_norm_of_heads_in_place(self, code):
        groups, width = 11, 40  # the second block of eight waves has three heads
        x, weight = self.padded(3, groups * width, groups * width), self.rng.random(width, F)
        expected = x.copy()
        for g in range(groups):
            part = slice(g * width, (g + 1) * width)
            expected[:2, part] = reference.rms_norm(x[:2, part], weight, 1e-5)
        launch(code, "rdna2_norm", grid=(2, 3), threads=256,
               args=[np.array([2], U), x, weight, x, U64(groups * width), U64(groups * width), U(width), U(groups), F(1e-5), U(0)])
        self.equal_bits(x, expected)

    @every_target
    def test_rotation(self, code):
        heads, dim, dims = 9, 20, 16  # of each head the last four stay
        for style in (HALVES, INTERLEAVED):
            x, position = self.normal(3, heads * dim), np.array([5, 123456, 7], I)
            frequencies, before = (10000.0 ** (-2 * np.arange(dims // 2) / dims)).astype(F), None
            before = x.copy()
            launch(code, "rdna2_rope", grid=(2, 3), threads=256,
                   args=[np.array([2], U), position, frequencies, x, U64(heads * dim), U(heads), U(dim), U(dims), style, F(0.5), U(0)])
            h = before.reshape(3, heads, dim).astype(np.float64)
            i = np.arange(dims // 2)
            a, b = (i, i + dims // 2) if style == HALVES else (2 * i, 2 * i + 1)
            angle = position[:, None, None].astype(np.float64) * frequencies.astype(np.float64)
            c, s = np.cos(angle) * 0.5, np.sin(angle) * 0.5
            expected = h.copy()
            expected[:, :, a], expected[:, :, b] = h[:, :, a] * c - h[:, :, b] * s, h[:, :, a] * s + h[:, :, b] * c
            got = x.reshape(3, heads, dim)
            np.testing.assert_allclose(got[:2], expected[:2], atol=2e-6)
            self.equal_bits(got[2], before.reshape(3, heads, dim)[2])
            self.equal_bits(got[:, :, dims:], before.reshape(3, heads, dim)[:, :, dims:])

    @every_target
    def test_element_wise(self, code):
        width = 300  # the second block ends inside
        a, b = self.padded(4, width, 304), self.padded(4, width, 320)
        a64, b64 = a[:, :width].astype(np.float64), b[:, :width].astype(np.float64)
        silu = a64 / (1 + np.exp(-a64)) * b64
        gelu = a64 / (1 + np.exp(-1.5957691216057308 * (a64 * (1 + 0.044715 * a64 * a64)))) * b64
        for kind, expected in ((ADD, None), (SILU, silu), (GELU, gelu)):
            out = np.full((4, 310), -7, F)
            launch(code, "rdna2_element", grid=(2, 4), threads=256,
                   args=[np.array([3], U), None, a, b, out, U64(304), U64(320), U64(310), U64(width), U64(0), kind, U(0)])
            if expected is None:
                self.equal_bits(out[:3, :width], a[:3, :width] + b[:3, :width])
            else:
                np.testing.assert_allclose(out[:3, :width], expected[:3], rtol=2e-6, atol=1e-6)
            self.assertTrue((out[3] == -7).all() and (out[:, width:] == -7).all())

    @every_target
    def test_bias_rows_and_concat(self, code):
        width = 70
        a, bias, out = self.normal(4, width), self.normal(width), np.full((4, width), np.nan, F)
        launch(code, "rdna2_element", grid=(1, 4), threads=256,
               args=[np.array([4], U), None, a, bias, out, U64(width), U64(0), U64(width), U64(width), U64(0), ADD, U(0)])
        self.equal_bits(out, a + bias)
        rows = np.array([3, 0], I)
        out = np.full((2, width), np.nan, F)
        launch(code, "rdna2_element", grid=(1, 2), threads=256,
               args=[np.array([2], U), rows, a, None, out, U64(width), U64(0), U64(width), U64(width), U64(0), COPY, U(0)])
        self.equal_bits(out, a[rows])
        b = self.normal(2, 260)
        out = np.full((2, width + 260), np.nan, F)
        launch(code, "rdna2_element", grid=(2, 2), threads=256,
               args=[np.array([2], U), None, a, b, out, U64(width), U64(260), U64(width + 260), U64(width + 260), U64(width), CONCAT, U(0)])
        self.equal_bits(out, np.concatenate([a[:2], b], axis=1))

    @every_target
    def test_top_k(self, code):
        n, k = 301, 6
        x = self.normal(3, n)
        x[0, [4, 290, 17]] = [9, 9, np.nan]  # a tie, and no number
        x[1, :] = 0
        x[1, ::2] = -0.0
        ids, values = np.full((3, k), np.nan, F), np.full((3, k), np.nan, F)
        launch(code, "rdna2_top_k", grid=3, threads=256, args=[np.array([2], U), x, ids, values, U64(n), U64(k), U64(k), U(n), U(k)])
        for row in range(2):
            keys = np.where(np.isnan(x[row]), -np.inf, x[row])
            order = np.argsort(-keys, kind="stable")[:k]
            np.testing.assert_array_equal(ids[row].view(U), order.astype(U))
            self.equal_bits(values[row], x[row][order])
        self.assertTrue(np.isnan(ids[2]).all(), "padding is not touched")

    @every_target
    def test_the_tables_copy(self, code):
        rows, sequences, logit_rows, blocks, path = 40, 3, 40, 9, 5  # capacities
        used = {"rows": 37, "sequences": 2, "logit_rows": 33, "path": 4, "blocks": 7}
        head = np.array([37, 2, 33, 1, 4, 7, 4711], U)
        words = 5 * rows + rows * path + sequences + 2 * sequences * blocks + logit_rows
        source, target, counts = self.rng.integers(1, 1 << 30, words).astype(I), np.zeros(words, I), np.zeros(5, U)
        source.flags.writeable = head.flags.writeable = False
        launch(code, "rdna2_table", grid=8, threads=256,
               args=[head, source, counts, target, U(rows), U(sequences), U(logit_rows), U(blocks), U(path), U(0)])
        keep, at = np.zeros(words, bool), 0
        for n, length, n_used, length_used in ((5, rows, 5, used["rows"]), (rows, path, used["rows"], used["path"]), (1, sequences, 1, used["sequences"]),
                                               (sequences, blocks, used["sequences"], used["blocks"]), (sequences, blocks, used["sequences"], used["blocks"]),
                                               (1, logit_rows, 1, used["logit_rows"])):
            field = keep[at:at + n * length].reshape(n, length)
            field[:n_used, :length_used] = True
            at += n * length
        np.testing.assert_array_equal(target, np.where(keep, source, 0))
        np.testing.assert_array_equal(counts, head[[0, 1, 2, 3, 6]])
        with self.assertRaises(Fault):
            launch(code, "rdna2_table", grid=8, threads=256,
                   args=[head, source, counts, target[:-8].copy(), U(rows), U(sequences), U(logit_rows), U(blocks), U(path), U(0)])

    @every_target
    def test_softmax_and_merge_of_a_window(self, code):
        heads, dim, chunks = 2, 24, 2
        positions = np.array([299, 70, 11], I)  # of three rows two live; the first ends in its second chunk
        keys = positions[:2] + 1
        scores, stride = (self.normal(3, heads, chunks * 256) * 4).astype(F), chunks * 256
        given = scores.copy()
        partials, state = np.full((3, heads, chunks, dim + 2), np.nan, F), np.full((3, heads, dim + 2), np.nan, F)
        out = np.full((3, heads * dim), -7, F)
        window = [table(np.array([2, 1, 0, 0], U), positions), U(heads), U(dim), U(0), U(chunks), U(chunks), U(0), scores, partials, state, out,
                  U64(stride), U64(dim + 2), U64(heads * dim)]
        launch(code, "rdna2_softmax", grid=(heads, chunks, 3), threads=128, args=window)
        values = self.normal(2, heads, chunks, 256, dim)
        for row in range(2):
            for head in range(heads):
                for chunk in range(-(-int(keys[row]) // 256)):
                    n = min(256, int(keys[row]) - 256 * chunk)
                    own = slice(256 * chunk, 256 * chunk + n)
                    w = np.exp(given[row, head, own].astype(np.float64) - given[row, head, own].max())
                    np.testing.assert_allclose(scores[row, head, own], w, rtol=1e-5, atol=1e-30)
                    self.assertEqual(partials[row, head, chunk, 0], given[row, head, own].max())
                    np.testing.assert_allclose(partials[row, head, chunk, 1], w.sum(), rtol=1e-6)
                    partials[row, head, chunk, 2:] = (scores[row, head, own, None] * values[row, head, chunk, :n]).sum(0)
                self.equal_bits(scores[row, head, keys[row]:], given[row, head, keys[row]:])
        self.equal_bits(scores[2], given[2])
        launch(code, "rdna2_merge", grid=(heads, 3), threads=128, args=window)
        for row in range(2):
            n = int(keys[row])
            for head in range(heads):
                x = given[row, head, :n].astype(np.float64)
                w = np.exp(x - x.max())
                v = values[row, head].reshape(-1, dim)[:n].astype(np.float64)
                np.testing.assert_allclose(out[row, head * dim:(head + 1) * dim], (w[:, None] * v).sum(0) / w.sum(), rtol=1e-4, atol=1e-5)
        self.assertTrue((out[2] == -7).all(), "padding is not touched")
