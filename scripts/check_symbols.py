#!/usr/bin/env python3
"""What the release's objects define and use: names, what the agent must not carry, and what may run between fork and
exec. Needs a built build/release."""
import glob
import os
import re
import subprocess

import tree

RELEASE = os.path.join(tree.TOP, "build", "release")
EXPORTED = {"luaopen_nsbx"}
# These want shared objects at run time, which a static program does not have.
NOT_STATIC = re.compile(r"(getpw|getgr|getaddrinfo|gethostby|getserv|dlopen|iconv_open|initgroups)")
FORBIDDEN_IN_AGENT = re.compile(r"(lua_|luaL_|SSL_|curl_)")
# Everything that runs in a process made by fork before it execs, or that never execs.
AFTER_FORK = ["spawn_child", "keeper_main", "proc_tree"]


def nm(path, *options):
    """(object, symbol) of an archive, an object or a program; a missing one is a problem that main reports."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"{os.path.relpath(path, tree.TOP)}: is missing")
    out = subprocess.run(["nm", "-A", "-P", *options, path], check=True, capture_output=True, text=True).stdout
    for line in out.splitlines():
        where, symbol = re.match(r"(.*?):\s+(\S+)", line).groups()
        yield os.path.relpath(where, RELEASE), symbol.split("@")[0]


def archive(name):
    return os.path.join(RELEASE, "lib", f"libnsbx_{name}.a")


def names():
    archives = glob.glob(archive("*"))
    if not archives:
        raise FileNotFoundError("build/release/lib: no archives; build the release first")
    for path in archives:
        for where, symbol in nm(path, "-g", "--defined-only"):
            if not symbol.startswith("nsbx_") and symbol not in EXPORTED:
                yield f"{where}: the global {symbol} does not start with nsbx_"


def agent():
    program = os.path.join(RELEASE, "bin", "nsbx-agent")
    carried = {symbol for _, symbol in nm(program)}
    for symbol in sorted(filter(FORBIDDEN_IN_AGENT.match, carried)):
        yield f"nsbx-agent: carries {symbol}"
    # An archive's object is in the program when one of its globals is.
    for path in glob.glob(archive("*")):
        linked = {where for where, symbol in nm(path, "-g", "--defined-only") if symbol in carried}
        for where, symbol in nm(path, "-u"):
            if where in linked and NOT_STATIC.match(symbol):
                yield f"{where}: {symbol} does not work in a static program"
    kind = subprocess.run(["readelf", "-d", "-l", program], check=True, capture_output=True, text=True).stdout
    if "INTERP" in kind or "(NEEDED)" in kind:
        yield "nsbx-agent: is not static"


def host():
    program = os.path.join(RELEASE, "bin", "nsbx-lua")
    if not os.path.exists(program):
        raise FileNotFoundError("build/release/bin/nsbx-lua: is missing")
    libraries = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    for name in re.findall(r"lib(?:curl|ssl|crypto|yaml|wslay)\S*", libraries):
        yield f"nsbx-lua: is linked with {name}"
    if "liblua5.4" not in libraries:
        yield "nsbx-lua: is not linked with the system's liblua5.4"


def signal_safe():
    """The objects of AFTER_FORK use each other and what scripts/signal_safe.txt lists, nothing else."""
    safe = {line.split()[0] for line in tree.read("scripts/signal_safe.txt").splitlines()
            if line.strip() and not line.startswith("#")}
    objects = [os.path.join(RELEASE, f"core/loop/CMakeFiles/nsbx_loop.dir/{name}.c.o") for name in AFTER_FORK]
    own = {symbol for path in objects for _, symbol in nm(path, "-g", "--defined-only")}
    for path in objects:
        for where, symbol in nm(path, "-u"):
            if symbol not in own and symbol not in safe:
                yield f"{where}: {symbol} is not in scripts/signal_safe.txt"


def main():
    problems = []
    for rule in (names, agent, host, signal_safe):
        try:
            problems += rule()
        except FileNotFoundError as missing:
            problems.append(str(missing))
    tree.finish(problems, f"{len(glob.glob(archive('*')))} archives, nsbx-agent, nsbx-lua")


if __name__ == "__main__":
    main()
