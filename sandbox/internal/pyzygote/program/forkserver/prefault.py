"""Memory pages that children copy before they wait.

A child shares the zygote's pages until it writes to them. Each first write to a page is
a page fault, in which the kernel copies the page. During the start and the end of a
script most writes come from the interpreter, mainly reference counts. They hit nearly the
same pages in each child. The child that rehearses the fast exit stops at its end, so that
the zygote can see which pages it has written. Later children let the kernel copy these
pages at once, before a request needs the child. This only affects speed: no page's
content changes, and a page too few or too many costs a little time.
"""

import ctypes
import os
import struct

from .libc import libc, syscall

MADV_POPULATE_WRITE = 23  # Linux 5.14
MAX_PREFAULTED = 4 << 20  # bytes that a child copies
MAX_RANGES = 1024  # IOV_MAX
PAGE = os.sysconf("SC_PAGE_SIZE")


class Range(ctypes.Structure):
    """A struct iovec."""

    _fields_ = [("start", ctypes.c_void_p), ("size", ctypes.c_size_t)]


def writable():
    """The private writable memory of this process, as pairs (start, end)."""
    with open("/proc/self/maps") as f:
        for line in f:
            where, rights = line.split(None, 2)[:2]
            if rights[:2] == "rw" and rights[3] == "p":
                start, _, end = where.partition("-")
                yield int(start, 16), int(end, 16)


def written(pid):
    """The addresses of pages in writable() that only the child pid maps. The child has
    written to these (/proc/pid/pagemap, bit 56, proc(5))."""
    with open("/proc/%d/pagemap" % pid, "rb", buffering=0) as f:
        for start, end in writable():
            f.seek(start // PAGE * 8)
            words = struct.iter_unpack("Q", f.read((end - start) // PAGE * 8))
            for address, (word,) in zip(range(start, end, PAGE), words):
                present, of_file, alone = word >> 63, word >> 61 & 1, word >> 56 & 1
                if present and alone and not of_file:
                    yield address


class Prefault:
    """The pages that children copy before they wait."""

    def __init__(self, addresses=()):
        found, room = [], MAX_PREFAULTED // PAGE
        for address in addresses:
            if room and found and sum(found[-1]) == address:
                found[-1][1] += PAGE
            elif room and len(found) < MAX_RANGES:
                found.append([address, PAGE])
            else:
                break
            room -= 1
        self.ranges = (Range * len(found))(*map(tuple, found))

    def touch(self):
        if not self.ranges or self.touch_at_once():
            return
        for r in self.ranges:
            if libc.madvise(ctypes.c_void_p(r.start), ctypes.c_size_t(r.size), MADV_POPULATE_WRITE) == -1:
                return  # not supported by the kernel

    def touch_at_once(self):
        """Returns false if the kernel can't do it. For the caller's memory that is before Linux 6.13."""
        try:
            own = syscall("pidfd_open", os.getpid(), 0)
        except OSError:
            return False
        try:
            return syscall("process_madvise", own, ctypes.byref(self.ranges), len(self.ranges), MADV_POPULATE_WRITE, 0) > 0
        except OSError:
            return False
        finally:
            os.close(own)
