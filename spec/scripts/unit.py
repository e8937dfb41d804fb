"""unittest with the last line that the suite wants."""
import sys
import unittest


def main():
    outcome = unittest.main(exit=False, argv=[sys.argv[0]]).result
    failed = len(outcome.failures) + len(outcome.errors)
    print(f"{outcome.testsRun - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
