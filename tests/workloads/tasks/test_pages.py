"""What the report's pages make of what an agent left."""

from __future__ import annotations

from bakeoff.workloads.tasks.pages import diff_lines, render
from workloads.tasks.small import DIFF


def diff_html(diff: bytes) -> str:
    return render("diff", lines=diff_lines(diff))


BINARY = """\
diff --git a/blob.bin b/blob.bin
new file mode 100644
index 0000000000000000000000000000000000000000..e5a882320c9087d27dd587d69cbc94254d785c9e
GIT binary patch
literal 2000
zcmV;>2QT<X-i7i6=w|kRu1q5#7Xx&umZ8!((QRWS^UsY`|7`)oAc-n^foq#qh7ykD

literal 0
HcmV?d00001

"""


def test_a_diff_has_colours_and_of_a_binary_file_only_its_size() -> None:
    html = diff_html((BINARY + DIFF.replace("return a + b", "return a + b  # <script>")).encode())
    assert '<span class="head">binary, 2,000 bytes</span>' in html and "zcmV" not in html and "literal" not in html
    assert '<span class="del">-    return a - b</span>' in html
    assert '<span class="add">+    return a + b  # &lt;script&gt;</span>' in html


def test_no_diff_is_said_to_be_none() -> None:
    assert diff_html(b"\n") == "<p>Nothing was changed.</p>"


def test_a_binary_file_takes_no_room_from_what_comes_after_it() -> None:
    long = BINARY.replace("\n\nliteral 0", f"\n{('z' + 'A' * 65 + chr(10)) * 4000}\nliteral 0")
    assert '<span class="add">+    return a + b</span>' in diff_html((long + DIFF).encode())


def test_content_that_looks_like_a_header_or_a_new_line_is_content() -> None:
    html = diff_html(DIFF.replace("    return a + b", "++ a\x0c\u2028b").encode())
    assert html.count('class="add"') == 1 and '<span class="add">+++ a' in html


def test_a_script_that_counts_by_its_exit_code_has_that_in_place_of_a_table() -> None:
    script = {"success": False, "exit_code": 3, "timed_out": False, "cases": {}, "output": "oh"}
    html = render("tests", results={"test_results": {"a.sh": script, "b.sh": {**script, "timed_out": True}}})
    assert "It exited with code 3." in html and "It ran out of time." in html and "<table" not in html


def test_rubrics_and_custom_metrics_are_shown_and_why_one_is_missing() -> None:
    rubric = {"criterion": "It is <fast>.", "weight": 0.5, "score": None}
    own = {"values": {"lines": 12.0}, "missing": {"speed.py": "took too long"}}
    html = render("scores", results={"evaluation": {"rubrics": {"speed": rubric}}, "custom_metrics": own})
    assert "It is &lt;fast&gt;.</td><td>0.5</td><td>untested</td>" in html
    assert "<dt>lines</dt><dd>12</dd>" in html and "<dt>speed.py</dt><dd>missing: took too long</dd>" in html
    assert render("scores", results={}) == ""
