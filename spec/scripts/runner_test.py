"""The test runner's own test: what must count as failed does. A runner that calls a crash a success hides everything."""
import contextlib
import io
import os
import re
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import runner  # noqa: E402
import suite  # noqa: E402
import tally  # noqa: E402
import unit  # noqa: E402

runner.become_subreaper()


def shell(text, timeout=10):
    return runner.run(["sh", "-c", text], timeout)


class Run(unittest.TestCase):
    def test_success_has_no_trouble(self):
        outcome = shell("echo hello; echo there >&2")
        self.assertEqual((outcome.status, outcome.output, outcome.trouble), (0, "hello\nthere\n", []))

    def test_a_status_is_told(self):
        self.assertEqual(shell("exit 7").status, 7)

    def test_death_by_a_signal_is_trouble(self):
        self.assertEqual(shell("kill -SEGV $$").trouble, ["died of SIGSEGV"])

    def test_a_hang_is_ended_with_its_group(self):
        begin = time.monotonic()
        outcome = shell("sleep 100 & sleep 100", timeout=0.3)
        self.assertEqual(outcome.trouble, ["did not end within 0 s and was killed"])
        self.assertLess(time.monotonic() - begin, 5)

    def test_an_orphan_is_named_and_killed(self):
        mark = f"98.{os.getpid()}"  # another suite on this machine has another
        outcome = shell(f"setsid sleep {mark} & exit 0")
        self.assertEqual(len(outcome.trouble), 1)
        self.assertRegex(outcome.trouble[0], rf"^left a process behind: \d+ sleep {re.escape(mark)}$")
        self.assertFalse(any(mark in runner.name_of(pid) for pid in map(int, filter(str.isdigit, os.listdir("/proc")))))

    def test_an_orphan_that_ends_soon_is_none(self):
        self.assertEqual(shell("setsid sleep 0.2 & exit 0").trouble, [])

    def test_each_run_has_its_own_temporary_directory(self):
        folder = shell('mkdir -p "$TMPDIR/a/b"; touch "$TMPDIR/a/b/c"; chmod 0 "$TMPDIR/a"; echo "$TMPDIR"').output.strip()
        self.assertRegex(folder, "^/.*/nsbx-")
        self.assertFalse(os.path.exists(folder))

    def test_a_sanitizer_report_is_trouble_whatever_the_status(self):
        self.assertEqual(shell("echo '==1==ERROR: AddressSanitizer: x' >&2").trouble, ["a sanitizer spoke"])

    def test_a_missing_program_is_trouble(self):
        self.assertRegex(runner.run(["/nonexistent/x"], 1).trouble[0], "^cannot be started: ")


class Count(unittest.TestCase):
    def counted(self, text):
        counts = tally.Tally(60)
        with contextlib.redirect_stdout(io.StringIO()):
            counts.counted("x", shell(text))
        return counts.passed, counts.failed

    def test_the_counts_are_taken_over(self):
        self.assertEqual(self.counted("echo '3 passed, 0 failed'"), (3, 0))
        self.assertEqual(self.counted("echo '3 passed, 2 failed'; exit 1"), (3, 2))

    def test_a_skip_is_told_and_counted(self):
        counts = tally.Tally(60)
        with contextlib.redirect_stdout(io.StringIO()) as told:
            counts.counted("x", shell("echo 'SKIP a disk: no tmpfs'; echo '2 passed, 0 failed'"))
        self.assertEqual(counts.summary(), "2 passed, 0 failed, 1 skipped")
        self.assertIn("skip   x: a disk: no tmpfs\n", told.getvalue())

    def test_no_count_fails(self):
        self.assertEqual(self.counted("echo fine"), (0, 1))

    def test_no_case_fails(self):
        self.assertEqual(self.counted("echo '0 passed, 0 failed'"), (0, 1))

    def test_a_status_against_the_count_fails(self):
        self.assertEqual(self.counted("echo '3 passed, 0 failed'; exit 1"), (3, 1))

    def test_a_crash_behind_the_count_fails(self):
        self.assertEqual(self.counted("echo '3 passed, 0 failed'; kill -ABRT $$"), (3, 1))

    def test_what_is_not_run_for_want_of_time_fails(self):
        counts = tally.Tally(60)
        counts.deadline = time.monotonic() - 1
        with contextlib.redirect_stdout(io.StringIO()):
            counts.now("x", counts.whole, ["true"], 1)
        self.assertEqual((counts.passed, counts.failed), (0, 1))


class Later(unittest.TestCase):
    def test_runs_beside_each_other_are_told_apart(self):
        counts = tally.Tally(60)
        with contextlib.redirect_stdout(io.StringIO()) as told:
            counts.later("leaves", counts.whole, ["sh", "-c", "setsid sleep 98.75 & exit 0"], 10)
            counts.later("clean", counts.whole, ["sleep", "1"], 10)
            counts.later("dies", counts.whole, ["sh", "-c", "kill -9 $$"], 10)
            counts.finish()
        counts.pool.shutdown()
        self.assertEqual(counts.summary(), "1 passed, 2 failed")
        self.assertRegex(told.getvalue(), r"FAILED leaves.*\n +left a process behind: \d+ sleep 98\.75\n")
        self.assertRegex(told.getvalue(), "ok     clean")

    def test_only_what_is_wanted_runs(self):
        counts = tally.Tally(60, "^b")
        counts.later("a", counts.whole, ["false"], 10)
        counts.finish()
        self.assertEqual((counts.summary(), counts.matched), ("0 passed, 0 failed", False))


class Report(unittest.TestCase):
    def read(self, text):
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as f:
            f.write(text)
            f.flush()
            return suite.read_report(f.name)

    def test_a_whole_run(self):
        self.assertEqual(self.read("start\ta\npass\ta\nstart\tb\nskip\tb\twhy\\tnot\nend\n"),
                         (1, 0, [("b", "why\tnot")], []))

    def test_a_failure_keeps_its_text(self):
        passed, failed, _, problems = self.read("start\ta\nfail\ta\tx.lua:3\tone\\ntwo\ttrace\nend\n")
        self.assertEqual((passed, failed), (0, 1))
        self.assertIn("a (x.lua:3)", problems[0])
        self.assertIn("two", problems[0])

    def test_a_run_that_died_names_its_test(self):
        self.assertEqual(self.read("start\ta\npass\ta\nstart\tb\n"), (1, 1, [], ["ended before its end, in: b"]))

    def test_no_report_at_all(self):
        self.assertEqual(suite.read_report("/nonexistent")[1], 1)


unit.main()
