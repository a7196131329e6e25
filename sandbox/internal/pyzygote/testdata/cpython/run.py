"""Runs a file of CPython's own test suite, or the tests of it that are named, and
writes what became of each test to a file: an object in JSON, a line each.

    run.py RESULTS MODULE [TEST...]
"""

import json
import os
import sys
import unittest


def last_line(error):
    """An exception, on one line."""
    kind, value, _ = error
    return "%s: %s" % (kind.__name__, str(value).strip().partition("\n")[0])


class Result(unittest.TestResult):
    """Opened for each line, as tests close descriptors and fork."""

    def __init__(self, path):
        super().__init__()
        self.path, self.main, self.status = path, os.getpid(), 0

    def say(self, test, outcome, detail=""):
        if os.getpid() != self.main:
            return
        if outcome in ("error", "failed", "failed in part", "unexpected success"):
            self.status = 1
        line = json.dumps({"test": test.id(), "outcome": outcome, "detail": detail})
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, line.encode() + b"\n")
        os.close(fd)

    def startTest(self, test):
        super().startTest(test)
        self.say(test, "begun")

    def addSuccess(self, test):
        self.say(test, "ok")

    def addError(self, test, err):
        self.say(test, "error", last_line(err))

    def addFailure(self, test, err):
        self.say(test, "failed", last_line(err))

    def addSkip(self, test, reason):
        self.say(test, "skipped", reason)

    def addExpectedFailure(self, test, err):
        self.say(test, "expected failure")

    def addUnexpectedSuccess(self, test):
        self.say(test, "unexpected success")

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.say(test, "failed in part", last_line(err))


def load(module, names):
    loader = unittest.defaultTestLoader
    if not names:
        return loader.loadTestsFromName(module)
    return unittest.TestSuite(t for t in flat(loader.loadTestsFromName(module)) if t.id() in names)


def flat(suite):
    for t in suite:
        if isinstance(t, unittest.TestSuite):
            yield from flat(t)
        else:
            yield t


def main():
    from test import support

    _, path, module, *names = sys.argv
    del sys.argv[1:]
    support.use_resources = ()  # what takes long, much disk or a network: as the suite's own runner has it
    result = Result(path)
    try:
        tests = load(module, names)
    except unittest.SkipTest as e:
        result.say(unittest.FunctionTestCase(print), "skipped", str(e))
        return
    tests.run(result)
    result.say(unittest.FunctionTestCase(print), "end", "%d tests" % result.testsRun)
    sys.exit(result.status)


if __name__ == "__main__":
    main()
