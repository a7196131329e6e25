import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import contextvars, decimal, json
var = contextvars.ContextVar("var", default=Last("default"))
var.set(Last("value"))
json.var = contextvars.ContextVar("other")
json.var.set(Last("value of a preloaded module's"))
context = contextvars.copy_context()
context.run(var.set, Last("in a copy"))
json.context = contextvars.copy_context()
json.context.run(var.set, Last("in a copy of a preloaded module"))
decimal.getcontext().prec = 5
print("end")
