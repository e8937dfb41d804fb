#!/usr/bin/env python3
"""clang-tidy-14 with the list in .clang-tidy over every C file that the fuzz preset compiles (it is clang's own view).
The analyzer follows a function only so far (NSBX_TIDY_NODES, more in scripts/test --full) and leaves the tests to the
sanitizers. A file that was clean is not looked at again while its preprocessed text, its flags and the list stay."""
import hashlib
import json
import os
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor

import tree

BUILD = os.path.join(tree.TOP, "build", "fuzz")
CACHE = os.path.join(tree.TOP, "build", "check", "tidy")

NODES = os.environ.get("NSBX_TIDY_NODES", "50000")


def options(entry):
    if os.path.relpath(entry["file"], tree.TOP).startswith("spec"):
        return ["--checks=-clang-analyzer-*"]
    return [f"--extra-arg={word}" for word in ("-Xclang", "-analyzer-config", "-Xclang", f"max-nodes={NODES}")]


def key(entry):
    arguments = shlex.split(entry["command"])
    at = arguments.index("-o")
    arguments[at:at + 2] = []
    # With comments, because a NOLINT in a header counts too.
    text = subprocess.run([*arguments, "-E", "-C"], cwd=entry["directory"], check=True, capture_output=True).stdout
    seen = hashlib.sha256(text)
    for part in (entry["command"], *options(entry), tree.read(".clang-tidy"), tree.read("scripts/check_tidy.py")):
        seen.update(part.encode())
    with open(entry["file"], "rb") as source:
        seen.update(source.read())
    return seen.hexdigest()


def tidy(entry):
    """(was it looked at, what it says)"""
    try:
        mark = os.path.join(CACHE, key(entry))
    except subprocess.CalledProcessError as failure:
        return True, failure.stderr.decode()
    if os.path.exists(mark):
        os.utime(mark)
        return False, ""
    done = subprocess.run(["clang-tidy-14", "--quiet", "-p", BUILD, *options(entry), entry["file"]],
                          cwd=tree.TOP, capture_output=True, text=True)
    if done.returncode:
        return True, done.stdout or done.stderr
    open(mark, "w").close()
    return True, ""


def main():
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as f:
        entries = [entry for entry in json.load(f) if not entry["file"].startswith(BUILD)]  # not what the build makes
    os.makedirs(CACHE, exist_ok=True)
    # The largest first, so that the last worker does not start on the longest file at the end.
    entries.sort(key=lambda entry: -os.path.getsize(entry["file"]))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(tidy, entries))
    seen = [path for _, path in sorted((os.stat(p.path).st_mtime, p.path) for p in os.scandir(CACHE))]
    for path in seen[:-1000]:
        os.unlink(path)
    looked = sum(1 for was, _ in results if was)
    tree.finish([text for _, text in results if text], f"{len(results)} files, {looked} of them anew")


if __name__ == "__main__":
    main()
