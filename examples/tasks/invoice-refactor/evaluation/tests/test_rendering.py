import pytest
from bakeoff_work import script

CODE = """
from decimal import Decimal
from billing.invoice import Invoice, Line, render_csv, render_markdown, render_text
from billing.totals import totals
invoice = Invoice(
    "2024-7",
    [Line("tea", Decimal("2.5"), Decimal("3.333")), Line("cups", Decimal(6), Decimal("1.19"))],
    Decimal("2.5"),
    Decimal(7),
)
plain = Invoice("8", [Line("tea", Decimal(1), Decimal(1))])
renderers = {"text": render_text, "markdown": render_markdown, "csv": render_csv}
result = {name: render(invoice) for name, render in renderers.items()}
result["plain"] = [render(plain) for render in renderers.values()]
result["discount"] = str(totals(plain).discount)
"""


@pytest.fixture(scope="module")
def rendered():
    return script(CODE)


def test_text_is_what_it_was(rendered):
    assert rendered["text"] == (
        "Invoice 2024-7\n"
        "tea                      2.5        8.33\n"
        "cups                       6        7.14\n"
        "net                                15.47\n"
        "discount                           -0.39\n"
        "tax                                 1.06\n"
        "gross                              16.14\n"
    )


def test_markdown_agrees_with_text(rendered):
    assert rendered["markdown"] == (
        "## Invoice 2024-7\n\n| item | quantity | amount |\n|---|---:|---:|\n"
        "| tea | 2.5 | 8.33 |\n| cups | 6 | 7.14 |\n"
        "| net | | 15.47 |\n| discount | | -0.39 |\n| tax | | 1.06 |\n| **gross** | | **16.14** |\n"
    )


def test_csv_agrees_with_text(rendered):
    assert rendered["csv"] == (
        "item,quantity,amount\ntea,2.5,8.33\ncups,6,7.14\nnet,,15.47\ndiscount,,-0.39\ntax,,1.06\ngross,,16.14\n"
    )


def test_no_discount_no_line(rendered):
    assert float(rendered["discount"]) == 0
    assert len(rendered["plain"]) == 3
    assert not any("discount" in text for text in rendered["plain"])
