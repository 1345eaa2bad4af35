#!/usr/bin/env python3
"""The findings of the security review of commit 8819d87, tried from outside on any build of `tidegate`.

    check.py PROGRAM [FINDING ...]

Starts the program with servers of this script, over loopback, does what the review did, and prints one line for each finding:
whether it still hurts. Exit status 1 if any does. Standard library only; everything is bounded in time, and what is started is stopped.
"""

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

PROGRAM = os.path.abspath(sys.argv[1])
WANTED = set(sys.argv[2:])


class Server:
    """An origin: one thread per connection, records what it is sent, answers by path."""

    def __init__(self, answer=None):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.seen = []
        self.answer = answer or (lambda head: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        data = b""
        with connection, contextlib.suppress(OSError):
            while True:
                while b"\r\n\r\n" not in data:
                    more = connection.recv(65536)
                    if not more:
                        return
                    data += more
                head, data = data.split(b"\r\n\r\n", 1)
                lower = head.lower()
                body = b""
                if b"transfer-encoding: chunked" in lower:
                    while not (data == b"0\r\n\r\n" or data.endswith(b"\r\n\r\n")):
                        more = connection.recv(65536)
                        if not more:
                            return
                        data += more
                    body, data = data, b""
                self.seen.append((head + b"\r\n\r\n" + body).decode("latin-1"))
                answer = self.answer(head.decode("latin-1"))
                if answer is None:
                    return
                if b"connection: close" in answer.lower():
                    # Together with the end of the connection: what comes before it may be passed on before.
                    connection.send(answer, socket.MSG_MORE)
                    return
                connection.sendall(answer)


class Sentry:
    """The program before servers, with a configuration of one application."""

    def __init__(self, servers, application="", rest="", files=None):
        self.folder = tempfile.mkdtemp(prefix="findings-")
        self.port, self.admin = free(), free()
        listed = ", ".join('"%s"' % server.address for server in servers)
        text = '[admin]\nlisten = "127.0.0.1:%d"\n[sentry]\nworkers = 1\n%s\n' % (self.admin, rest)
        text += '[[application]]\nlisten = "127.0.0.1:%d"\nservers = [%s]\n%s\n' % (self.port, listed, application)
        with open(self.folder + "/shop.toml", "w") as file:
            file.write(text)
        self.log = open(self.folder + "/log", "w+")
        self.process = subprocess.Popen(
            [PROGRAM, "run", "-c", self.folder + "/shop.toml"], stdout=self.log, stderr=subprocess.STDOUT,
            preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))) if files else None)
        try:
            until(lambda: self.state() is not None or self.process.poll() is not None, "the sentry answers")
        except TimeoutError:
            self.process.kill()
            raise
        if self.process.poll() is not None:
            shutil.rmtree(self.folder)
            raise TimeoutError("the program does not take the file")

    def get(self, request, wait=5.0, half=False):
        """What comes back for some bytes, until it closes or says nothing for a moment."""
        with socket.create_connection(("127.0.0.1", self.port), 5) as client:
            client.sendall(request)
            if half:
                client.shutdown(socket.SHUT_WR)
            return read(client, wait)

    def status(self, request, **more):
        words = self.get(request, **more).split()
        return int(words[1]) if len(words) > 1 else 0

    def ask_admin(self, path):
        try:
            with socket.create_connection(("127.0.0.1", self.admin), 5) as client:
                client.sendall(("GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path).encode())
                return read(client, 5)
        except OSError:
            return ""

    def state(self):
        answer = self.ask_admin("/api/state")
        return json.loads(answer.split("\r\n\r\n", 1)[1]) if answer.startswith("HTTP/1.1 200") else None

    def servers(self):
        return [server["status"] for server in self.state()["applications"][0]["servers"]]

    def memory(self):
        with open("/proc/%d/status" % self.process.pid) as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.folder)


def read(client, wait):
    client.settimeout(wait)
    data = b""
    with contextlib.suppress(OSError):
        while True:
            more = client.recv(65536)
            if not more:
                break
            data += more
            head, found, body = data.partition(b"\r\n\r\n")
            length = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            if found and length and len(body) >= int(length[0]):
                break
    return data.decode("latin-1")


def free():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def until(condition, what, most=30.0):
    end = time.monotonic() + most
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.02)


def ask(target, fields="", version="1.1", method="GET"):
    return ("%s %s HTTP/%s\r\nHost: t\r\n%s\r\n" % (method, target, version, fields)).encode()


REFUSES = 'admission = { policy = "concurrency", limit = 0 }\n'


# Each: what still hurts, or nothing.

def h1():
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as page:
        page.write("x" * 20_000)
        page.flush()
        with Sentry([Server()], REFUSES + '[application.rejection]\npage = "%s"\n' % page.name) as sentry:
            before, held = sentry.memory(), []
            for _ in range(5):
                client = socket.create_connection(("127.0.0.1", sentry.port), 5)
                client.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    client.send(b"GET / HTTP/1.1\r\nHost:t\r\n\r\n" * 2520)
                held.append(client)
            time.sleep(1)
            grown = sentry.memory() - before
            return "5 clients that send 63 kB and read nothing: %.0f MB more" % grown if grown > 25 else None


def h3():
    rules = REFUSES + 'exempt = [{ path = "/healthz" }]\n'
    bad = []
    with Sentry([Server()], rules) as sentry:
        for path in ["/search/..%2fhealthz", "/search/..%2f..%2fhealthz?q=1", "/search/%2e%2e%5chealthz", "/search/..;/healthz"]:
            if sentry.status(ask(path)) == 200:
                bad.append(path)
    gold = '[[application.class]]\nname = "vip"\nmatch = { host = "vip.example" }\n[[application.class]]\nname = "bulk"\n'
    with Sentry([Server()], gold) as sentry:
        sentry.get(b"GET http://vip.example:80@bulk.example/ HTTP/1.1\r\nHost: bulk.example\r\n\r\n")
        if sentry.state()["applications"][0]["classes"][0]["offered"] > 0:
            bad.append("vip.example:80@bulk.example is vip")
    return ", ".join(bad)


def m1():
    folder = tempfile.mkdtemp(prefix="findings-")
    with open(folder + "/token", "w") as file:
        file.write("SECRETTOKEN_0123456789")
    os.chmod(folder + "/token", 0o600)
    with open(folder + "/leak.toml", "w") as file:
        file.write('[admin]\ntoken_file = "token"\n[[application]]\nservers = ["127.0.0.1:1"]\n')
    said = subprocess.run([PROGRAM, "check", folder + "/leak.toml"], capture_output=True, text=True, timeout=30)
    shutil.rmtree(folder)
    return "`tidegate check` prints the token" if "SECRETTOKEN" in said.stdout + said.stderr else None


def m2():
    closes = lambda head: None if "/closes" in head else b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    with Sentry([Server(closes), Server(closes)], 'health = { interval = "30s" }\n') as sentry:
        until(lambda: sentry.servers() == ["up", "up"], "servers are up")
        for _ in range(12):
            sentry.get(ask("/closes"))
        return "12 requests of one client for one URL: %s" % sentry.servers() if "down" in sentry.servers() else None


def m3():
    with Sentry([Server()], 'health = { interval = "500ms" }\n', files=400) as sentry:
        until(lambda: sentry.servers() == ["up"], "the server is up")
        held = []
        for _ in range(420):
            with contextlib.suppress(OSError):
                client = socket.create_connection(("127.0.0.1", sentry.port), 2)
                client.send(b"GET / HTTP/1.1\r\nHost: t\r\n")
                held.append(client)
        time.sleep(3)
        statuses = [sentry.status(ask("/"), wait=1) for _ in range(6)]
        for client in held:
            client.close()
        time.sleep(0.5)
        state = sentry.servers()
        hurts = "down" in state or 502 in statuses or statuses.count(200) < 4
        return "400 descriptors, 420 half heads: server %s, honest clients got %s" % (state, statuses) if hurts else None


def m8():
    bad = []
    server = Server()
    with Sentry([server]) as sentry:
        fields = "Transfer-Encoding: chunked\r\nTrailer: X-Forwarded-For, Cookie\r\n"
        sentry.get(ask("/", fields, method="POST") + b"3\r\nabc\r\n0\r\nX-Forwarded-For: 6.6.6.6\r\nCookie: admin=1\r\n\r\n")
        sentry.get(ask("/", "X_Forwarded_For: 6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\n"))
        text = "".join(server.seen)
        bad += ["trailers"] if "admin=1" in text else []
        bad += ["fields with underscores"] if "X_Forwarded_For" in text or "x_forwarded_for" in text else []
        bad += ["X-Real-IP"] if "x-real-ip: 6.6.6.6" in text.lower() else []
        bad += ["TRACE"] if sentry.status(ask("/", method="TRACE")) == 200 else []
        server.seen.clear()
        sentry.get(ask("/", "Connection: Upgrade\r\nUpgrade: h2c\r\n"))
        bad += ["Upgrade: h2c"] if "h2c" in "".join(server.seen) else []
    return ", ".join(bad)


def l1():
    with Sentry([Server()], '[application.timeouts]\nheader = "1s"\nclient_idle = "2s"\n') as sentry:
        with socket.create_connection(("127.0.0.1", sentry.port), 5) as client:
            client.settimeout(0.9)
            for _ in range(8):
                try:
                    client.send(b"\r\n")
                    if client.recv(10) == b"":
                        return None
                except TimeoutError:
                    pass
                except OSError:
                    return None
            return "an empty line every 0.9 s: open after 7 s, client_idle is 2 s"


def l2():
    with Sentry([Server()]) as sentry:
        with socket.create_connection(("127.0.0.1", sentry.admin), 5) as client:
            client.send(b"GET / HTTP/1.1\r\n")
            client.settimeout(15)
            try:
                client.recv(10)
                return None
            except TimeoutError:
                return "half a head at the admin port: open after 15 s"


def l3():
    server = Server()
    with Sentry([server]) as sentry:
        status = sentry.status(b"GET / HTTP/1.0\r\n\r\n")
        hurts = status == 200 and "host:" not in "".join(server.seen).lower()
        return "HTTP/1.0 without a host goes on as HTTP/1.1 without a host" if hurts else None


def l4():
    server = Server()
    with Sentry([server]) as sentry:
        sentry.get(b"OPTIONS http://t HTTP/1.1\r\nHost: t\r\n\r\n")
        return "the server gets %s" % server.seen[0].split("\r\n")[0] if server.seen and not server.seen[0].startswith("OPTIONS *") else None


def l5():
    with Sentry([Server()]) as sentry:
        status = sentry.status(ask("/", "Transfer-Encoding: chunked\r\n", method="POST") + b"3\r\nabc\r\n0\r\n\nX: y\r\n\r\n", wait=2)
        return "a body that ends in `0 CR LF LF` is answered with 200" if status == 200 else None


def l6():
    bad = []
    heads = {"/lf": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
             "/gzip": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"}
    with Sentry([Server(lambda head: heads[head.split()[1]])]) as sentry:
        for path in heads:
            if sentry.status(ask(path), wait=2) == 200:
                bad.append(path)
    return "taken for answers: %s" % ", ".join(bad) if bad else None


def l7():
    with Sentry([Server(lambda head: b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\n")]) as sentry:
        status = sentry.status(ask("/"), wait=3)
        return "an answer that breaks off before its body: %s" % (status or "closed without a status") if status != 502 else None


def l8():
    server = Server()
    with Sentry([server]) as sentry:
        sentry.get(ask("/", "Cookie: who=me\r\nConnection: Cookie\r\n"))
        return "`Connection: Cookie` takes the cookie away" if "who=me" not in "".join(server.seen) else None


def l9():
    """Half a close counts as leaving unless an application says otherwise; before, nothing could say so."""
    slow = lambda head: time.sleep(0.3) or b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    try:
        with Sentry([Server(slow)], "half_close = true\n") as sentry:
            return "a client that closes its sending side gets no answer" if sentry.status(ask("/"), half=True) != 200 else None
    except TimeoutError:
        return "a client that closes its sending side gets no answer, whatever the file says"


def l10():
    gold = '[[application.class]]\nname = "gold"\nmatch = { cookie = "c", value = "gold" }\n[[application.class]]\nname = "low"\n'
    try:
        sentry = Sentry([Server()], gold)
    except TimeoutError:
        gold = gold.replace('cookie = "c", value = "gold"', 'cookie = { name = "c", value = "gold" }')
        sentry = Sentry([Server()], gold)
    with sentry:
        sentry.get(ask("/", "Cookie: c=low; c=gold\r\n"))
        offered = sentry.state()["applications"][0]["classes"][0]["offered"]
        return "the second cookie of a name decides the class" if offered > 0 else None


def l11():
    with Sentry([Server()], REFUSES + "[application.rejection]\n") as sentry:
        pass
    try:
        with Sentry([Server()], REFUSES + "[application.rejection]\ndetails = false\n") as sentry:
            told = sentry.get(ask("/"))
            return "details are told" if "tidegate-decision" in told.lower() else None
    except TimeoutError:
        return "refusals tell class and policy, and cannot be made not to"


def l12():
    made = subprocess.run([PROGRAM, "key", "nucleus", "a:1", "--of", __file__], capture_output=True, text=True, timeout=30)
    return "there are no keys of one's own" if "unrecognized subcommand" in made.stderr else None


def l13():
    folder, port, admin = tempfile.mkdtemp(prefix="findings-"), free(), free()
    with open(folder + "/key", "w") as file:
        file.write("0123456789abcdef")
    with open(folder + "/control.toml", "w") as file:
        file.write('listen = "127.0.0.1:%d"\nadmin = "127.0.0.1:%d"\nkey_file = "key"\n[provider]\nkind = "static"\naddresses = ["127.0.0.1:1"]\n'
                   '[[application]]\nname = "shop"\ntarget = "1s"\n' % (port, admin))
    log = open(folder + "/log", "w")
    process = subprocess.Popen([PROGRAM, "control", "-c", folder + "/control.toml"], stdout=log, stderr=log)
    def answer():
        try:
            with socket.create_connection(("127.0.0.1", admin), 2) as client:
                client.sendall(b"GET /api/state HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
                return read(client, 3)
        except OSError:
            return ""
    until(answer, "the control plane answers")
    said = answer()
    process.kill()
    process.wait()
    shutil.rmtree(folder)
    return "a page of another name reads the control plane's state" if said.startswith("HTTP/1.1 200") else None


def l14():
    """More fields than can be held are refused in the file, or can be held."""
    try:
        return many_fields()
    except TimeoutError:
        return None


def many_fields():
    with Sentry([Server()], "[application.limits]\nheaders = 1000\nheader_bytes = \"64KiB\"\n") as sentry:
        many = "".join("X-%d: y\r\n" % number for number in range(400))
        status = sentry.status(ask("/", many))
        return "limits.headers = 1000, and 400 fields are answered with %d" % status if status != 200 else None


FINDINGS = {"H1": h1, "H3": h3, "M1": m1, "M2": m2, "M3": m3, "M8": m8, "L1": l1, "L2": l2, "L3": l3, "L4": l4, "L5": l5, "L6": l6,
            "L7": l7, "L8": l8, "L9": l9, "L10": l10, "L11": l11, "L12": l12, "L13": l13, "L14": l14}

if __name__ == "__main__":
    hurt = 0
    for name, try_it in FINDINGS.items():
        if WANTED and name not in WANTED:
            continue
        try:
            found = try_it()
        except Exception as error:  # What cannot be tried is said, and counts.
            found = "cannot be tried: %r" % error
        hurt += bool(found)
        print("%-4s %s" % (name, "HURTS: " + found if found else "safe"), flush=True)
    sys.exit(1 if hurt else 0)
