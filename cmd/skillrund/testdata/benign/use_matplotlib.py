import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

figure, axes = plt.subplots()
axes.plot([1, 2, 3], [2, 4, 8], label="Größe")
axes.set_title("$x^2 + \\alpha$")
axes.legend()
for name, magic in (("plot.png", b"\x89PNG"), ("plot.pdf", b"%PDF"), ("plot.svg", b"<?xml")):
    figure.savefig(name)
    assert open(name, "rb").read(5).startswith(magic), name
print("ok")
