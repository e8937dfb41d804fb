"""What the checks share: the files of the tree, C text without its comments, and how a check ends."""
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SKIPPED = {".git", "build", "prefix", "__pycache__"}


def files(*folders, ext=None):
    """Paths relative to the top, sorted; every file below the folders (all of the tree without any)."""
    found = []
    for folder in folders or (".",):
        for where, dirs, names in os.walk(os.path.join(TOP, folder)):
            dirs[:] = sorted(d for d in dirs if d not in SKIPPED)
            for name in names:
                path = os.path.relpath(os.path.join(where, name), TOP)
                if (ext is None or name.endswith(ext)) and not os.path.islink(path):
                    found.append(path)
    return sorted(found)


def c_files():
    return files("core", "lua", "spec", "examples", ext=(".c", ".h"))


def read(path):
    with open(os.path.join(TOP, path), encoding="utf-8", errors="surrogateescape") as f:
        return f.read()


_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def code(path):
    """C text with comments and the insides of literals blanked; line numbers stay true."""
    def blank(match):
        text = match.group(0)
        if text[0] in "\"'":
            return text[0] + " " * (len(text) - 2) + text[0]
        return re.sub(r"[^\n]", " ", text)
    return _TOKEN.sub(blank, read(path))


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def finish(problems, what):
    """Prints each problem and ends the program; `what` says what was looked at when there is none."""
    for problem in problems:
        print(problem)
    if not problems:
        print(what)
    sys.exit(1 if problems else 0)
