import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json, logging, sys
logging.basicConfig(format="%(levelname)s:%(funcName)s:%(message)s", stream=sys.stdout, level=logging.DEBUG)


class Logs:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        logging.info("info of %s", self.name)
        logging.getLogger("other").warning("warning of %s", self.name)
        try:
            1 / 0
        except ZeroDivisionError:
            logging.exception("exception of %s", self.name)


kept, json.x, logging.x, json.JSONEncoder.x = Logs("global"), Logs("module"), Logs("logging"), Logs("class")
cycle = Logs("cycle")
cycle.cycle = cycle
logging.error("end")
