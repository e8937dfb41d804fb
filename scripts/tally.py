"""The count of a test suite: runs what it is given side by side, tells how each went, and adds up."""
import concurrent.futures
import os
import re
import time

import runner

SHOWN_LINES = 200
COUNT = re.compile(r"^(\d+) passed, (\d+) failed$", re.M)
SKIP = re.compile(r"^SKIP (.+)$", re.M)


class Tally:
    def __init__(self, seconds, only=None):
        self.only = re.compile(only) if only else None
        self.passed = self.failed = self.skipped = 0
        self.deadline = time.monotonic() + seconds
        self.pool, self.waiting = None, {}
        self.matched = False

    def wants(self, name):
        wanted = self.only is None or bool(self.only.search(name))
        self.matched = self.matched or wanted
        return wanted

    def now(self, name, told, command, timeout, **options):
        """Runs the command and tells; returns whether all was well."""
        before = self.failed
        told(name, runner.run(command, timeout, deadline=self.deadline, **options))
        return self.failed == before

    def later(self, name, told, command, timeout, **options):
        """As now, beside others, if the name is wanted. One more at a time than there are processors, because most of
        what is tested is waiting."""
        if not self.wants(name):
            return
        if not self.pool:
            self.pool = concurrent.futures.ProcessPoolExecutor((os.cpu_count() or 1) + 1, initializer=runner.contain)
        future = self.pool.submit(runner.run, command, timeout, deadline=self.deadline, **options)
        self.waiting[future] = lambda outcome: told(name, outcome)

    def finish(self):
        """Waits for all that was put off."""
        for future in concurrent.futures.as_completed(list(self.waiting)):
            self.waiting.pop(future)(future.result())

    def skip(self, name, reason):
        self.skipped += 1
        print(f"skip   {name}: {reason}", flush=True)

    def fail(self, name, problem):
        self.tell(name, runner.Outcome(1, "", 0.0, [problem]), 0, 1)

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

    def counted(self, name, outcome):
        """For a program that ends with "N passed, N failed"; without that line it has not ended well. Each of its lines
        "SKIP what: why" is a skip."""
        for skipped in SKIP.findall(outcome.output):
            self.skip(name, skipped)
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

    def summary(self):
        return f"{self.passed} passed, {self.failed} failed" + (f", {self.skipped} skipped" if self.skipped else "")
