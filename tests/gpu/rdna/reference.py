"""What kernels compute, in numpy with their order of summation: for tests that compare bits."""
import numpy as np

from .vector import fma

F = np.float32


def wave_sum(values):
    """Sums of the last axis (32 values): pairs at distance 16, 8, 4, 2, 1."""
    values = np.asarray(values, F)
    for distance in (16, 8, 4, 2, 1):
        values = values + values[..., np.arange(32) ^ distance]
    return values[..., 0]


def row_sum_of_squares(x):
    """Of each row: 256 virtual threads, their waves, the waves in rising order."""
    rows, cols = x.shape
    padded = np.zeros((rows, -(-cols // 256), 256), F)
    padded.reshape(rows, -1)[:, :cols] = x
    acc = np.zeros((rows, 256), F)
    for k in range(padded.shape[1]):
        acc = fma(padded[:, k], padded[:, k], acc)
    total = np.zeros(rows, F)
    for sums in wave_sum(acc.reshape(rows, 8, 32)).T:
        total = total + sums
    return total


def rms_norm(x, weight, eps):
    mean = row_sum_of_squares(x) / F(x.shape[1])
    r = F(1) / np.sqrt(mean + F(eps))
    return x * r[:, None] * weight


class Bytes:
    """Rows as bytes, in tiles of 32."""

    def __init__(self, x, norm=None):
        n = len(x)
        y = (x * norm if norm is not None else x).reshape(n, -1, 32)
        largest = np.abs(y).max(2)
        self.scale = largest * (F(1) / F(127))
        with np.errstate(divide="ignore"):
            inverse = np.where(largest > 0, F(127) / largest, F(0)).astype(F)
        self.codes = np.clip(np.rint(y * inverse[..., None]), -127, 127).astype(np.int8)
        self.sum = self.codes.astype(np.int32).sum(2).astype(F)
        self.squares = np.ascontiguousarray(wave_sum((x * x).reshape(n, -1, 32)))

    def factor(self, eps):
        tiles = self.squares.shape[1]
        lanes = np.zeros((len(self.codes), 32), F)
        for i in range(tiles):
            lanes[:, i % 32] = lanes[:, i % 32] + self.squares[:, i]
        return F(1) / np.sqrt(wave_sum(lanes) / F(tiles * 32) + F(eps))

    def scales(self):
        return np.ascontiguousarray(np.stack([self.scale, self.sum], 2))


def no_bytes(n, cols):
    """Codes, scales and squares of n rows that nobody has written."""
    return [np.full((n, cols), 99, np.int8), np.zeros((n, cols // 32, 2), F), np.full((n, cols // 32), np.nan, F)]
