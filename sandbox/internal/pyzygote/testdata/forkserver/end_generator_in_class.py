import json, os


def generator(write=os.write):
    try:
        yield
    finally:
        write(1, b"finally\n")


json.JSONEncoder.g = generator()
next(json.JSONEncoder.g)
