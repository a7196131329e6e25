"""Runs tests and prints a line of JSON for each: python3 -m tests [MODULE...]"""

import json
import sys
import traceback
import unittest


class Lines(unittest.TestResult):
    """Reports each test as JSON when it has ended."""

    def _say(self, test, verdict, text=""):
        print(json.dumps({"test": test.id(), "verdict": verdict, "text": text}), flush=True)

    def _why(self, error):
        return "".join(traceback.format_exception(*error))

    def addSuccess(self, test):
        super().addSuccess(test)
        self._say(test, "pass")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._say(test, "fail", self._why(err))

    def addError(self, test, err):
        super().addError(test, err)
        self._say(test, "fail", self._why(err))

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._say(subtest, "fail", self._why(err))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._say(test, "skip", reason)

    def addExpectedFailure(self, test, err):
        raise AssertionError("no test is expected to fail")


def main(modules):
    suite = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromName(name) for name in modules)
    result = Lines()
    suite.run(result)
    return 0 if result.wasSuccessful() and result.testsRun > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
