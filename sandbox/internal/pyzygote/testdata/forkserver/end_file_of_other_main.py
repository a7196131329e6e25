import json, sys, types
json.JSONEncoder.main = sys.modules["__main__"]
f = open("data", "w")
f.write("unflushed")


def function():
    return f


json.JSONEncoder.function = function
del sys.modules["__main__"]
