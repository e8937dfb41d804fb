#!/usr/bin/env python3
"""core/LAYERS is true: each folder of C code has a line, includes go only along its edges, the edges have no cycle,
and a header from outside (not libc's, the kernel's or the compiler's) is used only where its line names it."""
import os
import re
import subprocess

import tree

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
ROOTS = ("core", "lua", "spec/native")
COMPILER = set("stdarg.h stddef.h stdint.h stdbool.h stdalign.h stdnoreturn.h limits.h float.h stdatomic.h".split())
# Codecs do no I/O: bytes in, events out. So they have no clock, descriptor or allocator of their own.
PURE = {"core/codec": COMPILER | {"string.h", "inttypes.h", "assert.h", "stdio.h"}}  # snprintf; see check_text.py


def layers():
    allowed, outside = {}, {}
    for line in tree.read("core/LAYERS").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        folder, rest = line.split(":", 1)
        edges, _, heads = rest.partition("|")
        allowed[folder.strip()] = set(edges.split())
        outside[folder.strip()] = set(heads.split())
    return allowed, outside


def system_headers():
    listing = subprocess.run(["dpkg-query", "-L", "libc6-dev", "linux-libc-dev"],
                             check=True, capture_output=True, text=True).stdout
    free = set(COMPILER)
    for path in listing.splitlines():
        match = re.match(r"/usr/include/(?:[a-z0-9_]+-linux-gnu[a-z0-9]*/)?(.+\.h)$", path)
        if match:
            free.add(match.group(1))
    return free


def cycle(allowed):
    state = {}

    def visit(folder, way):
        if state.get(folder) == "done":
            return None
        if folder in way:
            return way[way.index(folder):] + [folder]
        for other in sorted(allowed.get(folder, ())):
            found = visit(other, way + [folder])
            if found:
                return found
        state[folder] = "done"
        return None
    for folder in sorted(allowed):
        found = visit(folder, [])
        if found:
            return found
    return None


def resolve(path, name):
    """The file that #include "name" in `path` means, or None."""
    for root in (os.path.dirname(path),) + ROOTS:
        candidate = os.path.normpath(os.path.join(root, name))
        if os.path.isfile(os.path.join(tree.TOP, candidate)):
            return candidate
    return None


def check_file(path, allowed, outside, free):
    folder = os.path.dirname(path)
    text = tree.read(path)
    for match in INCLUDE.finditer(text):
        kind, name = match.groups()
        where = f"{path}:{tree.line_of(text, match.start(1))}"
        if kind == '"':
            target = resolve(path, name)
            if target is None:
                yield f'{where}: "{name}" is no header of the tree'
                continue
            other = os.path.dirname(target)
            if other not in allowed[folder] | {folder}:
                yield f"{where}: {folder} may not include {target} (core/LAYERS)"
        elif name in free:
            if folder in PURE and name not in PURE[folder]:
                yield f"{where}: {folder} does no I/O and may not include <{name}>"
        elif name not in outside[folder]:
            yield f"{where}: <{name}> is not named for {folder} in core/LAYERS"


def main():
    allowed, outside = layers()
    problems = []
    for folder, edges in allowed.items():
        for other in sorted(edges - set(allowed)):
            problems.append(f"core/LAYERS: {folder} names {other}, which has no line")
    found = cycle(allowed)
    if found:
        problems.append("core/LAYERS: a cycle: " + " → ".join(found))
    paths = tree.files("core", "lua", "spec", ext=(".c", ".h"))
    folders = {os.path.dirname(path) for path in paths}
    problems += [f"core/LAYERS: {folder} has C files and no line" for folder in sorted(folders - set(allowed))]
    problems += [f"core/LAYERS: {folder} has a line and no C files" for folder in sorted(set(allowed) - folders)]
    free = system_headers()
    for path in paths:
        if os.path.dirname(path) in allowed:
            problems += check_file(path, allowed, outside, free)
    tree.finish(problems, f"{len(paths)} files in {len(folders)} folders")


if __name__ == "__main__":
    main()
