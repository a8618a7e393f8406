"""Report pages of the market: summary, equity, prices, timeline, action log and the feed.

What runs reported is always there; actions, prices and posts need the files of `outputs = true`.
One module makes each page; `played` is a run as they read it, `parts` and `tables` are what they share, and `alone`
makes the pages of a game without an experiment.
"""

from __future__ import annotations

from bakeoff.records.edition import Edition
from bakeoff.web.folder import Page
from bakeoff.workloads.market.pages.detailed import detailed_page
from bakeoff.workloads.market.pages.equity import equity_page
from bakeoff.workloads.market.pages.played import of_edition
from bakeoff.workloads.market.pages.prices import prices_page
from bakeoff.workloads.market.pages.social import social_page
from bakeoff.workloads.market.pages.summary import summary_page
from bakeoff.workloads.market.pages.timeline import timeline_page


def pages(edition: Edition) -> list[Page]:
    played = of_edition(edition)
    return [
        summary_page(played),
        equity_page(played, edition),
        prices_page(played),
        timeline_page(played),
        detailed_page(played),
        social_page(played),
    ]
