try:
    [][1]
except IndexError:
    undefined_name
