#!/usr/bin/env python3
"""The whole test suite; scripts/test installs what it needs and starts it. Everything that runs has a deadline, and what
crashes, hangs, is missing or reports nothing counts as failed. The last line is the count."""
import argparse
import json
import os
import re
import shutil
import sys
import tempfile

import runner
import tree
from tally import Tally

CHECK_SECONDS = 300
BUILD_SECONDS = 900
SPEC_SECONDS = 300
TSAN_PATIENCE = 4
FUZZ_SECONDS, FUZZ_SECONDS_FULL = 5, 60
SUITE_SECONDS, SUITE_SECONDS_FULL = 30 * 60, 80 * 60
PLAIN_UID = 10001  # of nobody in particular; the sandboxes of root run as another
SANITIZER_ENV = {
    "ASAN_OPTIONS": "detect_leaks=1:exitcode=99",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "exitcode=99",
}


def path(*parts):
    return os.path.join(tree.TOP, *parts)


def environment(**more):
    return {**os.environ, **SANITIZER_ENV, **more}


def check(tally, full):
    if tally.wants("check"):
        # With more time, clang's analyzer follows each function further.
        env = environment(**({"NSBX_TIDY_NODES": "225000"} if full else {}))
        tally.now("check", tally.counted, [path("scripts/check")], CHECK_SECONDS * (4 if full else 1), env=env)


def build(tally, preset):
    script = 'set -e; top=$1; . "$1/scripts/build"; build_quietly "$2"'
    return tally.now(f"build {preset}", tally.whole, ["bash", "-c", script, "build", tree.TOP, preset], BUILD_SECONDS)


def scripts(tally):
    """The tests of the scripts themselves."""
    for file in tree.files("spec/scripts", ext="_test.py"):
        tally.later(f"scripts {os.path.basename(file)[:-3]}", tally.counted, [sys.executable, file], 120)


def native_tests(preset):
    """(name, command, timeout, working directory, environment) as ctest knows them."""
    listing = runner.run(["ctest", "--test-dir", path("build", preset), "--show-only=json-v1"], 60, leftovers=False)
    for test in json.loads(listing.output)["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", ())}
        env = dict(item.split("=", 1) for item in properties.get("ENVIRONMENT", ()))
        yield (test["name"], test.get("command", ["(not built)"]), properties.get("TIMEOUT", 120),
               properties.get("WORKING_DIRECTORY"), env)


def native(tally):
    tests = list(native_tests("dev"))
    for file in tree.files("spec/native", ext="_test.c"):
        name = os.path.basename(file)[:-2]
        if tally.wants(f"native {name}") and name not in {test[0] for test in tests}:
            tally.fail(f"native {name}", "has no line in spec/native/CMakeLists.txt")
    for name, command, timeout, cwd, env in tests:
        tally.later(f"native {name}", tally.counted, command, timeout, cwd=cwd, env=environment(**env))


def native_with_threads_watched(tally):
    for name, command, timeout, cwd, env in native_tests("tsan"):
        tally.later(f"native {name} (tsan)", tally.counted, command, timeout * TSAN_PATIENCE, cwd=cwd,
                    env=environment(**env))


def agents(tally, full):
    """The agent by its wire: the sanitized one, the static one that is shipped, and with its threads watched."""
    for preset in ["dev", "release"] + (["tsan"] if full else []):
        command = [sys.executable, path("spec/support/test_agent.py"), path("build", preset, "bin/nsbx-agent")]
        seconds = SPEC_SECONDS * (TSAN_PATIENCE if preset == "tsan" else 1)
        tally.later(f"agent ({preset})", tally.counted, command, seconds, env=environment())


class Place:
    """Where specs run: as whom, in which copy of the tree, with which agent."""

    def __init__(self, label="", top=tree.TOP, prefix=(), agent=None, env=None):
        self.label, self.top, self.prefix = label, top, prefix
        self.agent = agent or os.path.join(top, "build/dev/bin/nsbx-agent")
        self.env = env or {}

    def command(self, file, tag, report):
        """With its own variables by env(1), since sudo hands on none."""
        env = {**SANITIZER_ENV, **self.env, "NSBX_REPORT": report, "NSBX_AGENT": self.agent,
               "CI": os.environ.get("CI", "")}
        command = [*self.prefix, "env", *(f"{name}={value}" for name, value in env.items()),
                   os.path.join(self.top, "build/dev/bin/nsbx-lua"), "/usr/bin/busted",
                   "-o", os.path.join(self.top, "scripts/busted_report.lua")]
        if os.path.exists(os.path.join(self.top, "spec/helper.lua")):
            command += ["--helper", "spec/helper.lua"]
        return command + (["-t", tag] if tag else []) + [file]


def read_report(report):
    """(passed, failed, [(test, reason)], problems) of scripts/busted_report.lua's lines."""
    passed = failed = 0
    skips, problems, running, ended = [], [], "before the first test", False
    lines = []
    if os.path.exists(report):
        with open(report, encoding="utf-8", errors="replace") as f:
            lines = f.read().splitlines()
    for line in lines:
        kind, *fields = [re.sub(r"\\(.)", lambda m: {"t": "\t", "n": "\n", "r": "\r"}.get(m[1], m[1]), field)
                         for field in line.split("\t")]
        if kind == "start":
            running = fields[0]
        elif kind == "pass":
            passed += 1
        elif kind == "skip":
            skips.append((fields[0], fields[1]))
        elif kind == "fail":
            failed += 1
            problems.append("\n       ".join(f"{fields[0]} ({fields[1]})\n{fields[2]}\n{fields[3]}".splitlines()))
        elif kind == "end":
            ended = True
    if not ended:
        failed += 1
        problems.append(f"ended before its end, in: {running}")
    return passed, failed, skips, problems


def spec(tally, place, file, tag=None):
    name = f"spec {file}" + (f" ({place.label})" if place.label else "")
    folder = tempfile.TemporaryDirectory(prefix="nsbx-report-")
    os.chmod(folder.name, 0o777)  # whoever writes it
    report = os.path.join(folder.name, "report")

    def told(name, outcome):
        passed, failed, skips, problems = read_report(report)
        folder.cleanup()
        for test, reason in skips:
            tally.skip(f"{name}: {test}", reason)
        if outcome.status != 0 and not failed and not outcome.trouble:
            problems.append(f"exit status {outcome.status} though no case failed")
        if passed + failed + len(skips) == 0:
            problems.append("ran no case")
        tally.tell(name, outcome, passed, failed, problems)

    tally.later(name, told, place.command(file, tag, report), SPEC_SECONDS, cwd=place.top)


def tagged(files, tag):
    return [file for file in files if f"#{tag}" in tree.read(file)]


def copy_for(uid, top):
    """What the specs need of the tree, as `uid`'s: the clone may be where only root can look."""
    for folder in ("build/dev/bin", "spec", "examples", "lua"):
        if os.path.isdir(path(folder)):
            shutil.copytree(path(folder), os.path.join(top, folder))
    os.makedirs(os.path.join(top, "scripts"))
    shutil.copy(path("scripts/busted_report.lua"), os.path.join(top, "scripts"))
    os.makedirs(os.path.join(top, "home"))
    for where, dirs, names in os.walk(top):
        for name in [*dirs, *names, "."]:
            os.chown(os.path.join(where, name), uid, uid, follow_symlinks=False)
    os.chmod(top, 0o755)


def specs_as_the_other(tally, files, plain_top):
    """As a plain user when we are root, and the other way round."""
    if os.geteuid() == 0:
        copy_for(PLAIN_UID, plain_top)
        prefix = ["setpriv", f"--reuid={PLAIN_UID}", f"--regid={PLAIN_UID}", "--clear-groups"]
        env = {"HOME": os.path.join(plain_top, "home"), "USER": "plain", "LOGNAME": "plain"}
        for file in files:
            spec(tally, Place("as a plain user", plain_top, prefix, env=env), file, "user")
        return
    may = shutil.which("sudo") and runner.run(["sudo", "-n", "true"], 10, leftovers=False).status == 0
    for file in files:
        if may:
            spec(tally, Place("as root", prefix=["sudo", "-n"]), file, "user")
        elif tally.wants(f"spec {file} (as root)"):
            tally.skip(f"spec {file} (as root)", "not root, and sudo wants a password")


def specs(tally, plain_top):
    files = tree.files("spec", ext="_spec.lua")
    for file in files:
        spec(tally, Place(), file)
    for tag in ("agent", "user"):
        if tally.wants(f"spec #{tag}") and not tagged(files, tag):
            tally.fail(f"spec #{tag}", f"no spec is tagged #{tag}")
    for file in tagged(files, "agent"):
        spec(tally, Place("static agent", agent=path("build/release/bin/nsbx-agent")), file, "agent")
    specs_as_the_other(tally, tagged(files, "user"), plain_top)


def fuzz(tally, seconds, found):
    """Each target over its corpus and a little further; what is new goes to the directory `found`."""
    artifacts = path("build/fuzz/artifacts/")
    os.makedirs(artifacts, exist_ok=True)
    for target in tree.files("spec/fuzz", ext="_fuzz.c"):
        name = os.path.basename(target)[:-len("_fuzz.c")]
        corpus, new = path("spec/fuzz/corpus", name), os.path.join(found, name)
        os.makedirs(new)
        if tally.wants(f"fuzz {name}") and not (os.path.isdir(corpus) and os.listdir(corpus)):
            tally.fail(f"fuzz {name}", f"spec/fuzz/corpus/{name} has no file")
            continue
        command = [path(f"build/fuzz/fuzz/{name}_fuzz"), f"-max_total_time={seconds}", "-timeout=10",
                   "-rss_limit_mb=2048", f"-artifact_prefix={artifacts}{name}-", "-print_final_stats=1", new, corpus]
        env = environment(ASAN_SYMBOLIZER_PATH="/usr/bin/llvm-symbolizer-14")
        tally.later(f"fuzz {name}", tally.whole, command, seconds * 2 + 60, env=env)


def builds(tally, full):
    """All of the tree in each; the fuzz preset is also the proof that clang has nothing to say."""
    return all([build(tally, preset) for preset in ["dev", "release", "fuzz"] + (["tsan"] if full else [])])


def everything(tally, full):
    check(tally, full)
    if not builds(tally, full):
        print("nothing was run: the build failed", flush=True)
        return
    with tempfile.TemporaryDirectory(prefix="nsbx-fuzz-") as found, \
            tempfile.TemporaryDirectory(prefix="nsbx-plain-") as plain_top:
        agents(tally, full)
        scripts(tally)
        native(tally)
        specs(tally, plain_top)
        if full:
            native_with_threads_watched(tally)
        fuzz(tally, FUZZ_SECONDS_FULL if full else FUZZ_SECONDS, found)
        tally.finish()


def main():
    parser = argparse.ArgumentParser(prog="scripts/test", description="Checks and tests everything.")
    parser.add_argument("--full", action="store_true", help="also what takes long: ThreadSanitizer, long fuzzing")
    parser.add_argument("--only", metavar="PATTERN", help="only tests whose line, such as 'native base_test' or "
                        "'spec spec/lua/exec_spec.lua (static agent)', matches this regular expression")
    arguments = parser.parse_args()
    runner.become_subreaper()
    os.chdir(tree.TOP)
    tally = Tally(SUITE_SECONDS_FULL if arguments.full else SUITE_SECONDS, arguments.only)
    try:
        everything(tally, arguments.full)
    except KeyboardInterrupt:
        tally.fail("scripts/test", "was interrupted")
    if not tally.matched:
        tally.fail("scripts/test --only", "matches no test's line")
    print(tally.summary())
    skipped_in_ci = tally.skipped and os.environ.get("CI") == "true"
    sys.exit(1 if tally.failed or tally.passed == 0 or skipped_in_ci else 0)


if __name__ == "__main__":
    main()
