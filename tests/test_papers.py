"""Papers as experiments: the page has a row for every claim, and the cheapest experiment runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.papers.table import HEAD, PAGE, PAPERS, rows

CONF = Path(__file__).resolve().parents[1] / "conf"


def test_every_paper_has_an_experiment_a_section_and_its_rows() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = page.split("<!-- papers -->\n")[1].split("<!-- end of papers -->")[0]
    assert table.startswith(HEAD)
    experiments = {path.stem for path in (CONF / "experiment").glob("paper_*.yaml")}
    assert experiments == {f"paper_{name}" for name in PAPERS}
    for paper in PAPERS.values():
        short = re.sub(r"[^\w].*", "", paper.title.lstrip("["))
        assert f"\n## {short}" in page
        for claim in paper.claims:
            assert f"| {claim.quantity} | {claim.published} |" in table


@pytest.mark.slow
@pytest.mark.needs("esync")
def test_the_cheapest_experiment_gives_the_figures_of_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for row in rows("esync"):
        assert row in page
