"""The sampler's kernels: the largest of each row, drafting and chains, edits, weights, and the head of a row's order. Rows in
splits that end inside, ties across them, NaN, and blocks that meet in memory."""
import numpy as np

from case import F, Fault, I, KernelCase, U, U64, every_target, launch

I64, F64 = np.int64, np.float64
NONE = U(0xFFFFFFFF)
BINS, CAPACITY, NONE = 4096, 8192, U(0xFFFFFFFF)


def logit_rows(data, vocab, splits):
    split = -(-(-(-vocab // splits)) // 4) * 4
    return [data, U64(data.shape[1]), U(vocab), U(len(data)), U(splits), U(split)]


def largest(x):
    """(index, row held a NaN) of each row: the lowest index of the greatest, zeros equal, NaN as -1e30."""
    values = np.where(np.isnan(x), F(-1e30), x) + F(0)
    return values.argmax(1), np.isnan(x).any(1)


def key(value, index):
    value = F(-1e30) if np.isnan(value) else value
    bits = int(np.array(value + F(0), F).view(U))
    rising = ~bits & 0xFFFFFFFF if bits >> 31 else bits | 0x80000000
    return rising << 32 | ~int(index) & 0xFFFFFFFF


class Rows(KernelCase):
    def logits(self, rows, vocab, padding=3):
        x = np.full((rows, vocab + padding), np.inf, F)  # what lies beyond a row is never read as its own
        x[:, :vocab] = self.rng.integers(-8, 8, (rows, vocab)).astype(F)  # ties are many
        return x


class Chain(Rows):
    source = "plugins/sample_standard/hip/chain.hip"

    @every_target
    def test_a_draft_step(self, code):
        rows, vocab, splits = 3, 301, 3
        x = self.logits(rows, vocab)
        x[0, [10, 250]] = [np.nan, 99]
        x[1, :vocab] = -np.inf
        x[2, [100, 104, 300]] = 77  # either side of an edge of splits, and the last
        scratch, token, probability = np.zeros((rows, 4), U), np.full(rows, -1, I64), np.full(rows, -1, F)
        drafts, first, positions = np.full((rows, 5), -9, I64), np.arange(rows, dtype=I64) + 1000, np.array([7, 1 << 40, -1], I64)
        ids, nan = np.arange(vocab, dtype=I64) * 3 + 50000, np.zeros(rows, U)
        args = [logit_rows(x, vocab, splits), scratch, token, probability, drafts, U64(5), U(2), U(0), first, positions, ids, nan]
        launch(code, "draft_topk1_postprocess", grid=rows * splits, threads=256, args=args)
        index, held_nan = largest(x[:, :vocab])
        np.testing.assert_array_equal(token, ids[index])
        np.testing.assert_array_equal(drafts, [[1000 + r, -9, ids[index[r]], -9, -9] for r in range(rows)])
        np.testing.assert_array_equal(positions, [8, (1 << 40) + 1, 0])
        np.testing.assert_array_equal(nan, held_nan.astype(U))
        self.assertTrue((probability == 1).all() and not scratch.any(), "the meeting place is clean again")

    @every_target
    def test_a_verification_and_its_commit(self, code):
        b, w, vocab, splits = 5, 4, 130, 2
        x = self.logits(b * w, vocab)
        x[6, 3] = np.nan
        target = largest(x[:, :vocab])[0]
        candidates = np.full((b, w), -1, I64)
        for i, right in enumerate((0, 3, 1, 2, 3)):
            candidates[i, 1:1 + right] = target[i * w:i * w + right]
            if right + 2 < w:
                candidates[i, right + 2] = target[i * w + right + 1]  # right again behind a mistake
        results = [np.full(n, -7, I) for n in (b * w, b * w, b, b)]
        all_targets, nan = np.full(b * w, -7, I), np.zeros(b, U)
        scratch = [np.zeros(1, U), np.zeros(b * w, U), np.zeros(b * w, np.uint64)]
        launch(code, "greedy_chain_verify", grid=b * w * splits, threads=64, resident=True,
               args=[logit_rows(x, vocab, splits), scratch, candidates, U(b), U(w), *results, all_targets, nan])
        predict, index, correct, lens = results
        np.testing.assert_array_equal(correct, [0, 3, 1, 2, 3])
        np.testing.assert_array_equal(lens, correct + 1)
        keep = np.arange(w) <= correct[:, None]
        np.testing.assert_array_equal(predict.reshape(b, w), np.where(keep, target.reshape(b, w), 0))
        np.testing.assert_array_equal(index.reshape(b, w), np.where(keep, np.arange(b * w).reshape(b, w), -1))
        np.testing.assert_array_equal(all_targets, target)
        np.testing.assert_array_equal(nan, [0, 1, 0, 0, 0])
        self.assertFalse(any(part.any() for part in scratch))

        seq, slot = np.array([10, 20, 30, 40, 50], I), np.array([3, -1, 0, 1, 9], I)  # one padded, one with a slot that is none
        bonus, new_lens, select, relay, offsets = np.zeros(b, I64), np.zeros(b, I), np.zeros(b, I64), np.full(4, -7, I), np.full(b + 1, -7, I)
        launch(code, "chain_commit", grid=1, threads=128,
               args=[U(b), U(w), predict, index, lens, seq, slot, U(4), U(0), bonus, new_lens, select, relay, offsets])
        np.testing.assert_array_equal(bonus, [target[i * w + c] for i, c in enumerate(correct)])
        np.testing.assert_array_equal(new_lens, seq + lens)
        np.testing.assert_array_equal(select, np.arange(b) * w + correct)
        np.testing.assert_array_equal(relay, [32, 43, -7, 11])
        np.testing.assert_array_equal(offsets, [0, 1, 1, 3, 6, 10])

    @every_target
    def test_sums_of_many_accepted_lengths(self, code):
        b = 300  # three blocks, the last partly idle
        lens, slot = self.rng.integers(1, 8, b).astype(I), np.where(self.rng.random(b) < 0.2, -1, np.arange(b)).astype(I)
        index, seq = np.arange(b * 7, dtype=I), np.zeros(b, I)
        outs = [np.zeros(b, I64), np.zeros(b, I), np.zeros(b, I64), np.zeros(b, I)]
        offsets = np.full(b + 1, -7, I)
        launch(code, "chain_commit", grid=3, threads=128, args=[U(b), U(7), np.zeros(b * 7, I), index, lens, seq, slot, U(b), U(0), *outs, offsets])
        np.testing.assert_array_equal(offsets, np.concatenate([[0], np.cumsum(np.where(slot < 0, 0, lens))]))

    @every_target
    def test_the_tree_of_a_chain(self, code):
        b, w = 33, 4  # 132 rows: the second block has four
        seq, bonus, drafts = self.rng.integers(0, 60, b).astype(I), np.arange(b, dtype=I64) + 500, self.rng.integers(0, 99, (b, 6)).astype(I64)
        slots_of, slots = self.rng.integers(0, 999, (b, 62)).astype(I), np.full(b * w, -7, I)
        ids = [np.full(b * w, -7, I64) for _ in range(5)]
        mask = np.full((b * w, w), 7, np.uint8)
        launch(code, "build_chain_tree", grid=2, threads=128,
               args=[U(b), U(w), seq, bonus, drafts, U64(6), *ids, mask, slots_of, U64(62), slots, None, None, None, None, None, None])
        tokens, positions, retrieve, following, sibling = ids
        np.testing.assert_array_equal(tokens.reshape(b, w), np.concatenate([bonus[:, None], drafts[:, :w - 1]], axis=1))
        at = seq[:, None] + np.arange(w)
        np.testing.assert_array_equal(positions.reshape(b, w), at)
        np.testing.assert_array_equal(retrieve, np.arange(b * w))
        np.testing.assert_array_equal(following.reshape(b, w), np.tile([1, 2, 3, -1], (b, 1)))
        self.assertTrue((sibling == -1).all())
        np.testing.assert_array_equal(mask.reshape(b, w, w), np.tile(np.tri(w, dtype=np.uint8), (b, 1, 1)))
        np.testing.assert_array_equal(slots.reshape(b, w), np.where(at < 62, slots_of[np.arange(b)[:, None], np.minimum(at, 61)], -1))


class Sample(Rows):
    source = "plugins/sample_standard/hip/sample.hip"

    @every_target
    def test_greedy_rows(self, code):
        rows, vocab, splits = 2, 523, 3
        x = self.logits(rows, vocab)
        x[1, 522] = 50
        scratch, found = np.zeros((rows, 2), np.uint64), np.zeros((rows, 2), np.uint64)
        launch(code, "argmax_rows", grid=rows * splits, threads=256, args=[logit_rows(x, vocab, splits), scratch, found])
        index, _ = largest(x[:, :vocab])
        np.testing.assert_array_equal(found[:, 0], [key(x[r, i], i) for r, i in enumerate(index)])
        self.assertFalse(scratch.any())
        with self.assertRaises(Fault):
            launch(code, "argmax_rows", grid=rows * splits, threads=256, args=[logit_rows(x, vocab, splits), scratch, found[:1].copy()])

    @every_target
    def test_edits_weights_and_the_head_of_the_order(self, code):
        vocab, splits = 1500, 2  # a segment and a half; the second split ends inside a block of threads
        x = (self.rng.standard_normal((1, 1504)) * 3).astype(F)
        mask = self.rng.integers(0, 1 << 32, 47, dtype=np.uint64).astype(U)
        edits = [(3, 0, 1, 0), (700, 1, 1, 0x80000002), (1499, 2, 0, 0x80000000)]
        mask[[3 // 32, 700 // 32, 1499 // 32]] = 0xFFFFFFFF
        biases = np.array([1.5, -100], F)
        repetition, frequency, presence = F(1.3), F(0.5), F(0.25)
        temperature = F(0.7)
        no_work, no_view = [U(0)] * 5 + [F(0)] * 3, [U(0), U(0), F(0), NONE, U(0), U(0), F(0)]
        work = [U(0), U(0), U(0), U(len(edits)), U(0), repetition, frequency, presence]
        view = [U(0), U(3), temperature, U(0), U(CAPACITY), U(BINS), F(1)]
        tasks = [None, None, [work] + [no_work] * 7, [view] + [no_view] * 15]
        edit_words = np.array(edits, U)
        edited, scratch, found, told = np.full((1, 1504), np.nan, F), np.zeros((2, 2), np.uint64), np.zeros(3, np.uint64), np.zeros(3, np.uint64)
        cleared = np.full(BINS + 1, 7, U)
        launch(code, "survey_rows", grid=splits, threads=256,
               args=[logit_rows(x, vocab, splits), tasks, edit_words, biases, mask, edited, U64(1504), scratch, found, told, cleared, U64(BINS + 1)])
        self.assertFalse(cleared.any())
        np.testing.assert_array_equal(found, told)
        allowed = (mask[np.arange(vocab) // 32] >> (np.arange(vocab) % 32).astype(U) & 1).astype(bool)
        expected = np.where(allowed, x[0, :vocab], F(-np.inf))
        expected[3] += F(1.5)
        expected[700] = -np.inf  # forbidden by its bias
        last = expected[1499]
        expected[1499] = last / repetition if last > 0 else last * repetition
        self.equal_bits(edited[0, :vocab], expected)
        best, edited_best = largest(x[:, :vocab])[0][0], largest(expected[None])[0][0]
        self.assertEqual(int(found[0]), key(x[0, best], best))
        self.assertEqual(int(found[1]), key(expected[edited_best], edited_best))
        self.assertEqual(found[2:].view(F)[0], x[0, edited_best])
        self.assertFalse(scratch.any())

        bins, filled = cleared[:BINS], cleared[BINS:]
        view_found, sums = np.zeros(2, U), np.full(2, np.nan, F64)
        keys, model_logits = np.zeros(CAPACITY, np.uint64), np.full(CAPACITY, np.nan, F)
        args = [x, U64(1504), U(vocab), U(2), tasks, found, edited, U64(1504), bins, filled, view_found, sums, U64(2), keys, model_logits]
        launch(code, "weigh_views", grid=2, threads=256, args=args)
        most = expected[edited_best]
        weights = np.exp((expected.astype(F64) - F64(most)) / F64(temperature))
        np.testing.assert_allclose(sums, [weights[:1024].sum(), weights[1024:].sum()], rtol=1e-6)
        z = (expected - most) / temperature
        with np.errstate(invalid="ignore"):
            bin_of = np.where(z > -F(127), np.where(np.isfinite(z), z, 0) * F(-32), BINS - 1).astype(np.int64)
        real = expected > -np.inf
        np.testing.assert_array_equal(bins, np.bincount(bin_of[real], minlength=BINS))
        n = int(real.sum())
        launch(code, "list_views", grid=2, threads=256, args=args)
        self.assertEqual(tuple(view_found), (n, BINS), "fewer tokens than the list holds: all of them")
        order = sorted(key(expected[i], i) for i in np.nonzero(real)[0])
        self.assertEqual(sorted(~int(k) & 0xFFFFFFFFFFFFFFFF for k in keys[:n]), order)
        ids = [int(k) & 0xFFFFFFFF for k in keys[:n]]
        self.equal_bits(model_logits[:n], x[0, ids])
        self.assertFalse(keys[n:].any())
