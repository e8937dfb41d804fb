#!/usr/bin/env python3
"""The agent as a program, by its wire: every case starts the real binary and talks real frames to it.

    test_agent.py PROGRAM [PATTERN]

runs the cases whose name matches PATTERN and ends with "N passed, N failed"."""
import os
import re
import sys
import time
import traceback

import agent_exec_cases
import agent_file_cases
import agent_life_cases
import agent_walk_cases

MODULES = (agent_life_cases, agent_exec_cases, agent_file_cases, agent_walk_cases)


def cases():
    for module in MODULES:
        for name, function in vars(module).items():
            if name.startswith("test_"):
                yield f"{module.__name__.split('_')[1]}: {name[5:]}", function


def main():
    program = os.path.abspath(sys.argv[1])
    pattern = re.compile(sys.argv[2] if len(sys.argv) > 2 else "")
    passed = failed = 0
    for name, function in cases():
        if not pattern.search(name):
            continue
        start = time.monotonic()
        try:
            function(program)
            passed += 1
            verdict = "ok    "
        except Exception:  # whatever it is, it is a failure of this case and of no other
            failed += 1
            verdict = "FAILED"
            traceback.print_exc(file=sys.stdout)
        print(f"{verdict} {name} ({time.monotonic() - start:.2f} s)", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
