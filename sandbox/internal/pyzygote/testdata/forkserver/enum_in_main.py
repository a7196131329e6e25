import enum
E = enum.Enum("E", "A B")
print(E.A, E.__module__, E.A.__reduce_ex__(2))
