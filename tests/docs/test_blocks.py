"""Every page is true: its commands and programs run, in order, as written.

A page is followed in an empty directory, from its first block to its last:

- `python` blocks run in one namespace per page, `sh` blocks in a shell. A command that
  should fail says so: ``# exits with 2``.
- A `toml` block whose first line is ``# NAME.toml`` is saved under that name; all must
  be whole schemas.
- A `text` block right after one of them is what it printed. A line ``...`` stands for
  any lines. Under ``<!-- noise -->`` numbers, paths and the width of lines may differ,
  because nothing is seeded; under ``<!-- noise: yes no -->`` also which of these words
  stands at a place.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from skdp import cli
from skdp.schema import toml_files

#: Where `skdp` and `python` are.
HERE = Path(sys.executable).parent
ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if "generated" not in path.parts
)
#: Tested elsewhere, with tables that are made once.
ELSEWHERE = {
    "docs/guide/cli.md": "tests/cli/test_cli_docs.py runs it",
    "docs/evidence/experiments/adding.md": "tests/experiments/test_runner.py runs it",
}
#: Commands that are not run here: (start of the line, reason).
NOT_RUN = {
    "pip install": "would change the environment that the tests run in",
    "python3 -m venv": "the same",
    "source ": "the same",
    "make ": "sets up environments, runs the tests, or measures for minutes",
    ".venv/bin/pytest": "these tests, from inside themselves",
}
#: Programs that are not run here: a line of theirs, and the reason.
LONG = {
    "audit.fit(": "thousands of fits; tests/audit makes the same calls with fewer",
}
BLOCK = re.compile(
    r"^(?P<noise><!-- noise(?:: (?P<words>[\w ]+))? -->\n\n?)?"
    r"^```(?P<kind>\w+)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
#: A line that needs no shell.
COMMAND = r"skdp [^|&;<>$`*\\]+"
RUN = ("python", "sh", "bash", "console", "toml")
NUMBER = re.compile(r"\b[0-9a-f]{64}\b|[-−+]?(\d[\d,]*\.?\d*(e[-+]?\d+)?|inf)")


def text_of(page):
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(text):
    """(kind, body, what it printed or None, words of it that noise chooses or None).

    Where there is noise at all, numbers may differ too."""
    found = list(BLOCK.finditer(text))
    for i, one in enumerate(found):
        after = found[i + 1] if i + 1 < len(found) else None
        shown, noise = None, None
        if after is not None and after["kind"] == "text":
            between = text[one.end() : after.start()]
            if not between.strip():
                shown = after["body"]
                if after["noise"] is not None:
                    noise = tuple((after["words"] or "").split())
        if one["kind"] in RUN:
            yield one["kind"], one["body"], shown, noise


#: Pages with something to run.
FULL = [p for p in PAGES if p not in ELSEWHERE and list(blocks(text_of(p)))]


def masked(text, words):
    """Return a printed text without its numbers, its paths, `words` and its width."""
    for word in words:
        text = re.sub(rf"\b{word}\b", "#", text)
    text = re.sub(r"[─═=-]{2,}|\S*/\S+", " ", NUMBER.sub("#", text))
    return re.sub(r"\s+", " ", text)


def agrees(shown, printed, noise):
    """Whether a page shows what was printed. `noise`: as in `blocks`."""
    parts = re.split(r"^\.\.\.\n", shown, flags=re.MULTILINE)
    printed = re.sub(r" +$", "", printed, flags=re.MULTILINE)
    if noise is not None:
        parts = [masked(part, noise).strip() for part in parts]
        printed = masked(printed, noise).strip()
    pattern = ".*".join(re.escape(part) for part in parts)
    return re.fullmatch(pattern, printed, re.DOTALL) is not None


class Reader:
    """Somebody who follows a page in an empty directory."""

    def __init__(self, folder):
        self.folder, self.names = folder, {"__name__": "__main__"}

    def python(self, body):
        if any(line in body for line in LONG):
            compile(body, "block", "exec")
            return None
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(body, "block", "exec"), self.names)
        return out.getvalue()

    def sh(self, body):
        lines = [line for line in body.splitlines() if not line.startswith("#")]
        kept = [li for li in lines if not li.lstrip("$ ").startswith(tuple(NOT_RUN))]
        if len(kept) < len(lines):
            assert not any("skdp " in line for line in kept), "Split this block."
            return None
        if all(re.fullmatch(COMMAND, line) for line in kept):
            return "".join(map(self.skdp, kept))
        script = "\n".join(
            f"{line}\n[ $? = {code[1]} ]"
            if (code := re.search(r"# exits with (\d+)", line))
            else line
            for line in kept
        )
        strict = "set -e" if "# exits with" not in body else ""
        done = subprocess.run(
            ["bash", "-c", f"{strict}\n{script}"],
            cwd=self.folder,
            env={
                **os.environ,
                "PATH": os.pathsep.join([str(HERE), os.environ["PATH"]]),
                "COLUMNS": "80",
                "PYTHONIOENCODING": "utf-8",
                "PYTHONWARNINGS": "error",
            },
            capture_output=True,
            text=True,
            encoding="utf-8",
        )
        assert done.returncode == 0, f"{body}\n{done.stdout}\n{done.stderr}"
        refused = done.stderr if "# exits with" in body else ""
        return done.stdout + refused

    def skdp(self, line):
        """Run a command in this process, which has all that it imports."""
        code = re.search(r"# exits with (\d+)", line)
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
        with (
            mock.patch.object(sys, "argv", shlex.split(line, comments=True)),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as stopped,
        ):
            cli.main()
        out.flush()
        err.flush()
        printed, told = (one.buffer.getvalue().decode() for one in (out, err))
        assert stopped.value.code == int(code[1] if code else 0), f"{line}\n{told}"
        return printed + (told if code else "")

    bash = console = sh

    def toml(self, body):
        named = re.match(r"# (\S+\.toml)\n", body)
        if named:
            (self.folder / named[1]).write_text(body, encoding="utf-8")
        return str(toml_files.loads(body)) and None


@pytest.mark.parametrize("page", FULL)
def test_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    reader = Reader(tmp_path)
    for kind, body, shown, noise in blocks(text_of(page)):
        printed = getattr(reader, kind)(body)
        if shown is not None and printed is not None:
            assert agrees(shown, printed, noise), f"{body}\nprinted\n{printed}"
        assert shown is None or printed is not None, f"Not run, but shown:\n{body}"


def test_pages_with_blocks_are_found():
    known = {"README.md", "docs/guide/tutorial.md", "docs/guide/evaluation.md"}
    assert known <= set(FULL)
    assert all(list(blocks(text_of(page))) for page in ELSEWHERE)


def test_no_block_escapes():
    """A program that is indented, or in a fence of no kind, would never be run."""
    directives = {"{eval-rst}", "{toctree}", "{include}", "{figure}"}
    known = {*RUN, "text", "json", "dockerfile"} | directives
    for page in PAGES:
        text = text_of(page)
        fences = re.findall(r"^ *(```+)(.*)$", text, re.MULTILINE)
        unknown = {kind.split(" ")[0] for _, kind in fences[::2]} - known
        assert not unknown, page
        indented = r"^    (?:import |from \w+ import |skdp |>>>)"
        assert not re.findall(indented, text, re.M), page


def test_agreement_is_strict_but_for_noise_and_dots():
    assert agrees("a 1.5\n", "a 1.5\n", None)
    assert not agrees("a 1.5\n", "a 1.6\n", None)
    assert agrees("a 1.5\n", "a -12.25\n", ())
    assert not agrees("a 1.5\n", "b 1.5\n", ())
    assert agrees("in /a/b\n--- 1\n", "in /c/d/e\n----- 22\n", ())
    assert agrees("a yes 1\n", "a no 2\n", ("yes", "no"))
    assert not agrees("a yes 1\n", "a no 2\n", ())
    assert agrees("a\n...\nz\n", "a\nb\nc\nz\n", None)
    assert not agrees("a\n...\nz\n", "a\nb\n", None)


def test_what_is_not_run_is_there():
    """A reason that no page needs is taken off the list."""
    everything = "\n".join(body for p in PAGES for _, body, _, _ in blocks(text_of(p)))
    for start in [*NOT_RUN, *LONG]:
        assert start in everything, start
