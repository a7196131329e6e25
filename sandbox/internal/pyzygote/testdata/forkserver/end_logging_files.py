import logging
import logging.handlers

log = logging.getLogger("script")
log.setLevel(logging.DEBUG)
log.propagate = False
log.addHandler(logging.FileHandler("plain.log"))
late = logging.FileHandler("late.log", delay=True)
log.addHandler(late)
target = logging.FileHandler("target.log")
log.addHandler(logging.handlers.MemoryHandler(1000, target=target))
log.addHandler(logging.StreamHandler(open("stream.log", "w", buffering=1 << 16)))


class Unflushed(logging.StreamHandler):
    def flush(self):
        pass


log.addHandler(Unflushed(open("unflushed.log", "w")))
for level in (log.debug, log.info, log.error):
    level("a line")
print("end")
