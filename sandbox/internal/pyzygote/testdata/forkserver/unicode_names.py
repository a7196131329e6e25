é = "ünï"
print(é, ascii(é))
raise ValueError(é)
