from decimal import Decimal

from billing.invoice import Invoice, Line, render_csv, render_markdown, render_text
from billing.totals import totals

INVOICE = Invoice(
    "2024-7",
    [Line("tea", Decimal("2.5"), Decimal("3.333")), Line("cups", Decimal(6), Decimal("1.19"))],
    Decimal("2.5"),
    Decimal(7),
)
PLAIN = Invoice("8", [Line("tea", Decimal(1), Decimal(1))])


def test_text_is_what_it_was():
    assert render_text(INVOICE) == (
        "Invoice 2024-7\n"
        "tea                      2.5        8.33\n"
        "cups                       6        7.14\n"
        "net                                15.47\n"
        "discount                           -0.39\n"
        "tax                                 1.06\n"
        "gross                              16.14\n"
    )


def test_markdown_agrees_with_text():
    assert render_markdown(INVOICE) == (
        "## Invoice 2024-7\n\n| item | quantity | amount |\n|---|---:|---:|\n"
        "| tea | 2.5 | 8.33 |\n| cups | 6 | 7.14 |\n"
        "| net | | 15.47 |\n| discount | | -0.39 |\n| tax | | 1.06 |\n| **gross** | | **16.14** |\n"
    )


def test_csv_agrees_with_text():
    assert render_csv(INVOICE) == (
        "item,quantity,amount\ntea,2.5,8.33\ncups,6,7.14\nnet,,15.47\ndiscount,,-0.39\ntax,,1.06\ngross,,16.14\n"
    )


def test_no_discount_no_line():
    assert totals(PLAIN).discount == 0
    assert not any("discount" in render(PLAIN) for render in (render_text, render_markdown, render_csv))
