"""The machine's own Chromium, and a page of the console in it."""

from __future__ import annotations

import shutil
import time

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
# Without a graphics card WebGL is drawn by the processor; in a container there is no sandbox.
ARGUMENTS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]


class Console:
    """A page of the console that keeps account of everything that went wrong."""

    def __init__(self, page, served, graph):
        self.page, self.served, self.graph = page, served, graph
        self.requests: list[str] = []
        self.problems: list[str] = []
        self.open: set[object] = set()
        page.on("request", self._asked)
        for ended in ("requestfinished", "requestfailed"):
            page.on(ended, lambda request: self.open.discard(request))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", self._said)
        page.set_default_timeout(20_000)

    def _asked(self, request):
        self.requests.append(request.url)
        # Of a worker's script the browser tells the beginning only.
        if "worker" not in request.url:
            self.open.add(request)

    def _said(self, message):
        # The browser itself tells of every answer that is no success.
        told = ("Failed to load resource", "GPU stall")
        if message.type in ("error", "warning") and not any(one in message.text for one in told):
            self.problems.append(message.text)

    def visit(self, place):
        """Go to an address as somebody does who follows a link: nothing is left of before."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.served.url}/ui/#/{self.graph}/{place}")
        return self.page

    def settled(self):
        """Nothing has been asked for a while, and every drawing has its places."""
        until, quiet = time.monotonic() + 20, 0
        while quiet < 6:
            self.page.wait_for_timeout(50)
            quiet = 0 if self.open else quiet + 1
            assert time.monotonic() < until, [request.url for request in self.open]
        self.page.wait_for_function(
            "() => !document.querySelector('.canvas-drawing:not([data-layout=done])')"
        )
        return self.page

    def choose(self, role, name, **more):
        self.page.get_by_role(role, name=name, **more).first.click()
