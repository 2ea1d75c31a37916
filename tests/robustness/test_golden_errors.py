"""What a hundred mistakes are told, word by word: `errors.txt`, which `golden.py` writes. A change of a text is read there."""

import re

import golden


def test_the_texts_are_those_of_the_file():
    scope = golden.setting()
    found = [(p, golden.text(p, scope)) for p, _ in golden.programs()]
    assert found == golden.programs(), "help: python tests/robustness/golden.py, and read the difference"


def test_the_texts_say_enough():
    programs = golden.programs()
    assert len(programs) >= 100 and len({p for p, _ in programs}) == len(programs)
    for program, text in programs:
        assert text != "no error" and not text.startswith(("AssertionError", "RecursionError", "UnboundLocalError")), program
        assert len(text.partition(": ")[2]) > 10 or program.startswith("next("), (program, text)
    shapes = [t for _, t in programs if t.startswith("ShapeError")]
    assert all(re.search(r"\(\d*,?.*\)|f32|\d|lengths", t) for t in shapes)
