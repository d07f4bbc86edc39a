"""Every Python block of the documentation runs, and what it prints is what the text after it says.

The blocks of a page run in order in one namespace, as a reader would type them. The README's are in
`tests/process/test_examples.py`, since they promise something about a second process.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```", re.DOTALL | re.MULTILINE)
TEXTS = {str(path.relative_to(ROOT)): path.read_text() for path in sorted((ROOT / "docs").rglob("*.md"))}
PAGES = {page: BLOCK.findall(text) for page, text in TEXTS.items() if "\n```python\n" in text}


@pytest.mark.parametrize("page", PAGES)
def test_blocks_run_and_print_what_the_page_says(page, store_dir, capsys):
    namespace = {}
    printed = None
    for number, (language, text) in enumerate(PAGES[page]):
        if language == "python":
            exec(compile(text, f"{page}, block {number}", "exec"), namespace)
            printed = capsys.readouterr().out
        elif printed is not None:  # the first text after code is what the code prints
            assert skeleton(printed) == skeleton(text)
            printed = None


def skeleton(text):
    """Return what stays when numbers change, as they do with the JAX version and with each rule about cutting.

    Glue is left out for the same reason.
    """
    words = [re.sub(r"[0-9a-f]{8}\b|\d+(\.\d+)?", "", line).split() for line in text.splitlines()]
    return [line for line in words if line[:1] != ["glue"]]
