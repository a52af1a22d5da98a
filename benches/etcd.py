#!/usr/bin/env python3
"""Measures a list in etcd: three members and up to three services on this host, beside SQLite.

Usage: benches/etcd.py target/release/colors [PART...]; without a part, all of them. Needs
etcd-server, etcd-client and wrk. Prints a Markdown table for each part.
"""

import atexit
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

COLORS = os.path.abspath(sys.argv[1])
SECONDS = int(os.environ.get("SECONDS_EACH", "10"))
files = tempfile.TemporaryDirectory(dir=os.path.dirname(COLORS), prefix="etcd-bench-")
running = []
atexit.register(lambda: [process.kill() for process in running])


def spawn(arguments, log, **options):
    process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **options)
    running.append(process)
    return process


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Etcd:
    """Members with Debian's defaults."""

    def __init__(self, members=3):
        self.directory = tempfile.mkdtemp(dir=files.name)
        self.ports = [(free_port(), free_port()) for _ in range(members)]
        self.members = [None] * members
        for member in range(members):
            self.start(member)
        for member in range(members):
            self.wait(member)
        self.url = "etcd://" + ",".join(f"127.0.0.1:{port}" for port, _ in self.ports) + "/colors"

    def start(self, member):
        cluster = ",".join(f"m{n}=http://127.0.0.1:{peer}" for n, (_, peer) in enumerate(self.ports))
        port, peer = (f"http://127.0.0.1:{port}" for port in self.ports[member])
        log = open(f"{self.directory}/m{member}.log", "a")
        self.members[member] = spawn(
            ["etcd", "--name", f"m{member}", "--data-dir", f"{self.directory}/m{member}",
             "--listen-client-urls", port, "--advertise-client-urls", port,
             "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
             "--initial-cluster", cluster], log)

    def status(self, member):
        return post(self.ports[member][0], "/v3/maintenance/status", "{}")

    def wait(self, member):
        while True:
            try:
                if "leader" in self.status(member):
                    return
            except OSError:
                time.sleep(0.05)

    def leader(self):
        for member in range(len(self.ports)):
            status = self.status(member)
            if status["leader"] == status["header"]["member_id"]:
                return member
        return 0

    def sizes(self):
        """Resident MiB of the largest member, and MiB of its database."""
        resident = 0
        for member in self.members:
            text = open(f"/proc/{member.pid}/status").read()
            resident = max(resident, int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024)
        return f"{resident:.0f}", f"{int(self.status(0)['dbSize']) / 2**20:.1f}"

    def stop(self):
        for member in self.members:
            member.kill()
            member.wait()


def post(port, path, content):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("POST", path, content)
    return json.loads(connection.getresponse().read())


class Service:
    def __init__(self, data, seed):
        self.port = free_port()
        path = f"{files.name}/seed.json"
        with open(path, "w") as file:
            json.dump(seed, file)
        log = open(f"{files.name}/service.log", "a")
        begun = time.monotonic()
        self.process = spawn([COLORS, "--listen", f"127.0.0.1:{self.port}", "--data", data,
                              "--seed", path, "--log-level", "warn", "--max-body", "16M"], log)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                break
            except OSError:
                time.sleep(0.001)
                assert self.process.poll() is None, open(log.name).read()
        self.start_seconds = time.monotonic() - begun
        self.client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, method, target, content=None, fields={}):
        self.client.request(method, target, content, fields)
        response = self.client.getresponse()
        return response.status, response.read(), response.headers

    def stop(self):
        self.process.terminate()
        self.process.wait()


def seed(count=148, value="#123456"):
    return [{"name": f"color-{number}", "value": value} for number in range(count)]


# Changes one color after the other, and prints the figures as one line.
SCRIPT = r"""
local n = 0
function request()
  n = n + 1
  local content = string.format('{"value":"#%06d"}', n)
  return wrk.format("PUT", "/colors/color-" .. n % 148, nil, content)
end
function done(summary, latency)
  local errors = summary.errors
  io.write(string.format("%d %d %f %f %f\n", summary.requests,
    errors.status + errors.timeout + errors.read, summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
"""
with open(f"{files.name}/put.lua", "w") as script:
    script.write(SCRIPT)


def wrk(service, connections):
    return subprocess.Popen(
        ["wrk", "-t1", f"-c{connections}", f"-d{SECONDS}s", "-s", script.name,
         f"http://127.0.0.1:{service.port}"], stdout=subprocess.PIPE, text=True)


def loads(services, connections):
    """A row for each service: rate, p50, p99 and errors."""
    started = [wrk(service, count) for service, count in zip(services, connections)]
    rows = []
    for run in started:
        requests, errors, seconds, p50, p99 = run.communicate()[0].splitlines()[-1].split()
        rows.append((float(requests) / float(seconds), float(p50), float(p99), int(errors)))
    return rows


def table(title, head, rows):
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)


def percentiles(times):
    times.sort()
    return [f"{times[int(part * len(times))] * 1e3:.2f}" for part in (0.5, 0.99)] + [f"{times[-1] * 1e3:.1f}"]


def writers():
    """Several services write at once (point: none starves, none fails)."""
    rows = []
    etcd = Etcd()
    services = [Service(etcd.url, seed()) for _ in range(3)]
    for name, connections in [("3 x 16", [16] * 3), ("1 x 48", [48]), ("2 x 16, 1 x 1", [16, 16, 1])]:
        found = loads(services, connections)
        rows += [(f"etcd, {name}", f"{sum(rate for rate, *_ in found):.0f}",
                  " ".join(f"{rate:.0f}" for rate, *_ in found),
                  " ".join(f"{p50:.1f}" for _, p50, _, _ in found),
                  " ".join(f"{p99:.0f}" for _, _, p99, _ in found),
                  sum(errors for *_, errors in found))]
    etcd.stop()
    sqlite = Service(f"{files.name}/colors.db", seed())
    (rate, p50, p99, errors), = loads([sqlite], [48])
    rows.append(("SQLite, 1 x 48", f"{rate:.0f}", f"{rate:.0f}", f"{p50:.1f}", f"{p99:.0f}", errors))
    table("Changes per second", ["services x clients", "all", "each", "p50 ms", "p99 ms", "errors"], rows)


def seen():
    """From the answer to a change at one service to that of who waits at another one."""
    etcd = Etcd()
    one, other = Service(etcd.url, seed()), Service(etcd.url, seed())
    after_answer, changes = [], []
    for number in range(500):
        tag = other.ask("GET", "/colors/color-0")[2]["ETag"]
        told = []

        def wait():
            other.ask("GET", "/colors/color-0", None, {"If-None-Match": tag, "Prefer": "wait=30"})
            told.append(time.monotonic())

        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.01)
        begun = time.monotonic()
        assert one.ask("PUT", "/colors/color-0", json.dumps({"value": str(number)}))[0] == 200
        answered = time.monotonic()
        waiting.join()
        changes.append(answered - begun)
        after_answer.append(max(0, told[0] - answered))
    etcd.stop()
    rows = [("the change", *percentiles(changes)), ("told after its answer", *percentiles(after_answer))]
    table("Seen at another service", ["", "p50 ms", "p99 ms", "most ms"], rows)


def sizes():
    """What etcd needs for changes, and how long a start takes."""
    rows = []
    for name, colors, value, changes in [
        ("148 colors, 20,000 changes", 148, "#123456", 20_000),
        ("4,000 colors of 200 bytes, 200 changes", 4000, "x" * 200, 200),
        ("20,000 colors, 1,000 changes", 20_000, "#123456", 1000),
    ]:
        etcd = Etcd()
        service = Service(etcd.url, seed(colors, value))
        for number in range(changes):
            content = json.dumps({"value": f"{number:0{len(value)}}"})
            assert service.ask("PUT", f"/colors/color-{number % colors}", content)[0] == 200
        start = min(Service(etcd.url, []).start_seconds for _ in range(3))
        rows.append((name, *etcd.sizes(), f"{start:.2f}"))
        etcd.stop()
    table("etcd's memory and disk, the largest member", ["", "RSS MiB", "database MiB", "start s"], rows)


def used(process):
    """Processor time in seconds, and how often a thread went to sleep."""
    seconds = wakeups = 0
    for task in os.listdir(f"/proc/{process.pid}/task"):
        directory = f"/proc/{process.pid}/task/{task}"
        seconds += int(open(f"{directory}/schedstat").read().split()[0]) / 1e9
        status = open(f"{directory}/status").read()
        wakeups += int(re.search(r"\nvoluntary_ctxt_switches:\s+(\d+)", status)[1])
    return seconds, wakeups


def idle():
    """What everything takes while nobody asks."""
    etcd = Etcd()
    in_etcd, in_file = Service(etcd.url, seed()), Service(f"{files.name}/idle.db", seed())
    contestants = [("etcd, one of three members", etcd.members[0]), ("colors, list in etcd", in_etcd.process),
                   ("colors, SQLite", in_file.process)]
    time.sleep(2)
    before = [used(process) for _, process in contestants]
    time.sleep(3 * SECONDS)
    rows = []
    for (name, process), (seconds, wakeups) in zip(contestants, before):
        now = used(process)
        rows.append((name, f"{(now[0] - seconds) * 60 / (3 * SECONDS):.3f}",
                     f"{(now[1] - wakeups) / (3 * SECONDS):.1f}"))
    for service in (in_etcd, in_file):
        service.stop()
    etcd.stop()
    table("While nobody asks", ["", "CPU s/minute", "wake-ups/s"], rows)


def failures():
    """How long a change takes while members fail."""
    etcd = Etcd()
    service = Service(etcd.url, seed())
    rows = []

    def change(what, *statuses):
        begun = time.monotonic()
        status, content, _ = service.ask("PUT", "/colors/color-0", json.dumps({"value": str(begun)}))
        message = "" if status == 200 else json.loads(content)["message"].split("; /health")[0]
        rows.append((what, status, f"{time.monotonic() - begun:.2f}", message))
        assert status in (statuses or (200,)), content

    for _ in range(3):
        leader = etcd.leader()
        etcd.members[leader].kill()
        change("leader killed")
        etcd.start(leader)
        etcd.wait(leader)
        leader = etcd.leader()
        etcd.members[leader].send_signal(signal.SIGSTOP)
        change("leader stopped")
        etcd.members[leader].send_signal(signal.SIGCONT)
        time.sleep(2)
    for member in (0, 1):
        etcd.members[member].kill()
    time.sleep(1)
    change("two of three killed", 500, 503)
    etcd.start(0)
    etcd.wait(0)
    begun = time.monotonic()
    while service.ask("GET", "/health")[0] != 200:
        time.sleep(0.01)
    rows.append(("a majority again, until /health is 200", 200, f"{time.monotonic() - begun:.2f}", ""))
    change("after that")
    etcd.stop()
    change("all killed", 500, 503)
    begun = time.monotonic()
    failed = subprocess.run([COLORS, "--check", "--data", etcd.url], capture_output=True, text=True)
    rows.append(("a start", failed.returncode, f"{time.monotonic() - begun:.2f}", ""))
    table("When members fail", ["", "status", "s", "message"], rows)


PARTS = {"writers": writers, "seen": seen, "sizes": sizes, "idle": idle, "failures": failures}
for part in sys.argv[2:] or PARTS:
    PARTS[part]()
