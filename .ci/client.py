"""Uses the Python client that .ci/clients makes: each operation on colors, and the errors as the document has them."""

import sys

import openapi_client as api

colors, service = api.ColorsApi(), api.ServiceApi()
assert api.Configuration.get_default().host == sys.argv[1]

before = colors.list_colors().data
assert len(before) == service.health().colors == 148
assert before[0] == api.Color(name="aliceblue", value="#f0f8ff")

ink = api.Color(name="a/b ü", value="#191970")
created = colors.create_color_with_http_info(api.ColorCreate(**ink.to_dict()))
assert (created.status_code, created.data) == (201, ink)
assert created.headers["Location"] == "/api/v1/colors/a%2Fb%20%C3%BC"
assert colors.list_colors().data == [*before, ink]

read = colors.read_color_with_http_info(ink.name)
assert read.data == ink
ink.value = "#0b0b45"
update = {"if_match": read.headers["ETag"], "color_update": api.ColorUpdate(value=ink.value)}
assert colors.update_color(ink.name, **update) == ink
try:
    colors.update_color(ink.name, **update)
    sys.exit("the condition did not hold")
except api.ApiException as error:
    assert error.status == 412 and error.data.error and error.data.message
assert colors.update_color(ink.name) == ink
assert colors.delete_color(ink.name) == ink
try:
    colors.read_color(ink.name)
    sys.exit("the color was deleted")
except api.exceptions.NotFoundException as error:
    assert error.data.to_dict() == {"error": True}

for head in [colors.head_colors_with_http_info, service.head_health_with_http_info, service.head_metrics_with_http_info,
             service.head_openapi_with_http_info]:
    answer = head()
    assert (answer.status_code, answer.data) == (200, None) and int(answer.headers["Content-Length"]) > 0
assert colors.head_color_with_http_info("red").headers["ETag"] == colors.read_color_with_http_info("red").headers["ETag"]
try:
    colors.head_color(ink.name)
    sys.exit("the color was deleted")
except api.exceptions.NotFoundException as error:
    assert not error.data

document = service.openapi()
assert document.openapi.startswith("3.1.") and document.info.title == "colors" and "/colors" in document.paths
