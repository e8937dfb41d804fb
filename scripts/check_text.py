#!/usr/bin/env python3
"""The rules that are a pattern in a text: who may call what, how long a file is, what a text may name."""
import os
import re

import tree

MAX_LINES = 600
SPAWN_FILES = re.compile(r"core/loop/(spawn|spawn_child|child|keeper|keeper_main|proc_tree)\.c$")

# (where the rule holds, the pattern, files that are exempt, what is wrong)
CODE_RULES = [
    (("core", "lua"), r"\buv_spawn\b", None, "children are started by the spawn file, never by uv_spawn"),
    (("core", "lua"), r"(?<![\w.>])(malloc|calloc|realloc|reallocarray|free|strdup|strndup|v?asprintf|getline)\s*\(",
     re.compile(r"core/base/alloc\.[ch]$"), "the heap has one door, core/base/alloc.h"),
    (("core", "lua"), r"\b(waitpid|waitid|wait3|wait4)\s*\(", SPAWN_FILES, "only the spawn files wait for children"),
    (("core", "lua"), r"(?<![\w.>])(fork|vfork|clone3?|system|popen|posix_spawnp?)\s*\(", SPAWN_FILES,
     "only the spawn files start children"),
    (("core", "lua"), r"\b(signal|sigaction)\s*\(\s*SIGCHLD", None, "no SIGCHLD handler: it belongs to the embedder"),
    (("core", "lua"), r"(?<![\w.>])(strcat|sprintf|vsprintf|gets|strtok|tmpnam|mktemp|alloca|atoi|atol|atoll|atof)\s*\(", None,
     "use the form that is bounded, reentrant and says when it failed"),
    (("core/codec",), r"(?<!\w)(FILE|f?printf|fopen|f?puts|f?putc|putchar|fwrite|fread|fgets|scanf)\b", None,
     "a codec does no I/O"),
    (("lua",), r"\bNSBX_AUTO_(CLOSE|FREE)\b", None, "a raising Lua function jumps over cleanup attributes"),
]
# Text of the project speaks of the project alone.
TEXT_RULES = [
    (r"(?<![\w.])/work/|\.\./shared\b|/tmp/team\b", "a path of one machine"),
    (r"\b[Ii]ssue #?\d", "a number that means nothing here"),
    (r"[ \t]+$", "white space at the end of a line"),
]
BINARY = re.compile(r"^spec/fuzz/corpus/|\.(png|bin)$")


def code_rules():
    for folders, pattern, exempt, message in CODE_RULES:
        for path in tree.files(*folders, ext=(".c", ".h")):
            if exempt and exempt.search(path):
                continue
            text = tree.code(path)
            for match in re.finditer(pattern, text):
                yield f"{path}:{tree.line_of(text, match.start())}: {match.group(0).strip()}: {message}"


def one_door():
    calls = []
    for path in tree.files("lua", ext=(".c", ".h")):
        text = tree.code(path)
        calls += [f"{path}:{tree.line_of(text, m.start())}" for m in re.finditer(r"\blua_resume\s*\(", text)]
    if len(calls) != 1:
        yield f"lua/: lua_resume is called {len(calls)} times, not once: {' '.join(calls)}"


def lengths():
    for path in tree.files("core", "lua", "spec", ext=".c"):
        lines = tree.read(path).count("\n")
        if lines > MAX_LINES:
            yield f"{path}: {lines} lines, more than {MAX_LINES}: it has more than one noun"


def text_rules():
    for path in tree.files():
        if BINARY.search(path) or path == "scripts/check_text.py":
            continue
        text = tree.read(path)
        for pattern, message in TEXT_RULES:
            for match in re.finditer(pattern, text, re.M):
                yield f"{path}:{tree.line_of(text, match.start())}: {message}"
        if text and not text.endswith("\n"):
            yield f"{path}: no newline at the end"


def links():
    """Relative links of the Markdown files lead somewhere."""
    for path in tree.files(ext=".md"):
        text = tree.read(path)
        for match in re.finditer(r"\]\(([^)\s]+)\)", text):
            target = match.group(1).split("#")[0]
            if not target or re.match(r"[a-z]+:", target):
                continue
            where = os.path.normpath(os.path.join(os.path.dirname(path), target))
            if not os.path.exists(os.path.join(tree.TOP, where)):
                yield f"{path}:{tree.line_of(text, match.start())}: the link to {target} leads nowhere"


def examples():
    """Each example runs in a spec."""
    specs = "".join(tree.read(path) for path in tree.files("spec", ext=".lua"))
    for path in tree.files("examples", ext=".lua"):
        if os.path.basename(path) not in specs:
            yield f"{path}: no spec names it"


def main():
    problems = []
    for rule in (code_rules, one_door, lengths, text_rules, links, examples):
        problems += rule()
    if "README.md" not in tree.files(ext=".md"):
        problems.append("README.md: is missing")
    tree.finish(problems, f"{len(tree.files())} files")


if __name__ == "__main__":
    main()
