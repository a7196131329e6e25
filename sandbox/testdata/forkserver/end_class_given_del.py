# differs: an object of a module that was imported ahead is left alone
import json, os


def gone(self, write=os.write):
    write(1, b"gone\n")


# json has an instance of its own.
json.JSONEncoder.__del__ = gone
print(type(json._default_encoder).__name__)
