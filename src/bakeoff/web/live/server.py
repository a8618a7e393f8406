"""The pages over HTTP: which address shows what.

    /                                  experiments and editions
    /e/EXPERIMENT/EDITION/index.html   one edition; `runs.html`, `run.html#ID` and the pages of a report are beside it
    /source/index.html                 results of other tools
    .../events                         what changed (`feed`)
    .../parts/NAME                     a part of a page that changes by itself

Pages that only count are made here, from a `Watch`. What takes statistics is made by the `Renderer`, and not before it may
be seen: a design of fixed size has no verdict until its last run has ended.
"""

from __future__ import annotations

import asyncio
import json
import mimetypes
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from socket import socket
from typing import BinaryIO

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from bakeoff.errors import BakeoffError
from bakeoff.records.files import open_inside
from bakeoff.records.looks import record_means
from bakeoff.web.live import views
from bakeoff.web.live.feed import Feed
from bakeoff.web.live.guard import Guard
from bakeoff.web.live.places import Catalogue, EditionPlace, Place, ResultsPlace
from bakeoff.web.live.renderer import VERB, Renderer
from bakeoff.web.live.rows import Query
from bakeoff.web.page import STATIC

OWN_STATIC = Path(__file__).parent / "static"
LOOK_EVERY = 5.0
"""Seconds between two verdicts of a sequential test that is still running."""
HOME_EVERY = 1.0
"""Seconds between two looks at all editions."""
_CHUNK = 1 << 16
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Files of runs that a browser may show as what they are; all others are plain text or are saved."""


class Viewer:
    """The pages of a catalogue, and what they share: open editions, feeds, and the process that makes heavy pages."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.renderer = Renderer()
        self._feeds: dict[str, Feed] = {}
        self._standing: dict[str, tuple[int, float]] = {}
        """By address: the version of the last verdict that was shown, and when (monotonic)."""
        self._means: set[tuple[str, int, bool]] = set()

    def app(self, host: str, token: str = "") -> Guard:
        """The ASGI application. `host` is what the server listens on."""
        edition = "/e/{experiment}/{edition}"
        routes = [Route("/", self._home), Route("/events", self._home_events), Route("/parts/home", self._home_part)]
        for place in (edition, "/source"):
            routes += [
                Route(f"{place}/events", self._events),
                Route(f"{place}/parts/{{name}}", self._part),
                Route(f"{place}/runs/{{run_id}}/{{path:path}}", self._run_file),
                Route(f"{place}/assets/{{name}}", self._asset),
                Route(f"{place}/{{slug}}.html", self._page),
                Route(f"{place}/{{name}}", self._file),
                Route(f"{place}/", lambda _: RedirectResponse("index.html")),
            ]
        routes.append(Route("/assets/{name}", self._asset))

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            yield
            self.close()

        prefix = f"/{token}" if token else ""
        routes = [Route(prefix + route.path, route.endpoint) for route in routes]
        app = Starlette(routes=routes, exception_handlers={BakeoffError: _problem}, lifespan=lifespan)
        return Guard(app, host, token)

    def end_streams(self) -> None:
        """End the streams of events of all open pages."""
        for feed in self._feeds.values():
            feed.end()

    def close(self) -> None:
        """End the process that makes pages and close what is open."""
        self.renderer.close()
        self.catalogue.close()

    def _place(self, request: Request) -> Place:
        names = request.path_params
        if "experiment" in names:
            found: Place | None = self.catalogue.edition(names["experiment"], names["edition"])
        else:
            found = self.catalogue.only if isinstance(self.catalogue.only, ResultsPlace) else None
        if found is None:
            raise HTTPException(404, "There are no such results here.")
        return found

    # -- the first page

    def _home(self, request: Request) -> Response:
        if self.catalogue.only is not None:
            return RedirectResponse(f"{self.catalogue.only.address}/index.html")
        return HTMLResponse(views.home(self.catalogue))

    def _home_part(self, request: Request) -> Response:
        return HTMLResponse(views.home_part(self.catalogue))

    async def _home_events(self, request: Request) -> Response:
        seen: list[object] = [None]

        def look() -> set[str]:
            listings = self.catalogue.listings()
            changed = listings != seen[0]
            seen[0] = listings
            return {"home"} if changed else set()

        return _stream(self._feeds.setdefault("", Feed(look, HOME_EVERY)))

    # -- one edition, or results of another tool

    async def _events(self, request: Request) -> Response:
        place = self._place(request)
        if isinstance(place, ResultsPlace):
            return _stream(self._feeds.setdefault(place.address, Feed(set, 60.0)))
        return _stream(self._feeds.setdefault(place.address, Feed(self._look(place))))

    def _look(self, place: EditionPlace) -> Callable[[], set[str]]:
        """What changed of an edition since the last call; the verdict of a sequential test only now and then."""
        told: list[object] = [None, -LOOK_EVERY]  # the state when the standing was named last, and when

        def look() -> set[str]:
            watch = place.watch()
            with watch.lock:
                names = {"progress", "runs"} if watch.refresh(time.time()) else set()
                state = (watch.complete, watch.seen if watch.is_sequential or not watch.complete else None)
            wait = LOOK_EVERY if watch.is_sequential and not watch.complete else 0.0
            if state != told[0] and time.monotonic() - float(str(told[1])) >= wait:
                told[:] = state, time.monotonic()
                names.add("standing")
            return names

        return look

    def _page(self, request: Request) -> Response:
        place, slug = self._place(request), request.path_params["slug"]
        if slug in views.PAGES:
            if isinstance(place, EditionPlace):
                place.watch()  # an edition that cannot be read says so here
            return HTMLResponse(views.PAGES[slug](place, request, time.time()))
        if not self._is_complete(place):
            return HTMLResponse(views.not_yet(place, slug))
        return HTMLResponse(str(self._render(place, "html", slug)))

    def _part(self, request: Request) -> Response:
        place, name = self._place(request), request.path_params["name"]
        now = time.time()
        match name:
            case "progress" if isinstance(place, EditionPlace):
                return HTMLResponse(views.progress(place, now))
            case "rows":
                start, count = (_whole(request.query_params.get(each)) for each in ("start", "count"))
                return HTMLResponse(views.rows(place, Query.parse(request.query_params), start, count))
            case "run":
                return HTMLResponse(views.run(place, request.query_params.get("id", "")))
            case "standing":
                return HTMLResponse(self._standing_part(place))
        raise HTTPException(404, "There is no such part.")

    def _is_final(self, place: Place) -> bool:
        """Whether verdicts, p-values and intervals may be shown: at the end, or at any time of a sequential test."""
        if isinstance(place, ResultsPlace):
            return True
        watch = place.watch()
        with watch.lock:
            return watch.complete or watch.is_sequential

    def _is_complete(self, place: Place) -> bool:
        """Whether the pages of a report may be shown: they have intervals for one look at the end."""
        if isinstance(place, ResultsPlace):
            return True
        watch = place.watch()
        with watch.lock:
            return watch.complete

    def _standing_part(self, place: Place) -> str:
        """Who leads: the verdict where there may be one, else means alone."""
        if isinstance(place, EditionPlace) and not self._is_final(place):
            watch = place.watch()
            with watch.lock:
                # As `status` does: who has seen means has looked, once for each plan.
                mark = (place.address, len(watch.table.rows), bool(watch.running))
                if mark not in self._means:
                    self._means.add(mark)
                    record_means(watch.edition, VERB)
                return views.means(place)
        others = json.loads(str(self._render(place, "pages", "")))
        own = [*views.PAGES, *(slug for slug, _ in views.REPORT)]
        return views.standing(
            place,
            self._is_complete(place),
            lambda section: str(self._render(place, "section", section)),
            [each for each in others if each[0] not in own],
        )

    def _render(self, place: Place, what: str, name: str) -> str | bytes:
        """What the other process makes. Raises HTTPException where there is nothing of that name."""
        version, columns = 0, {}
        if isinstance(place, EditionPlace):
            watch = place.watch()
            with watch.lock:
                watch.refresh(time.time())
                complete, number = watch.complete, watch.seen.number
            version = number
            if not complete:
                # All who ask within a few seconds get the same results, and the test is not computed for each.
                known = self._standing.get(place.address)
                if known is not None and time.monotonic() - known[1] < LOOK_EVERY:
                    version = known[0]
                else:
                    self._standing[place.address] = number, time.monotonic()
        else:
            columns = place.columns
        try:
            return self.renderer.ask(what, name, place.names, self.catalogue.root, version, columns=columns)
        except KeyError:
            raise HTTPException(404, "There is no such page.") from None

    # -- files

    def _asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        for directory in (OWN_STATIC, STATIC):
            # Names are compared with what is there: nothing else of the disk can be asked for.
            if name in {path.name for path in directory.iterdir() if path.is_file()}:
                return Response((directory / name).read_bytes(), media_type=_type(name))
        return self._file(request, f"assets/{name}")

    def _file(self, request: Request, name: str = "") -> Response:
        """A file beside the pages: a picture or its numbers."""
        if not {"experiment"} & request.path_params.keys() and "/source/" not in request.url.path:
            raise HTTPException(404, "There is no such file.")
        place, name = self._place(request), name or request.path_params["name"]
        if not self._is_final(place):
            raise HTTPException(404, "This is shown when all runs have ended.")
        return Response(self._render(place, "file", name), media_type=_type(name))

    def _run_file(self, request: Request) -> Response:
        """A file that a run left: text, a picture, or something to save; never a page."""
        place, names = self._place(request), request.path_params
        home = views.run_directory(place, names["run_id"])
        try:
            if home is None:
                raise FileNotFoundError
            file = open_inside(home, names["path"])
        except OSError:
            raise HTTPException(404, "There is no such file.") from None
        kind = mimetypes.guess_type(names["path"])[0] or ""
        headers = {"content-security-policy": "sandbox; default-src 'none'"}
        if kind in _PICTURES:
            return StreamingResponse(_chunks(file), media_type=kind, headers=headers)
        start = file.read(4096)
        file.seek(0)
        if b"\0" in start:
            return StreamingResponse(
                _chunks(file),
                media_type="application/octet-stream",
                headers={**headers, "content-disposition": "attachment"},
            )
        return StreamingResponse(_chunks(file), media_type="text/plain; charset=utf-8", headers=headers)


def _stream(feed: Feed) -> Response:
    return StreamingResponse(feed.events(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _problem(request: Request, error: Exception) -> Response:
    """An edition or a source that cannot be read: what is wrong, and nothing of the program."""
    if "/parts/" in request.url.path:
        return HTMLResponse(views.problem(str(error)))
    if request.url.path.endswith(".html"):
        return HTMLResponse(views.problem_page(str(error)), 500)
    return PlainTextResponse(f"{error}\n", 500)


def _type(name: str) -> str:
    kinds = {
        ".js": "text/javascript",
        ".css": "text/css",
        ".svg": "image/svg+xml",
        ".csv": "text/csv",
        ".json": "application/json",
    }
    return kinds.get(Path(name).suffix, "text/plain")


def _whole(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else 0


async def serve(viewer: Viewer, host: str, port: int, token: str, started: Callable[[int], None]) -> None:
    """Serve until a signal ends it. `started` gets the port, once requests are answered. Raises OSError."""
    import uvicorn

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket] | None = None) -> None:
            viewer.end_streams()  # else it waits for them, and complains
            await super().shutdown(sockets)

    config = uvicorn.Config(
        viewer.app(host, token), host=host, port=port, log_level="error", access_log=False, timeout_graceful_shutdown=1,
        server_header=False,
    )  # fmt: skip
    server = Server(config)
    sockets = [config.bind_socket()]
    task = asyncio.create_task(server.serve(sockets))
    while not server.started and not task.done():
        await asyncio.sleep(0.01)
    if server.started:
        started(sockets[0].getsockname()[1])
    await task
