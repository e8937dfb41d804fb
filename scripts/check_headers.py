#!/usr/bin/env python3
"""Each header compiles alone: whoever includes it needs to know nothing else."""
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import tree

FLAGS = ("-std=gnu11 -fsyntax-only -D_GNU_SOURCE= -DSPEC_DIR=\"spec\" -Wall -Wextra -Werror -Wundef -Wno-unused-function "
         "-Icore -Ilua -isystem /usr/include/lua5.4").split()


def alone(path):
    # As an include of an empty file, so that the compiler does not take the header for the main file. Static inline
    # functions and the test harness's static state may stay unused.
    done = subprocess.run(["gcc", *FLAGS, "-Wno-unused-variable", "-include", path, "-x", "c", os.devnull],
                          cwd=tree.TOP, capture_output=True, text=True)
    return [done.stderr] if done.returncode else []


def main():
    headers = tree.files("core", "lua", "spec", ext=".h")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        problems = sum(pool.map(alone, headers), [])
    tree.finish(problems, f"{len(headers)} headers")


if __name__ == "__main__":
    main()
