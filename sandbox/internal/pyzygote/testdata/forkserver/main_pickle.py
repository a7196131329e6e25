import pickle


class C:
    pass


print(pickle.dumps(C(), 0))
print(type(pickle.loads(pickle.dumps(C()))))
