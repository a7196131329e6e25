import gc, json, logging
gc.disable()
f = open("data", "w")
f.write("unflushed")


class Handler(logging.Handler):
    def emit(self, record):
        f.write("emitted")


logging.getLogger().addHandler(Handler())
logging.error("x")
