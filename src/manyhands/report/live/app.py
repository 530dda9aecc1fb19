"""Live page: the application that shows the runs of a folder while they train; it only reads."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from manyhands.report.live.detail import Details
from manyhands.report.live.entry import Entry
from manyhands.report.live.events import Events
from manyhands.report.live.gate import AccessControl, answer
from manyhands.report.live.index import Index
from manyhands.report.live.parts import parts
from manyhands.report.live.studies import Studies
from manyhands.report.live.values import encode

MOST_COMPARED = 50


class Live:
    """The addresses of one served folder, and what they answer."""

    def __init__(self, index: Index) -> None:
        self.index, self.details, self.events, self.studies = index, Details(), Events(index), Studies()
        self.listed = ("", b"")  # a tag, and the list in that state

    def app(self, host: str, port: int, token: str | None) -> Starlette:
        """The application behind its gate. Addresses are these and no others: none is made into a path."""
        addresses = {
            "/api/runs": self.runs,
            "/api/runs/{id}": self.run,
            "/api/compare": self.compare,
            "/api/studies": self.told_studies,
            "/events": self.stream,
            **{address: part.answer for address, part in parts(self.index.folder).items()},
        }
        return Starlette(
            routes=[Route(address, endpoint) for address, endpoint in addresses.items()],
            middleware=[Middleware(AccessControl, host=host, port=port, token=token)],
            exception_handlers={HTTPException: _failed},
        )

    def runs(self, request: Request) -> Response:
        """The list: a row a run, and warnings."""
        now = self.index.refresh()
        if self.listed[0] != now.tag:
            self.listed = (now.tag, encode(now.to_json()))
        return answer(self.listed[1])

    def told_studies(self, request: Request) -> Response:
        """Every study of the folder, with its table."""
        return answer({"studies": self.studies.of(self.index.refresh().studies)})

    def run(self, request: Request) -> Response:
        """One run in full."""
        return answer(self.details.of(self._entry(request.path_params["id"])))

    def compare(self, request: Request) -> Response:
        """Some runs side by side, in the order of the address: ?run=ID&run=ID."""
        ids = list(dict.fromkeys(request.query_params.getlist("run")))
        if not 1 <= len(ids) <= MOST_COMPARED:
            raise HTTPException(400, f"{len(ids)} runs cannot be compared: name 1 to {MOST_COMPARED} as ?run=ID&run=ID")
        return answer(self.details.compared([self._entry(id) for id in ids]))

    async def stream(self, request: Request) -> Response:
        """The changes of the list, as they come."""
        kind, headers = "text/event-stream", {"Cache-Control": "no-store"}
        if request.method == "HEAD":  # whoever asks for the head alone does not wait for an end
            return Response(media_type=kind, headers=headers)
        known = request.headers.get("last-event-id") or request.query_params.get("since", "")
        return StreamingResponse(self.events.stream(known), media_type=kind, headers=headers)

    def _entry(self, id: str) -> Entry:
        entry = self.index.entry(id)
        if entry is None:
            raise HTTPException(404, f"there is no run {id[:40]}: /api/runs lists those there are")
        if entry.row is None:
            raise HTTPException(404, f"the run {id[:40]} cannot be read: {entry.warnings[0]}")
        return entry


def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return answer({"error": error.detail}, error.status_code)
