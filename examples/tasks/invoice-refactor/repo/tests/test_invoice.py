from decimal import Decimal

from billing.invoice import Invoice, Line, render_csv, render_markdown, render_text

INVOICE = Invoice("7", [Line("tea", Decimal(2), Decimal("3.50"))])


def test_text_ends_with_the_gross_amount():
    assert render_text(INVOICE).splitlines()[-1].split() == ["gross", "8.33"]


def test_every_renderer_names_the_item():
    assert all("tea" in render(INVOICE) for render in (render_text, render_markdown, render_csv))
