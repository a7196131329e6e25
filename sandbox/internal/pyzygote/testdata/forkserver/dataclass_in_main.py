from dataclasses import dataclass
import typing


@dataclass
class P:
    x: int
    y: "typing.List[P]"


print(P(1, []), typing.get_type_hints(P))
