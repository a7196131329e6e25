import numpy as np

rng = np.random.default_rng(1)
a = rng.random((300, 300))
assert np.allclose(a @ np.linalg.inv(a), np.eye(300), atol=1e-6)
assert np.allclose(np.fft.ifft(np.fft.fft(a[0])).real, a[0])
u, s, v = np.linalg.svd(a)
assert np.allclose((u * s) @ v, a)
np.save("/tmp/a.npy", a)
m = np.load("/tmp/a.npy", mmap_mode="r")
assert m.shape == (300, 300) and float(m[3, 4]) == float(a[3, 4])
m = np.memmap("/tmp/b.bin", dtype="int32", mode="w+", shape=(1000,))
m[:] = 7
m.flush()
print("ok")
