import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import logging


class Handler(logging.Handler):
    def emit(self, record):
        print("emit", record.getMessage())

    def flush(self):
        print("flush")

    def close(self):
        print("close")
        super().close()


handler = Handler()
handler.last = Last("of the handler")
log = logging.getLogger("script")
log.last = Last("of the logger")
log.addHandler(handler)
logging.getLogger().addHandler(Handler())
log.addFilter(Last("filter"))
log.filters.clear()
log.warning("text")
unused = logging.Handler()
unused.last = Last("of a handler in no logger")
print("end")
