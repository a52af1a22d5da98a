#!/usr/bin/env python3
"""Compares static programs of one commit, with glibc and with musl: size, memory, instructions.

Needs musl-tools and valgrind, and `rustup target add x86_64-unknown-linux-musl`. Builds both in
target/musl. Prints a Markdown table.
"""

import http.client
import json
import os
import re
import socket
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COUNT = 2000  # requests; callgrind also counts the start, which the double number takes away
files = tempfile.TemporaryDirectory(prefix="musl-bench-")
READ = ("GET", "/colors/color-74", None)
POST = ("POST", "/colors", '{"name":"new","value":"#123456"}')


def build(libc):
    target = f"x86_64-unknown-linux-{libc}"
    subprocess.run(["cargo", "build", "--quiet", "--release", "--locked", "--target", target, "--target-dir",
                    "target/musl"], cwd=ROOT, check=True, env=os.environ | {"RUSTFLAGS": "-C target-feature=+crt-static"})
    return f"{ROOT}/target/musl/{target}/release/colors"


def serve(command, colors, request, count):
    """Has a service answer so many requests; gives its resident MiB, and what it printed."""
    with open(f"{files.name}/seed.json", "w") as seed:
        json.dump([{"name": f"color-{number}", "value": "#123456"} for number in range(colors)], seed)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    service = subprocess.Popen([*command, "--listen", f"127.0.0.1:{port}", "--seed", seed.name], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            time.sleep(0.01)
            assert service.poll() is None, service.stderr.read()
    client = http.client.HTTPConnection("127.0.0.1", port)
    for _ in range(count):
        client.request(*request)
        response = client.getresponse()
        response.read()
        assert response.status in (200, 201), response.status
    status = open(f"/proc/{service.pid}/status").read()
    client.close()
    service.terminate()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024, service.communicate()[1]


def instructions(program, colors, request):
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program]
    counts = [int(re.search(r"Collected : (\d+)", serve(command, colors, request, count)[1])[1])
              for count in (COUNT, 2 * COUNT)]
    return (counts[1] - counts[0]) / COUNT


print("\n| static program | MB | RSS MiB | instructions/read | instructions/POST, 10,000 colors |\n|---|---|---|---|---|")
for libc in ("gnu", "musl"):
    program = build(libc)
    resident, _ = serve([program], 148, READ, COUNT)
    counted = [f"{instructions(program, *one):,.0f}" for one in ((148, READ), (10_000, POST))]
    print(f"| {libc} | {os.path.getsize(program) / 1e6:.1f} | {resident:.1f} | {' | '.join(counted)} |", flush=True)
