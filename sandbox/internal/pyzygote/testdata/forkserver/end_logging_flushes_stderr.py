# differs: logging is preimported, and flushes stderr at the end
import sys


class Tee:
    def write(self, text):
        sys.__stderr__.write(text)

    def flush(self):
        sys.__stderr__.write("flushed\n")


sys.stderr = Tee()
