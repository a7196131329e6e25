import sys
events = []


def tracer(frame, event, arg):
    events.append((event, frame.f_code.co_name))
    return tracer


def f():
    return 1


sys.settrace(tracer)
f()
sys.settrace(None)
print(events)
