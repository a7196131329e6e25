class C:
    def __del__(self):
        raise ValueError("in del")


C()
print("on")
