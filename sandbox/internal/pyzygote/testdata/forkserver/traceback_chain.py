try:
    {}["key"]
except KeyError as e:
    raise ValueError("wrapped") from e
