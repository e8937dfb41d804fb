#!/usr/bin/env python3
"""All C is as clang-format-14 would write it."""
import re
import subprocess

import tree

paths = tree.c_files()
done = subprocess.run(["clang-format-14", "--dry-run", *paths], cwd=tree.TOP, capture_output=True, text=True)
wrong = sorted(set(re.findall(r"^(\S+?):\d+:\d+: warning: code should be clang-formatted", done.stderr, re.M)))
problems = [f"clang-format-14 -i {path}" for path in wrong]
if done.returncode:
    problems.append(done.stderr)
tree.finish(problems, f"{len(paths)} files")
