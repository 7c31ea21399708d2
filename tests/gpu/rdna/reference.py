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
