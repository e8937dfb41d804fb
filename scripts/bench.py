#!/usr/bin/env python3
"""The figures that matter, each beside its baseline from the same run, since only the ratio says something about nsbx
and not about the machine. scripts/bench builds what this needs and starts it."""
import argparse
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time

import tree

RELEASE = os.path.join(tree.TOP, "build", "release")
HOST = os.path.join(RELEASE, "bin", "nsbx-lua")
AGENT = os.path.join(RELEASE, "bin", "nsbx-agent")
GIB = 1 << 30
# Of bubblewrap's options with a descriptor, the ones that carry a file in; the others tie it to its caller.
DATA_OPTIONS = {"--ro-bind-data", "--bind-data", "--file"}
CALLER_OPTIONS = {"--block-fd", "--userns-block-fd", "--info-fd", "--json-status-fd", "--sync-fd", "--args"}

rows = []


def row(name, value, baseline="", ratio="", bound=""):
    rows.append((name, value, baseline, ratio, bound))
    print(f"  {name}: {value}", flush=True)


def output(command, **options):
    done = subprocess.run(command, cwd=tree.TOP, capture_output=True, text=True, **options)
    if done.returncode:
        raise SystemExit(f"bench: {' '.join(command)} failed ({done.returncode}):\n{done.stdout}{done.stderr}")
    return done.stdout


def spawn(count, command, *options):
    """(p50, p99) in microseconds"""
    return tuple(map(float, output([os.path.join(RELEASE, "bench", "spawn_bench"), "--count", str(count), *options,
                                    *command]).split()))


def recipe(name, *arguments):
    return output([HOST, os.path.join("spec", "bench", name + ".lua"), *map(str, arguments)]).splitlines()


def both(pair):
    return f"p50 {pair[0] / 1e3:.2f} ms, p99 {pair[1] / 1e3:.2f} ms"


def median_of(pairs):
    return tuple(statistics.median(pair[i] for pair in pairs) for i in (0, 1))


def startup(count):
    ours, lua = spawn(count, [HOST, "-e", ""]), spawn(count, ["lua5.4", "-e", ""])
    row("nsbx-lua -e ''", both(ours), f"lua5.4 -e '': {both(lua)}", f"{ours[0] / lua[0]:.2f} ×", "≤ 2 ×")


def execs(runs, count):
    lines = recipe("exec_bench", runs, count)
    ours = median_of([tuple(map(float, line.split())) for line in lines[:-1]])
    bare = median_of([spawn(count, ["/bin/true"]) for _ in range(runs)])
    row(f"exec /bin/true (median of {runs} × {count})", both(ours), f"posix_spawn, pipes, wait: {both(bare)}",
        f"{ours[0] / bare[0]:.2f} ×")
    row("agent's memory when idle", f"{int(lines[-1]) / 1024:.2f} MiB", bound="≤ 3 MiB")


def descendants(pid):
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as f:
            for child in map(int, f.read().split()):
                yield child
                yield from descendants(child)


def bubblewrap_of(pid):
    """The arguments of the bubblewrap below `pid` and the host uid that it runs as."""
    for child in descendants(pid):
        with open(f"/proc/{child}/cmdline", "rb") as f:
            words = f.read().decode(errors="surrogateescape").split("\0")[:-1]
        if words and os.path.basename(words[0]) == "bwrap":
            with open(f"/proc/{child}/status", encoding="utf-8") as f:
                return words, re.search(r"^Uid:\s*(\d+)", f.read(), re.M).group(1)
    raise SystemExit("bench: no bubblewrap below the recipe")


def bare_bubblewrap(words, folder):
    """The same options around `true`, and spawn_bench's options for the files that go in by descriptor."""
    command, opens, i = [words[0]], [], 1
    while i < len(words) and words[i].startswith("--") and words[i] != "--":
        option = words[i]
        end = i + 1
        while end < len(words) and not words[end].startswith("--"):
            end += 1
        values = words[i + 1:end]
        if option in DATA_OPTIONS:
            source = os.path.join(folder, "agent") if "agent" in values[1] else "/etc/hostname"
            opens += ["--open", f"{values[0]}={source}"]
        if option not in CALLER_OPTIONS:
            command += [option, *values]
        if option == "--bind" and values[1] == "/workspace":
            command[-2] = os.path.join(folder, "workspace")
        i = end
    return [*command, "--", "/bin/true"], opens


def creation(rounds, count):
    """In turns, since what else the machine does in the meantime should meet both."""
    ours, bare = [], []
    with tempfile.TemporaryDirectory(prefix="nsbx-bench-") as folder:
        os.chmod(folder, 0o755)
        shutil.copy(AGENT, os.path.join(folder, "agent"))
        os.mkdir(os.path.join(folder, "workspace"))
        os.chmod(os.path.join(folder, "workspace"), 0o777)
        for _ in range(rounds):
            held = subprocess.Popen([HOST, "spec/bench/create_bench.lua", str(count)], cwd=tree.TOP, text=True,
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            ours.append(tuple(map(float, held.stdout.readline().split())))
            words, uid = bubblewrap_of(held.pid)
            held.communicate("")
            command, opens = bare_bubblewrap(words, folder)
            drop = ["--uid", uid] if os.geteuid() == 0 else []
            bare.append(spawn(count, command, *drop, *opens))
    ours, bare = median_of(ours), median_of(bare)
    row(f"create to the first answer (median of {rounds} × {count})", both(ours),
        f"bwrap <same options> true: {both(bare)}", f"+ {(ours[0] - bare[0]) / 1e3:.2f} ms", "≤ + 3 ms")


def streams(size):
    pipe = statistics.median(float(output([os.path.join(RELEASE, "bench", "pipe_bench"), str(size)])) for _ in range(5))
    for what, name in (("stdout", "stdout of a command"), ("file", "read_file_stream")):
        runs = [tuple(map(float, recipe("stream_bench", what, size)[0].split())) for _ in range(3)]
        speed, (host, agent) = statistics.median(r[0] for r in runs), (max(r[i] for r in runs) for i in (1, 2))
        small = recipe("stream_bench", what, size // 16)[0].split()
        row(f"{name}, {size >> 20} MiB", f"{speed:.0f} MB/s", f"a bare pipe: {pipe:.0f} MB/s", f"{speed / pipe:.2f} ×")
        row("  peak memory, host and agent", f"{host / 1024:.1f} and {agent / 1024:.1f} MiB",
            f"with {size >> 24} MiB: {int(small[1]) / 1024:.1f} and {int(small[2]) / 1024:.1f} MiB", "", "flat")


def sizes():
    for program, bound in ((AGENT, "≤ 3 MiB"), (HOST, "")):
        with tempfile.NamedTemporaryFile() as stripped:
            subprocess.run(["strip", "-o", stripped.name, program], check=True)
            row(f"{os.path.basename(program)}, stripped", f"{os.path.getsize(stripped.name) / 1048576:.2f} MiB", "", "",
                bound)


def run_overhead(count):
    with tempfile.NamedTemporaryFile(suffix=".lua") as empty:
        ours = spawn(count, [os.path.join(tree.TOP, "scripts", "run"), empty.name])
        bare = spawn(count, [HOST, empty.name])
    row("scripts/run with nothing to do", both(ours), f"nsbx-lua: {both(bare)}",
        f"+ {(ours[0] - bare[0]) / 1e3:.0f} ms", "≤ + 200 ms")


def clean_clone():
    with tempfile.TemporaryDirectory(prefix="nsbx-clone-") as folder:
        output(["git", "clone", "--quiet", tree.TOP, folder])
        for name, command, bound in (("scripts/run", ["scripts/run", "examples/quickstart.lua"], ""),
                                     ("scripts/test", ["scripts/test"], "≤ 15 min"),
                                     ("scripts/test again", ["scripts/test"], "≤ 8 min")):
            begin = time.monotonic()
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            last = done.stdout.strip().splitlines()[-1:] or [""]
            row(f"{name} in a clean clone", f"{time.monotonic() - begin:.0f} s", f"exit {done.returncode}: {last[0]}", "",
                bound)


def table():
    head = ("what", "figure", "baseline of the same run", "ratio", "bound")
    widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
    print()
    for r in [head, tuple("-" * w for w in widths), *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(r, widths)).rstrip())


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Prints the figures beside their baselines.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the repetitions, for a first look")
    parser.add_argument("--clone", action="store_true", help="also the wall times in a clean clone (half an hour)")
    arguments = parser.parse_args()
    less = 10 if arguments.quick else 1
    sizes()
    startup(1000 // less)
    execs(5, 2000 // less)
    creation(5, 100 // less)
    streams(GIB // less)
    run_overhead(50 // less)
    if arguments.clone:
        clean_clone()
    table()


if __name__ == "__main__":
    main()
