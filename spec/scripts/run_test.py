"""scripts/run and scripts/packages: what reaches the recipe and comes back, and what is said when packages are missing."""
import os
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import unit  # noqa: E402

TOP = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
INSTALL = "apt-get install -qq -o Dpkg::Use-Pty=0 --no-install-recommends "
RUN = os.path.join(TOP, "scripts", "run")


def run(*arguments, **options):
    return subprocess.run([RUN, *arguments], capture_output=True, text=True, timeout=120, **options)


class Recipe(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="nsbx-run-")
        self.addCleanup(self.folder.cleanup)

    def recipe(self, text):
        path = os.path.join(self.folder.name, "recipe.lua")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def test_without_a_file_it_explains_itself(self):
        done = run()
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertTrue(done.stderr.startswith("usage: scripts/run FILE"))

    def test_help_is_no_error(self):
        done = run("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(done.stdout.startswith("usage: scripts/run FILE"))

    def test_arguments_reach_the_recipe_as_they_are(self):
        done = run(self.recipe("for i = 1, #arg do print(arg[i]) end"), "a b", "--help", "*", "")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "a b\n--help\n*\n\n", ""))

    def test_the_exit_code_is_the_recipes(self):
        self.assertEqual(run(self.recipe("os.exit(37)")).returncode, 37)

    def test_standard_input_is_the_recipes(self):
        self.assertEqual(run(self.recipe("io.write(io.read('a'))"), input="one\ntwo").stdout, "one\ntwo")

    def test_a_relative_file_is_relative_to_the_caller(self):
        self.recipe("print('here')")
        self.assertEqual(run("recipe.lua", cwd=self.folder.name).stdout, "here\n")

    def test_it_becomes_the_recipe_so_that_signals_reach_it(self):
        child = subprocess.Popen([RUN, self.recipe("print('up') io.stdout:flush() while true do end")],
                                 stdout=subprocess.PIPE, text=True)
        self.addCleanup(child.stdout.close)
        self.assertEqual(child.stdout.readline(), "up\n")
        self.assertEqual(os.readlink(f"/proc/{child.pid}/exe"), os.path.join(TOP, "build/release/bin/nsbx-lua"))
        child.send_signal(signal.SIGKILL)
        self.assertEqual(child.wait(10), -signal.SIGKILL)

    def test_a_build_that_fails_is_shown(self):
        script = 'top=$1; . "$top/scripts/build"; quietly release sh -c "echo why; exit 3"; echo $?'
        with tempfile.TemporaryDirectory() as top:
            os.makedirs(os.path.join(top, "build/release"))
            os.symlink(os.path.join(TOP, "scripts"), os.path.join(top, "scripts"))
            done = subprocess.run(["bash", "-c", script, "x", top], capture_output=True, text=True, check=False)
        self.assertEqual(done.stdout, "1\n")
        self.assertIn("why\nnsbx: the build failed (release)", done.stderr)


class Install(unittest.TestCase):
    def test_an_installed_tree_runs_a_sandbox_without_the_clone(self):
        with tempfile.TemporaryDirectory(prefix="nsbx-prefix-") as prefix:
            os.chmod(prefix, 0o755)
            subprocess.run(["cmake", "--install", os.path.join(TOP, "build/release"), "--prefix", prefix, "--strip"],
                           check=True, capture_output=True)
            recipe = os.path.join(prefix, "recipe.lua")
            with open(recipe, "w", encoding="utf-8") as f:
                f.write('local sb <close> = require("nsbx").create{} io.write(sb:exec("echo", {"inside"}).stdout)')
            env = {name: value for name, value in os.environ.items() if name != "NSBX_AGENT"}
            done = subprocess.run([os.path.join(prefix, "bin/nsbx-lua"), recipe], cwd="/", capture_output=True, text=True,
                                  timeout=60, env=env, check=False)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "inside\n", ""))
            size = os.path.getsize(os.path.join(prefix, "libexec/nsbx/nsbx-agent"))
            self.assertLess(size, 3 << 20)


class Packages(unittest.TestCase):
    """packages_install with the tools that it asks replaced."""

    def install(self, before, tools=()):
        with tempfile.TemporaryDirectory() as folder:
            for name in tools:
                path = os.path.join(folder, name)
                with open(path, "w", encoding="utf-8") as f:
                    f.write(f'#!/bin/sh\necho "{name} $*" >>{folder}/log\n[ {name} != sudo ] || exec "$@"\n')
                os.chmod(path, 0o755)
            script = (f'set -euo pipefail; . "{TOP}/scripts/packages"; packages_run="one two three"; {before}; '
                      'packages_install run; echo went on')
            # Without sudo of the machine: only what this test puts there.
            env = {"PATH": folder + ":/usr/bin:/bin"}
            done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=env, check=False)
            log = os.path.join(folder, "log")
            calls = []
            if os.path.exists(log):
                with open(log, encoding="utf-8") as f:
                    calls = f.read().splitlines()
        return done, calls

    ALL = 'dpkg-query() { echo "installed:one installed:two installed:three "; }'
    SOME = 'dpkg-query() { echo "installed:one config-files:two "; false; }'

    def test_nothing_is_said_when_nothing_is_missing(self):
        done, calls = self.install(self.ALL, ["apt-get"])
        self.assertEqual((done.returncode, done.stdout, done.stderr, calls), (0, "went on\n", "", []))

    def test_root_installs_the_missing_ones_and_says_so(self):
        done, calls = self.install(self.SOME + "; id() { echo 0; }", ["apt-get", "sudo"])
        self.assertEqual((done.returncode, done.stderr), (0, "nsbx: installing Debian packages: two three\n"))
        self.assertEqual(calls, ["apt-get update -qq", INSTALL + "two three"])

    def test_a_plain_user_uses_sudo(self):
        done, calls = self.install(self.SOME + "; id() { echo 1000; }", ["apt-get", "sudo"])
        self.assertEqual((done.returncode, done.stderr), (0, "nsbx: installing Debian packages with sudo: two three\n"))
        self.assertEqual([call for call in calls if call.startswith("sudo")],
                         ["sudo apt-get update -qq", "sudo env DEBIAN_FRONTEND=noninteractive " + INSTALL + "two three"])

    def test_without_sudo_it_names_them_and_stops(self):
        done, calls = self.install(self.SOME + "; id() { echo 1000; }; command() { return 1; }", ["apt-get"])
        self.assertEqual((done.returncode, done.stdout, calls), (1, "", []))
        self.assertIn("apt-get install two three", done.stderr)

    def test_another_system_names_them_and_stops(self):
        done, calls = self.install("is_debian() { false; }", ["apt-get"])
        self.assertEqual((done.returncode, done.stdout, calls), (1, "", []))
        self.assertIn("not Debian", done.stderr)
        self.assertIn("one two three", done.stderr)

    def test_another_system_goes_on_when_told_that_all_is_there(self):
        done, calls = self.install("is_debian() { false; }; NSBX_PACKAGES=present", ["apt-get"])
        self.assertEqual((done.returncode, done.stdout, done.stderr, calls), (0, "went on\n", "", []))


unit.main()
