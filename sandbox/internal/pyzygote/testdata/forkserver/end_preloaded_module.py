# order: none
import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import argparse, collections, json, logging, random, sys
json.x = Last("json.x")
json._x = Last("json._x")
json.decoder.x = Last("json.decoder.x")
collections.x = Last("collections.x")
logging.x = Last("logging.x")
random.x = Last("random.x")
argparse.x = Last("argparse.x")
os.x = Last("os.x")
sys.x = Last("sys.x")
print("end")
