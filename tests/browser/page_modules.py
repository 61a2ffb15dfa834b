"""A page with the dashboard's modules and styles and nothing else: for tests of one module, or of one view alone."""

from __future__ import annotations

import mimetypes
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Dialog, Page, Route

from tests.architecture.source_tree import PACKAGE

ORIGIN = "http://page.test"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)
SHELL = """<!doctype html><html lang="en"><link rel="stylesheet" href="/assets/style.css">
<link rel="stylesheet" href="/assets/views.css"><body><main></main>"""


@contextmanager
def page_modules(browser: Browser, **options: Any) -> Generator[Page]:
    """Opens the page. An error that it logs, and any dialog, fails the test at its end."""
    context = browser.new_context(**options)
    page = context.new_page()
    faults: list[str] = []

    def on_dialog(dialog: Dialog) -> None:
        faults.append(dialog.message)
        dialog.dismiss()

    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("dialog", on_dialog)
    page.route(f"{ORIGIN}/**", _serve)
    page.goto(f"{ORIGIN}/")
    try:
        yield page
    finally:
        context.close()
    assert faults == []


def _serve(route: Route) -> None:
    path = route.request.url.removeprefix(f"{ORIGIN}/").removeprefix("assets/")
    if not path:
        route.fulfill(body=SHELL, content_type="text/html", headers={"Content-Security-Policy": CSP})
        return
    route.fulfill(path=PACKAGE / "dashboard" / path, content_type=mimetypes.guess_type(path)[0] or "")
