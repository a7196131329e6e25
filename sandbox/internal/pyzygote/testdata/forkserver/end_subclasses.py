# order: none
import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import abc, argparse, collections, dataclasses, enum, json, logging, threading, typing


class Encoder(json.JSONEncoder):
    x = Last("class Encoder")

    def __del__(self, write=os.write):
        write(2, b"gone: an Encoder\n")


class Meta(type):
    def __del__(cls, write=os.write):
        write(2, b"gone: class %s\n" % cls.__name__.encode())


class One(metaclass=Meta):
    pass


class Two(One, collections.UserDict, metaclass=type("Both", (Meta, abc.ABCMeta), {})):
    x = Last("class Two")


class Colour(enum.Enum):
    RED = 1


Colour.x = Last("class Colour")


@dataclasses.dataclass
class Data:
    field: object = Last("default of a dataclass")


class Tuple(typing.NamedTuple):
    field: object = Last("default of a named tuple")


T = typing.TypeVar("T")


class Generic(typing.Generic[T]):
    x = Last("class Generic")


alias = Generic[int]
json.encoder_of_script, json.data = Encoder(), Data()
kept = Encoder()
logging.Handler.x = One
print(len(json.JSONEncoder.__subclasses__()), "end")
