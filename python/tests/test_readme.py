"""What the READMEs show is what happens."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["README.md", "python/README.md"])
def test_the_readme_runs_and_prints_what_it_says(name, capsys):
    text = (ROOT / name).read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    exec(compile(block, name, "exec"), {})
    (promised,) = re.findall(r"# (\[\d+ \d+ \d+ \d+\])", block)
    assert capsys.readouterr().out.splitlines()[0] == promised
