"""Device memory: numpy arrays at made-up addresses far apart, so that a small step outside one is a fault and not another
array. Kernels change the arrays in place."""
import bisect

import numpy as np


class Fault(Exception):
    """A kernel did what hardware would answer with a fault, garbage or a hang."""


class Memory:
    GAP = 1 << 20

    def __init__(self):
        self.bases, self.buffers, self.roots = [], [], {}
        self.top = 0x7F0000000000

    def address(self, array):
        """Device address of an array (or of a view into one); the array is placed at the first call. None is null."""
        if array is None:
            return 0
        if not array.flags.c_contiguous:
            raise ValueError("device arrays must be contiguous")
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        if id(root) not in self.roots:
            if not root.flags.c_contiguous:
                raise ValueError("the array that a device array is a part of must be contiguous")
            self.roots[id(root)] = (root, self._place(root.reshape(-1).view(np.uint8)))
        return self.roots[id(root)][1] + array.__array_interface__["data"][0] - root.__array_interface__["data"][0]

    def _place(self, data):
        # An address of 4 KiB alignment and a bit: code that needs more than 256 bytes asks for what nobody promised.
        base = self.top + 256
        self.top += (len(data) + 2 * self.GAP) & ~(self.GAP - 1)
        self.bases.append(base)
        self.buffers.append(data)
        return base

    def find(self, address, size):
        """(buffer, offset) of an access, or None."""
        i = bisect.bisect_right(self.bases, address) - 1
        if i >= 0 and address + size <= self.bases[i] + len(self.buffers[i]):
            return self.buffers[i], address - self.bases[i]
        return None

    def read(self, address, size, what):
        found = self.find(address, size)
        if found is None:
            raise Fault(f"{what}: read of {size} bytes at {address:#x} is outside every buffer")
        return found[0][found[1]:found[1] + size]

    def gather(self, addresses, lanes, size, what):
        """Bytes [n][size] at the addresses (python ints) of `lanes`."""
        buffer, index = self._locate(addresses, lanes, size, what, "read")
        if buffer is not None:
            return buffer[index]
        return np.stack([self.read(a, size, f"{what}, lane {lane}") for a, lane in zip(addresses, lanes)])

    def scatter(self, addresses, lanes, data, what):
        size = data.shape[1]
        buffer, index = self._locate(addresses, lanes, size, what, "write")
        if buffer is not None:
            self._writable(buffer, what)
            buffer[index] = data
            return
        for a, lane, row in zip(addresses, lanes, data):
            found, offset = self.find(a, size) or (None, 0)
            if found is None:
                raise Fault(f"{what}, lane {lane}: write of {size} bytes at {a:#x} is outside every buffer")
            self._writable(found, what)
            found[offset:offset + size] = row

    def _locate(self, addresses, lanes, size, what, verb):
        """One buffer and byte indices when all addresses lie in it."""
        align = 4 if size >= 4 else size
        for a, lane in zip(addresses, lanes):
            if a % align:
                raise Fault(f"{what}, lane {lane}: {verb} of {size} bytes at {a:#x} is not aligned")
        found = self.find(addresses[0], size)
        if found is None:
            return None, None
        base = addresses[0] - found[1]
        if min(addresses) < base or max(addresses) + size > base + len(found[0]):
            return None, None
        offsets = np.array([a - base for a in addresses], np.int64)
        return found[0], offsets[:, None] + np.arange(size)

    @staticmethod
    def _writable(buffer, what):
        if not buffer.flags.writeable:
            raise Fault(f"{what}: write to a read-only buffer")
