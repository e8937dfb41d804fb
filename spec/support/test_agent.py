#!/usr/bin/env python3
"""The agent as a program, by its wire: every case starts the real binary and talks real frames to it.

    test_agent.py PROGRAM [PATTERN]

runs the cases whose name matches PATTERN, a few at a time since most of them wait most of the time, and ends with
"N passed, N failed"."""
import contextlib
import io
import os
import re
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed

import agent_end_cases
import agent_exec_cases
import agent_file_cases
import agent_jail_cases
import agent_life_cases
import agent_output_cases
import agent_walk_cases
import agent_write_cases

MODULES = (agent_jail_cases, agent_file_cases, agent_write_cases, agent_exec_cases, agent_output_cases, agent_end_cases,
           agent_life_cases, agent_walk_cases)
AT_A_TIME = 4
LONG = ("rename_race", "deep_trees", "two_trees", "64_hostile", "gigabyte")  # begun first


def cases():
    """{name: function}"""
    found = {}
    for module in MODULES:
        for name, function in vars(module).items():
            if name.startswith("test_"):
                found[f"{module.__name__.split('_')[1]}: {name[5:]}"] = function
    return dict(sorted(found.items(), key=lambda case: not any(word in case[0] for word in LONG)))


def run(name, program):
    """(passed, what to print)"""
    start = time.monotonic()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            cases()[name](program)
            passed = True
        except Exception:  # whatever it is, it is a failure of this case and of no other
            traceback.print_exc(file=said)
            passed = False
    verdict = "ok    " if passed else "FAILED"
    return passed, f"{said.getvalue()}{verdict} {name} ({time.monotonic() - start:.2f} s)"


def main():
    program = os.path.abspath(sys.argv[1])
    pattern = re.compile(sys.argv[2] if len(sys.argv) > 2 else "")
    passed = failed = 0
    with ProcessPoolExecutor(AT_A_TIME) as pool:
        for future in as_completed([pool.submit(run, name, program) for name in cases() if pattern.search(name)]):
            good, text = future.result()
            print(text, flush=True)
            passed += good
            failed += not good
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
