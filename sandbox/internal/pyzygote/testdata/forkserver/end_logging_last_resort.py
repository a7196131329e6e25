import atexit, logging


class Logs:
    def __del__(self):
        logging.getLogger("script").warning("at the end")
        logging.getLogger("script").info("not shown")


atexit.register(logging.getLogger("x").error, "in atexit")
kept, logging.kept = Logs(), Logs()
logging.getLogger("y").addHandler(logging.StreamHandler(open("closed.txt", "w")))
logging.getLogger("y").handlers[0].stream.close()
logging.getLogger("y").error("to a closed file")
