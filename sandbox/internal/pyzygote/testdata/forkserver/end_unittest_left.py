import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json, sys, unittest


class Tests(unittest.TestCase):
    x = Last("of the tests' class")

    @classmethod
    def setUpClass(cls):
        cls.file = open("tests.txt", "w")
        cls.file.write("unflushed")

    def test_holds(self):
        self.last = Last("of a test")
        json.test = self
        open("leaked.txt", "w").write("x")

    def test_fails(self):
        mine = Last("local of a failed test")
        self.fail()


sys.argv[1:] = ["-v"]
runner = unittest.TextTestRunner(stream=sys.stdout, descriptions=False, verbosity=0)
runner._makeResult = lambda: unittest.TestResult()
suite = unittest.defaultTestLoader.loadTestsFromTestCase(Tests)
result = unittest.TestResult()
suite.run(result)
print(result.testsRun, len(result.failures))
