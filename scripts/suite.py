#!/usr/bin/env python3
"""The whole test suite, one stage after the other; scripts/test installs what it needs and starts it. Everything that runs
has a deadline, and what crashes, hangs, is missing or reports nothing counts as failed. The last line is the count."""
import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import runner
import tree

CHECK_SECONDS = 300
BUILD_SECONDS = 900
SPEC_SECONDS = 300
FUZZ_SECONDS, FUZZ_SECONDS_FULL = 5, 60
SUITE_SECONDS, SUITE_SECONDS_FULL = 30 * 60, 80 * 60
PLAIN_UID = 10001  # of nobody in particular; the sandboxes of root run as another
SHOWN_LINES = 60
COUNT = re.compile(r"^(\d+) passed, (\d+) failed$", re.M)
SANITIZER_ENV = {
    "ASAN_OPTIONS": "detect_leaks=1:exitcode=99",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "exitcode=99",
}


def path(*parts):
    return os.path.join(tree.TOP, *parts)


class Suite:
    """The count, and how one thing is run and told about."""

    def __init__(self, full, only):
        self.full, self.only = full, re.compile(only) if only else None
        self.passed = self.failed = self.skipped = 0
        self.deadline = time.monotonic() + (SUITE_SECONDS_FULL if full else SUITE_SECONDS)
        self.ci = os.environ.get("CI") == "true"

    def wants(self, name):
        return self.only is None or bool(self.only.search(name))

    def run(self, command, timeout, **options):
        left = self.deadline - time.monotonic()
        if left <= 0:
            return runner.Outcome(124, "", 0.0, ["was not run: the suite's time is over"])
        return runner.run(command, min(timeout, left), **options)

    def skip(self, name, reason):
        self.skipped += 1
        print(f"skip   {name}: {reason}", flush=True)

    def tell(self, name, outcome, passed, failed, problems=()):
        """Counts; a run that ended wrongly is a failure of its own unless one of its cases is already."""
        problems = list(outcome.trouble) + list(problems)
        if problems and not failed:
            failed = 1
        self.passed += passed
        self.failed += failed
        verdict = "FAILED" if failed else "ok"
        print(f"{verdict:6} {name}  ({passed} passed{f', {failed} failed' if failed else ''}, {outcome.seconds:.1f} s)",
              flush=True)
        if failed:
            lines = outcome.output.splitlines()
            shown = lines[-SHOWN_LINES:]
            if len(lines) > len(shown):
                shown.insert(0, f"… {len(lines) - len(shown)} lines before")
            for line in shown + problems:
                print("       " + line, flush=True)

    def whole(self, name, outcome):
        """For a run that is one test: status 0 is its only success."""
        problems = [] if outcome.status == 0 or outcome.trouble else [f"exit status {outcome.status}"]
        good = not problems and not outcome.trouble
        self.tell(name, outcome, int(good), int(not good), problems)
        return good

    def counted(self, name, outcome):
        """For a program that ends with "N passed, N failed"; without that line it has not ended well."""
        found = COUNT.findall(outcome.output)
        if not found:
            self.tell(name, outcome, 0, 1, ["did not report its count"])
            return
        passed, failed = map(int, found[-1])
        problems = []
        if (outcome.status != 0) != (failed > 0):
            problems.append(f"exit status {outcome.status} with {failed} failed")
        if passed + failed == 0:
            problems.append("ran no case")
        self.tell(name, outcome, passed, failed, problems)


def environment(**more):
    return {**os.environ, **SANITIZER_ENV, **more}


def check(suite):
    if suite.wants("check"):
        env = environment(**({"NSBX_TIDY_NODES": "225000"} if suite.full else {}))
        suite.counted("check", suite.run([path("scripts/check")], CHECK_SECONDS, env=env))


def build(suite, preset):
    script = 'set -e; top=$1; . "$1/scripts/build"; build_quietly "$2"'
    return suite.whole(f"build {preset}", suite.run(["bash", "-c", script, "build", tree.TOP, preset], BUILD_SECONDS))


def native_tests(preset):
    """[(name, command, timeout, working directory, environment)] as ctest knows them."""
    listing = runner.run(["ctest", "--test-dir", path("build", preset), "--show-only=json-v1"], 60)
    for test in json.loads(listing.output)["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", ())}
        env = dict(item.split("=", 1) for item in properties.get("ENVIRONMENT", ()))
        yield (test["name"], test.get("command", ["(not built)"]), properties.get("TIMEOUT", 120),
               properties.get("WORKING_DIRECTORY"), env)


def native(suite, preset):
    tests = list(native_tests(preset))
    for file in tree.files("spec/native", ext="_test.c"):
        if os.path.basename(file)[:-2] not in {test[0] for test in tests}:
            suite.tell(f"native {file}", runner.Outcome(1, "", 0.0, ["has no line in CMakeLists.txt"]), 0, 1)
    for name, command, timeout, cwd, env in tests:
        label = f"native {name}" + ("" if preset == "dev" else f" ({preset})")
        if suite.wants(label):
            suite.counted(label, suite.run(command, timeout, cwd=cwd, env=environment(**env)))


def scripts(suite):
    """The tests of the scripts themselves."""
    for file in tree.files("spec/scripts", ext="_test.py"):
        name = f"scripts {os.path.basename(file)[:-3]}"
        if suite.wants(name):
            suite.counted(name, suite.run([sys.executable, file], 120))


def agents(suite):
    """The agent by its wire, the sanitized one and the static one that is shipped."""
    for preset in ("dev", "release"):
        name = f"agent ({preset})"
        if suite.wants(name):
            command = [sys.executable, path("spec/support/test_agent.py"), path("build", preset, "bin/nsbx-agent")]
            suite.counted(name, suite.run(command, SPEC_SECONDS, env=environment()))


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
    if os.path.exists(report):
        with open(report, encoding="utf-8", errors="replace") as f:
            lines = f.read().splitlines()
    else:
        lines = []
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


def spec(suite, place, file, tag=None):
    name = f"spec {file}" + (f" ({place.label})" if place.label else "")
    if not suite.wants(name):
        return
    with tempfile.TemporaryDirectory(prefix="nsbx-report-") as folder:
        os.chmod(folder, 0o777)
        report = os.path.join(folder, "report")
        outcome = suite.run(place.command(file, tag, report), SPEC_SECONDS, cwd=place.top)
        passed, failed, skips, problems = read_report(report)
    for test, reason in skips:
        suite.skip(f"{name}: {test}", reason)
    if outcome.status != 0 and not failed and not outcome.trouble:
        problems.append(f"exit status {outcome.status} though no case failed")
    if passed + failed + len(skips) == 0:
        problems.append("ran no case")
    suite.tell(name, outcome, passed, failed, problems)


def tagged(files, tag):
    return [file for file in files if f"#{tag}" in tree.read(file)]


def copy_for(uid):
    """What the specs need of the tree, in a directory that is `uid`'s: the clone may be where only root can look."""
    top = tempfile.mkdtemp(prefix="nsbx-plain-")
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
    return top


def specs_as_the_other(suite, files):
    """As a plain user when we are root, and the other way round."""
    if os.geteuid() == 0:
        top = copy_for(PLAIN_UID)
        prefix = ["setpriv", f"--reuid={PLAIN_UID}", f"--regid={PLAIN_UID}", "--clear-groups"]
        home = os.path.join(top, "home")
        try:
            place = Place("as a plain user", top, prefix, env={"HOME": home, "USER": "plain", "LOGNAME": "plain"})
            for file in files:
                spec(suite, place, file, "user")
        finally:
            shutil.rmtree(top, ignore_errors=True)
        return
    may = runner.run(["sudo", "-n", "true"], 10).status == 0 if shutil.which("sudo") else False
    for file in files:
        if may:
            spec(suite, Place("as root", prefix=["sudo", "-n"]), file, "user")
        elif suite.wants(f"spec {file} (as root)"):
            suite.skip(f"spec {file} (as root)", "not root, and sudo wants a password")


def specs(suite):
    files = tree.files("spec", ext="_spec.lua")
    static = Place("static agent", agent=path("build/release/bin/nsbx-agent"))
    for file in files:
        spec(suite, Place(), file)
    for tag in ("agent", "user"):
        if suite.wants(f"spec #{tag}") and not tagged(files, tag):
            suite.tell(f"spec #{tag}", runner.Outcome(1, "", 0.0, [f"no spec is tagged #{tag}"]), 0, 1)
    for file in tagged(files, "agent"):
        spec(suite, static, file, "agent")
    specs_as_the_other(suite, tagged(files, "user"))


def fuzz_one(suite, target):
    name = re.sub(r"_fuzz\.c$", "", os.path.basename(target))
    corpus = path("spec/fuzz/corpus", name)
    artifacts = path("build/fuzz/artifacts/")
    os.makedirs(artifacts, exist_ok=True)
    seconds = FUZZ_SECONDS_FULL if suite.full else FUZZ_SECONDS
    if not os.path.isdir(corpus) or not os.listdir(corpus):
        return name, runner.Outcome(1, "", 0.0, [f"spec/fuzz/corpus/{name} has no file"])
    with tempfile.TemporaryDirectory(prefix="nsbx-fuzz-") as found:
        command = [path(f"build/fuzz/fuzz/{name}_fuzz"), f"-max_total_time={seconds}", "-timeout=10",
                   "-rss_limit_mb=2048", f"-artifact_prefix={artifacts}{name}-", "-print_final_stats=1", found, corpus]
        env = environment(ASAN_SYMBOLIZER_PATH="/usr/bin/llvm-symbolizer-14")
        return name, suite.run(command, seconds * 2 + 60, env=env, leftovers=False)


def fuzz(suite):
    targets = [t for t in tree.files("spec/fuzz", ext="_fuzz.c") if suite.wants(f"fuzz {os.path.basename(t)}")]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, outcome in pool.map(lambda target: fuzz_one(suite, target), targets):
            suite.whole(f"fuzz {name}", outcome)


def builds(suite):
    """The presets that the chosen tests need; the fuzz preset is also the proof that clang has nothing to say."""
    presets = ["dev", "release", "fuzz"] + (["tsan"] if suite.full else [])
    return all([build(suite, preset) for preset in presets])


def main():
    parser = argparse.ArgumentParser(prog="scripts/test", description="Checks and tests everything.")
    parser.add_argument("--full", action="store_true", help="also what takes long: ThreadSanitizer, long fuzzing")
    parser.add_argument("--only", metavar="PATTERN", help="only tests whose line, such as 'native base_test' or "
                        "'spec spec/local/exec_spec.lua (static agent)', matches this regular expression")
    arguments = parser.parse_args()
    runner.become_subreaper()
    os.chdir(tree.TOP)
    suite = Suite(arguments.full, arguments.only)
    try:
        check(suite)
        if builds(suite):
            scripts(suite)
            native(suite, "dev")
            agents(suite)
            specs(suite)
            fuzz(suite)
            if suite.full:
                native(suite, "tsan")
        else:
            print("nothing was run: the build failed", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        suite.failed += 1
    print(f"{suite.passed} passed, {suite.failed} failed" + (f", {suite.skipped} skipped" if suite.skipped else ""))
    sys.exit(1 if suite.failed or suite.passed == 0 or (suite.ci and suite.skipped) else 0)


if __name__ == "__main__":
    main()
