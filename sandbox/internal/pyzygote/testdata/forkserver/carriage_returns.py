print("a")
x = """1
2"""
print(ascii(x))
