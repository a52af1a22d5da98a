"""Gives every created color a name of its own, and asks for the page as browsers do.

Names need not be unique: when one of two colors of a name is deleted, the name means the other one. schemathesis takes that for
a deleted color that is still there. With unique names its check finds only what is really wrong; the tests have the duplicates.

The page is there for those who ask for HTML, which an OpenAPI document cannot say in its parameters.
"""

import itertools

import schemathesis

NUMBERS = itertools.count(1)


@schemathesis.hook
def before_call(context, case, kwargs):
    """Appends a number to the name, if the content is an object with a name that is a string; sends Accept to the page."""
    if case.path == "/":
        case.headers["Accept"] = "text/html"
    if case.method == "POST" and isinstance(case.body, dict) and isinstance(case.body.get("name"), str):
        case.body["name"] += f"-{next(NUMBERS)}"
