import unittest


class T(unittest.TestCase):
    def test_a(self):
        self.assertEqual(1, 1)

    def test_b(self):
        with self.assertRaises(ZeroDivisionError):
            1 / 0


unittest.main(argv=["x", "-q"], exit=False, testRunner=unittest.TextTestRunner(stream=open("/dev/null", "w")))
print("end")
