# differs: objects of preimported modules are not finalized
import json, os


def gone(self, write=os.write):
    write(1, b"gone\n")


# The module json has an instance.
json.JSONEncoder.__del__ = gone
print(type(json._default_encoder).__name__)
