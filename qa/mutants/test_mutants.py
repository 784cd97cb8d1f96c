"""Claims about the testing of tests: what is a fault, which tests meet it, and that it dies if it must."""

import hashlib
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("mutmut", reason="needs the extra `mutants`")

from qa.mutants import journal as journals
from qa.mutants.faults import ROOT, Mutant, drawn, mutants_of, places_in
from qa.mutants.journal import Journal, end_of, equivalent, table
from qa.mutants.lines import Coverage

TEST = "tests/kernel/test_clock.py::test_durations_round_up_to_the_nanosecond[1.1-1100000000]"
CLOCK = "fednet_emu/kernel/clock.py"
DIGEST = hashlib.sha256((ROOT / "tests/kernel/test_clock.py").read_bytes()).hexdigest()


def lines_of(path, **tests):
    """Lines as if recorded: each test runs lines 45 and 46 of the clock."""
    seen = {test: {"seconds": seconds, "lines": {CLOCK: [45, 46]}} for test, seconds in tests.items()}
    path.write_text(json.dumps({"tests/kernel/test_clock.py": {"digest": DIGEST, "tests": seen}}))
    return Coverage(path)


def test_faults_are_in_what_functions_do():
    """Types, defaults, decorators, docstrings, errors and prose stay; what methods and inner functions do does not."""
    module, places = places_in(
        textwrap.dedent('''
        LIMIT = 3

        class Box:
            size: int = 4

            @property
            def area(self, unit: "m" = 2) -> "m2":
                """Say 1."""
                if self.size < 0:
                    raise ValueError("negative", 7)
                def inner():
                    return 5
                self.note("two words", f"{6}", len([8]), *zip([9], strict=True))
                return inner()
        ''')
    )

    assert {place.function for place in places} == {"Box.area"}
    changed = {
        (module.code_for_node(place.node).strip(), module.code_for_node(place.other).strip()) for place in places
    }
    assert {("5", "6"), ("0", "1"), ("< 0", "<= 0"), ("9", "10")} <= changed
    assert not {before for before, _ in changed} & {
        "3",
        "4",
        "2",
        "7",
        "6",
        "8",
        "True",
        '"two words"',
        '"negative"',
        '"m"',
    }


def test_a_longer_draw_begins_with_the_shorter_one():
    """So a stopped draw goes on, and the first mutants are a fair sample already."""
    some = drawn(0, 40, "network/links")

    assert drawn(0, 15, "network/links") == some[:15]
    assert drawn(1, 15, "network/links") != some[:15]
    assert len({mutant.name for mutant in some}) == 40
    assert len({mutant.file for mutant in some}) > 2


def test_the_nearest_and_quickest_tests_come_first(tmp_path):
    """Another folder's come later, a second set of parameters after every function's first, slow ones not at all."""
    near, far = "tests/kernel/test_a.py::", "tests/network/test_b.py::"
    seconds = {far + "one": 0.1, near + "two[b]": 0.2, near + "two[a]": 0.3, near + "three": 0.4, near + "slow": 99.0}

    choice = lines_of(tmp_path / "lines.json", **seconds).choice

    ranked = [near + "two[b]", near + "three", near + "two[a]", far + "one"]
    assert choice(Mutant(CLOCK, "to_ns", 0, line=46)) == ranked
    assert choice(Mutant(CLOCK, "to_ns", 0, line=47)) == ranked
    assert choice(Mutant(CLOCK, "to_ns", 0, line=42)) == []


def test_what_must_die_dies_and_the_equivalent_survives(tmp_path):
    """Rounding without taking the noise off fails the test of 1.1 s; `<` and `<=` in min(noise, 0.25) are the same."""
    lines_of(tmp_path / "lines.json", **{TEST: 0.01})
    script = f"""
        import json, pytest
        from pathlib import Path
        from qa.mutants.faults import mutants_of
        from qa.mutants.lines import Coverage
        from qa.mutants.trial import Trials

        mutants = [mutant for mutant in mutants_of("{CLOCK}") if mutant.function == "to_ns"]
        ends = []
        plugin = Trials(mutants, Coverage(Path({str(tmp_path / "lines.json")!r})), lambda mutant, end: ends.append(end))
        pytest.main(["-q", "-s", "-p", "no:cacheprovider", "tests/kernel/test_clock.py"], plugins=[plugin])
        Path({str(tmp_path / "ends.json")!r}).write_text(json.dumps(ends))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], cwd=ROOT, check=True, capture_output=True)
    ends = {end["after"]: end for end in json.loads((tmp_path / "ends.json").read_text())}

    assert len(ends) > 10
    assert ends["return ceil(exact + (noise if noise < 0.25 else 0.25))"]["verdict"] == "killed"
    assert ends["return ceil(exact + (noise if noise < 0.25 else 0.25))"]["by"] == TEST
    assert ends["return ceil(exact - (noise if noise <= 0.25 else 0.25))"]["verdict"] == "survived"
    assert ends["exact = duration_s / 1e9"]["verdict"] == "survived"  # said to be run by no test
    assert ends["exact = duration_s / 1e9"]["tests"] == 0


def test_the_table_counts_what_the_journal_says(tmp_path, monkeypatch):
    """Equivalent ones leave the share; what a changed file's journal says is forgotten."""
    mutants = [mutant for mutant in mutants_of(CLOCK) if mutant.function == "to_ns"][:5]
    journal = Journal(tmp_path / "journal.jsonl")
    changes = [("a", "b"), ("a", "c"), ("a", "d"), ("a", "e")]
    verdicts = ["killed", "survived", "killed by signal 27", "survived"]
    for mutant, (before, after), verdict in zip(mutants, changes, verdicts, strict=False):
        journal.add(mutant, {"before": before, "after": after, "verdict": verdict})
    monkeypatch.setattr(journals, "equivalent", lambda: {(CLOCK, "to_ns", "a", "c"): "because"})

    again = Journal(tmp_path / "journal.jsonl")

    assert [end_of(again.entries.get(mutant.name)) for mutant in mutants] == [
        *("killed", "equivalent", "killed", "survived", "open")
    ]
    assert "| kernel | 4 | 2 | 1 | 1 | 66.7% |" in table(mutants, again).splitlines()
    monkeypatch.setattr(journals, "_digest", lambda file: "another")
    assert Journal(tmp_path / "journal.jsonl").entries == {}


def test_what_is_listed_as_equivalent_is_there():
    """Every entry names lines that its file has, and says why nothing can tell the difference."""
    for (file, function, before, after), reason in equivalent().items():
        text = " ".join(line.strip() for line in Path(ROOT / file).read_text().splitlines())
        assert before in text, f"{file} {function}: {before}"
        assert before != after
        assert len(reason) > 10
