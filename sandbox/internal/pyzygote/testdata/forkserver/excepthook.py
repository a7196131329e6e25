import sys


def hook(kind, value, tb):
    print("hook", kind.__name__, value, tb.tb_lineno, tb.tb_frame.f_back)


sys.excepthook = hook
raise ValueError("x")
