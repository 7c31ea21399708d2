"""Attention over a cache of f16: rows into the cache, one row moved in several layers, whole attention, and scores and weighted
values alone. Heads that do not fill a kernel's lanes, rows that are padding, trees, keys that end inside a chunk."""
import numpy as np

from case import F, Fault, I, KernelCase, U, U64, every_target, launch
from rdna import reference

H = np.float16
K_SIDE, V_SIDE = U(0), U(1)
LAUNCH_PARTS = 128
ATTEND_THREADS = 256


class Cache:
    """One layer of a pool: blocks of [kv head][64][d] halves for keys and values, and the step over them."""

    def __init__(self, rng, heads, d, rows, sequences, padding=1):
        """rows: (sequence, position, slot, path) of each; sequences: committed length of each."""
        self.rng, self.heads, self.d, self.n = rng, heads, d, len(rows)
        self.blocks = max(max(slot for _, _, slot, _ in rows), max(sequences) - 1) // 64 + 1
        ids = rng.permutation(len(sequences) * self.blocks)
        self.ids = ids.reshape(len(sequences), self.blocks).astype(I)
        self.keys, self.values = (rng.standard_normal((len(ids), heads, 64, d)).astype(H) for _ in range(2))
        n, widest = self.n + padding, max([1] + [len(path) for *_, path in rows])
        self.max_rows = n
        self.seq, self.position, self.slot, self.length = (np.full(n, fill, I) for fill in (0, 5, 0, 0))
        self.path = np.full((n, widest), -1, I)
        for r, (seq, position, slot, path) in enumerate(rows):
            self.seq[r], self.position[r], self.slot[r], self.length[r] = seq, position, slot, len(path)
            self.path[r, :len(path)] = path
        self.committed = np.array(sequences, I)
        self.counts = np.array([self.n, len(sequences), 0, 0], U)

    def table(self):
        return [self.counts, None, self.position, self.seq, self.slot, self.length, self.path, self.committed, self.ids, None, None,
                U(self.path.shape[1]), U(self.blocks)]

    def kv(self, pool, side):
        stride = U64(self.heads * 64 * self.d * 2)
        return [pool, None, stride, stride, U(self.heads), U(self.d), U(0), U(0), side, U(0)]

    def side(self, center=None):
        zeros = [U(0)] * 3
        return [U64(64 * self.d * 2), U64(0), U(2 * self.d), U(0), U(0), *zeros, U(0), *zeros, F(0), None, None, None, None, center, None, None, None, F(0), U(0)]

    def place(self, row, position):
        """(block, row in it) of a key as the row sees it."""
        seq, committed = self.seq[row], self.committed[self.seq[row]]
        slot = self.path[row, position - committed] if self.length[row] and position >= committed else position
        return self.ids[seq, slot // 64], slot % 64

    def attended(self, q, scale, n_heads):
        """What attention gives, in double."""
        out = np.zeros((self.n, n_heads, self.d))
        for row in range(self.n):
            places = [self.place(row, p) for p in range(self.position[row] + 1)]
            block, at = (np.array(part) for part in zip(*places))
            for head in range(n_heads):
                kv_head = head // (n_heads // self.heads)
                s = self.keys[block, kv_head, at].astype(np.float64) @ q[row, head].astype(np.float64) * scale
                w = np.exp(s - s.max())
                out[row, head] = w / w.sum() @ self.values[block, kv_head, at].astype(np.float64)
        return out


class Attend(KernelCase):
    source = "plugins/kv_float/hip/f16.hip"

    def arguments(self, cache, q, out, n_heads, queries, *, max_chunks, k_rows=None, v_rows=None, k_norm=None, rope=None, partials=None, counters=None,
                  partial_stride=0, loop=0, n_chunks=0, scores=None, score_stride=0, sums=None, sum_stride=0,
                  out_bytes=(None, None, None)):
        group = n_heads // cache.heads
        tile_heads = min(queries, group)
        width = U64(n_heads * cache.d)
        kv_width = U64(cache.heads * cache.d)
        dims, frequencies = rope or (0, None)
        a = [U(0), U(cache.max_rows), cache.table(), cache.kv(cache.keys, K_SIDE), cache.kv(cache.values, V_SIDE), U(n_heads), U(max_chunks), F(0.2), U(1),
             q, k_rows, v_rows, width, kv_width, kv_width, None, k_norm, F(1e-6), U(dims), U(0), F(1), frequencies, out, width, None, [None, U64(0)]]
        return [a, cache.side(), cache.side(), [*out_bytes, U64(n_heads * cache.d // 32)], partials, counters, U(partial_stride), U(group), U(queries // tile_heads), U(tile_heads), U(-(-group // tile_heads)), U(loop),
                U(0), U(n_chunks), scores, U64(score_stride), sums, U64(sum_stride)]

    def halves(self, x):
        return np.clip(x, -65504, 65504).astype(H)

    @every_target
    def test_rows_into_the_cache(self, code):
        heads, d = 5, 40  # the second block of four waves has one head
        cache = Cache(self.rng, heads, d, [(0, 63, 63, []), (0, 64, 64, []), (1, 2, 2, [])], [63, 2])
        rows = (self.rng.standard_normal((cache.max_rows, heads * d)) * 9).astype(F)
        rows[0, :3] = 1e9, -1e9, 65519
        for side, pool in ((K_SIDE, cache.keys), (V_SIDE, cache.values)):
            expected = pool.copy()
            for r in range(cache.n):
                block, at = cache.place(r, cache.position[r])
                expected[block, :, at] = self.halves(rows[r]).reshape(heads, d)
            launch(code, "append_f16", grid=(2, cache.max_rows), threads=128,
                   args=[cache.kv(pool, side), cache.table(), cache.side(), rows, U64(heads * d), U(cache.max_rows), side, None, F(0), U(0), U(0), F(1), None])
            np.testing.assert_array_equal(pool.view(np.uint16), expected.view(np.uint16))

    @every_target
    def test_normed_and_centered_rows(self, code):
        heads, d = 2, 64
        cache = Cache(self.rng, heads, d, [(0, 7, 7, [])], [7], padding=0)
        rows, norm, center = self.rng.standard_normal((1, heads * d)).astype(F), self.rng.random(d, F), self.rng.random((heads, d), F)
        launch(code, "append_f16", grid=(1, 1), threads=128,
               args=[cache.kv(cache.keys, K_SIDE), cache.table(), cache.side(center), rows, U64(heads * d), U(1), K_SIDE, norm, F(1e-6), U(0), U(0), F(1), None])
        expected = self.halves(reference.rms_norm(rows.reshape(heads, d), norm, 1e-6) - center)
        np.testing.assert_array_equal(cache.keys[cache.ids[0, 0], :, 7].view(np.uint16), expected.view(np.uint16))

    @every_target
    def test_one_row_is_moved_in_every_layer(self, code):
        heads, d, layers = 5, 24, 3
        cache = Cache(self.rng, heads, d, [(0, 64, 64, [])], [64])
        pools = [self.rng.standard_normal((3, heads, 64, d)).astype(H) for _ in range(layers)]
        expected = [pool.copy() for pool in pools]
        for pool in expected:
            pool[0, :, 63] = pool[2, :, 17]
        stride = heads * 64 * d * 2
        launch(code, "move_f16", grid=(2, layers), threads=128,
               args=[cache.side(), U64(2 * stride), U64(0), U(17), U(63), U(heads), U(d), [*pools, *[None] * (LAUNCH_PARTS - layers)]])
        for pool, want in zip(pools, expected):
            np.testing.assert_array_equal(pool.view(np.uint16), want.view(np.uint16))
        with self.assertRaises(Fault):
            launch(code, "move_f16", grid=(2, layers), threads=128,
                   args=[cache.side(), U64(3 * stride), U64(0), U(17), U(63), U(heads), U(d), [*pools, *[None] * (LAUNCH_PARTS - layers)]])

    @every_target
    def test_a_tree_and_another_sequence_in_one_chunk(self, code):
        heads, d, n_heads = 2, 40, 6  # three query heads a kv head in tiles of two; 40 of 64 elements
        tree = [(0, 68, 68, [68]), (0, 69, 69, [68, 69]), (0, 69, 70, [68, 70])]
        cache = Cache(self.rng, heads, d, tree + [(1, 11, 11, [])], [68, 11])
        q, out = self.rng.standard_normal((cache.max_rows, n_heads, d)).astype(F), np.full((cache.max_rows, n_heads, d), -7, F)
        launch(code, "attend_f16_8_2", grid=(heads * 2, 1, cache.max_rows), threads=ATTEND_THREADS, args=self.arguments(cache, q, out, n_heads, 2, max_chunks=1))
        np.testing.assert_allclose(out[:cache.n], cache.attended(q, 0.2, n_heads), rtol=2e-5, atol=2e-6)
        self.assertTrue((out[cache.n:] == -7).all(), "padding is not touched")
        with self.assertRaises(Fault):
            launch(code, "attend_f16_8_2", grid=(heads * 2, 1, cache.max_rows), threads=ATTEND_THREADS,
                   args=self.arguments(cache, q, out[:1].copy(), n_heads, 2, max_chunks=1))

    @every_target
    def test_rows_that_attention_appends_itself(self, code):
        heads, d, n_heads = 1, 64, 2
        cache = Cache(self.rng, heads, d, [(0, 62, 62, []), (0, 63, 63, []), (0, 64, 64, [])], [62])
        q, out = self.rng.standard_normal((cache.max_rows, n_heads, d)).astype(F), np.full((cache.max_rows, n_heads, d), -7, F)
        k_rows, v_rows = (self.rng.standard_normal((cache.max_rows, heads * d)).astype(F) for _ in range(2))
        norm = self.rng.random(d, F)
        keys, values = cache.keys.copy(), cache.values.copy()
        for r in range(cache.n):
            block, at = cache.place(r, cache.position[r])
            keys[block, 0, at] = self.halves(reference.rms_norm(k_rows[r:r + 1], norm, 1e-6)[0])
            values[block, 0, at] = self.halves(v_rows[r])
        made = reference.no_bytes(cache.max_rows, n_heads * d)
        launch(code, "attend_f16_8_8", grid=(heads, 1, cache.max_rows), threads=ATTEND_THREADS,
               args=self.arguments(cache, q, out, n_heads, 8, max_chunks=1, k_rows=k_rows, v_rows=v_rows, k_norm=norm, out_bytes=made))
        want = reference.Bytes(out[:cache.n].reshape(cache.n, n_heads * d))
        np.testing.assert_array_equal(made[0][:cache.n].reshape(want.codes.shape), want.codes)
        np.testing.assert_array_equal(made[1][:cache.n], want.scales())
        self.assertTrue((made[0][cache.n:] == 99).all())
        np.testing.assert_array_equal(cache.keys.view(np.uint16), keys.view(np.uint16))
        np.testing.assert_array_equal(cache.values.view(np.uint16), values.view(np.uint16))
        np.testing.assert_allclose(out[:cache.n], cache.attended(q, 0.2, n_heads), rtol=2e-5, atol=2e-6)

    @every_target
    def test_chunks_that_meet_in_memory(self, code):
        heads, d, n_heads = 1, 128, 1
        cache = Cache(self.rng, heads, d, [(0, 297, 297, []), (0, 298, 298, [])], [297])
        q = self.rng.standard_normal((cache.max_rows, n_heads, d)).astype(F)
        expected = cache.attended(q, 0.2, n_heads)
        bits = []
        for loop in (0, 1):
            out, counters = np.full((cache.max_rows, n_heads, d), -7, F), np.zeros((cache.max_rows, 1), U)
            partials = np.full((cache.max_rows, n_heads, 2, d + 4), np.nan, F)
            launch(code, "attend_f16_16_2", grid=(1, 1 if loop else 2, cache.max_rows), threads=ATTEND_THREADS,
                   args=self.arguments(cache, q, out, n_heads, 2, max_chunks=2, partials=partials, counters=counters, partial_stride=d + 4, loop=loop))
            np.testing.assert_allclose(out[:2], expected, rtol=2e-5, atol=2e-6)
            self.assertFalse(counters.any(), "the meeting place is clean again")
            bits.append(out)
        self.equal_bits(*bits)

    @every_target
    def test_scores_and_weighted_values_alone(self, code):
        heads, d, n_heads = 2, 48, 4
        cache = Cache(self.rng, heads, d, [(0, 70, 70, []), (1, 30, 30, [])], [70, 30])
        q = self.rng.standard_normal((cache.max_rows, n_heads, d)).astype(F)
        scores = np.full((cache.max_rows, n_heads, 256), -7, F)
        args = self.arguments(cache, q, None, n_heads, 4, max_chunks=1, n_chunks=1, scores=scores, score_stride=256)
        launch(code, "scores_f16_8", grid=(heads, 1, cache.max_rows), threads=ATTEND_THREADS, args=args)
        sums = np.full((cache.max_rows, n_heads, 1, d + 2), -7, F)
        for row in range(cache.n):
            n = cache.position[row] + 1
            block, at = (np.array(part) for part in zip(*[cache.place(row, p) for p in range(n)]))
            for head in range(n_heads):
                want = cache.keys[block, head // 2, at].astype(np.float64) @ q[row, head].astype(np.float64) * 0.2
                np.testing.assert_allclose(scores[row, head, :n], want, rtol=1e-5, atol=1e-5)
            self.assertTrue((scores[row, :, n:] == -7).all())
        self.assertTrue((scores[cache.n:] == -7).all())
        weights = self.rng.random((cache.max_rows, n_heads, 256), F)
        args = self.arguments(cache, q, None, n_heads, 4, max_chunks=1, n_chunks=1, scores=weights, score_stride=256, sums=sums, sum_stride=d + 2)
        launch(code, "sums_f16_8", grid=(heads, 1, cache.max_rows), threads=ATTEND_THREADS, args=args)
        for row in range(cache.n):
            n = cache.position[row] + 1
            block, at = (np.array(part) for part in zip(*[cache.place(row, p) for p in range(n)]))
            for head in range(n_heads):
                want = weights[row, head, :n].astype(np.float64) @ cache.values[block, head // 2, at].astype(np.float64)
                np.testing.assert_allclose(sums[row, head, 0, 2:], want, rtol=2e-5, atol=2e-5)
        self.assertTrue((sums[:, :, 0, :2] == -7).all() and (sums[cache.n:] == -7).all(), "the pack's entries and padding are not touched")
