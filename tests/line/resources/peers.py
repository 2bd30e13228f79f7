"""The outside world of one test: a resolver and a web server that know a few names of `stockade.test`.

Started as `unshare --net --mount ... python3 peers.py DIR` in namespaces of its own: it raises their
loopback, puts its resolver before the host's, makes what the clients ask for below DIR/site, says `ready`
and serves until it is killed. DIR has server.pem (key and chain). Each question and request is a line of DIR/log.
"""
import ctypes, fcntl, hashlib, http.server, io, json, os, pathlib, socket, ssl, struct, sys, tarfile
import threading, zipfile

BASE = pathlib.Path(sys.argv[1])
SITE = BASE / "site"
ZONE = "stockade.test"
RESOLVER = "127.10.0.53"
# Every name leads to the same server, so that only the name makes the difference ...
ADDRESSES = {name: "127.10.0.1" for name in ["files", "git", "pip", "npm", "crates", "other"]}
# ... but for one that is listed and leads where the profile lists no address.
ADDRESSES["inward"] = "127.10.0.9"
# What is said of them is another name, and of that one the address.
ALIASES = {"alias": "other", "lured": "inward"}
LOCK = threading.Lock()


def note(*words):
    with LOCK, open(BASE / "log", "a") as log:
        print(*words, file=log)


def raise_loopback():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        siocsifflags, up_and_running = 0x8914, 0x41
        fcntl.ioctl(any_socket, siocsifflags, struct.pack("16sh14x", b"lo", up_and_running))


def mount(source, target, kind=None, flags=0):
    libc = ctypes.CDLL(None, use_errno=True)
    words = [word and os.fsencode(word) for word in (source, target, kind)]
    if libc.mount(*words, ctypes.c_ulong(flags), None) != 0:
        raise OSError(ctypes.get_errno(), f"can't mount on {target}")


def put_resolver_first():
    bind = 0x1000
    for target, text in [("/etc/resolv.conf", f"nameserver {RESOLVER}\n"), ("/etc/nsswitch.conf", "hosts: files dns\n")]:
        source = BASE / os.path.basename(target)
        source.write_text(text)
        mount(str(source), target, None, bind)
    # A cache of the host's would be asked first.
    if os.path.isdir("/run/nscd"):
        mount("none", "/run/nscd", "tmpfs")


def answer(question):
    """The reply to one question; names and types that are not known have no addresses."""
    at, labels = 12, []
    while question[at]:
        labels.append(question[at + 1 : at + 1 + question[at]].decode("ascii", "replace").lower())
        at += 1 + question[at]
    kind = struct.unpack(">H", question[at + 1 : at + 3])[0]
    name = ".".join(labels)
    note("dns", name)
    own = name.removesuffix("." + ZONE) if name.endswith("." + ZONE) else ""
    alias = ALIASES.get(own)
    address = ADDRESSES.get(alias or own)
    encode = lambda text: b"".join(bytes([len(label)]) + label.encode() for label in text.split(".")) + b"\0"
    records, owner = [], b"\xc0\x0c"
    if alias:
        target = encode(f"{alias}.{ZONE}")
        records.append(owner + struct.pack(">HHIH", 5, 1, 0, len(target)) + target)
        owner = target
    if address and kind == 1:
        records.append(owner + struct.pack(">HHIH", 1, 1, 0, 4) + socket.inet_aton(address))
    code = 0 if address else 3
    head = question[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, len(records), 0, 0)
    return head + question[12 : at + 5] + b"".join(records)


def resolve(listener):
    while True:
        question, asker = listener.recvfrom(1500)
        try:
            listener.sendto(answer(question), asker)
        except (IndexError, struct.error):
            note("dns", "nonsense")


class Site(http.server.SimpleHTTPRequestHandler):
    """Files below DIR/site under every name; `/to/HOST/PATH` leads to another host."""

    timeout = 30

    def do_GET(self):
        note("web", self.headers.get("Host"), self.path)
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", "https://" + self.path[len("/to/") :])
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *_):
        pass


def serve(port, wrap):
    server = http.server.ThreadingHTTPServer(
        ("0.0.0.0", port), lambda *words: Site(*words, directory=str(SITE)), bind_and_activate=False
    )
    server.socket = wrap(server.socket)
    server.server_bind()
    server.server_activate()
    threading.Thread(target=server.serve_forever, daemon=True).start()


def tls(plain):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(BASE / "server.pem")
    # The handshake happens in the connection's own thread: a client that hangs up must not end the server.
    return context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)


def place(path, contents):
    path = SITE / path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())


def packed(files):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return made.getvalue()


def make_wheel():
    wheel, notes = io.BytesIO(), "tiny-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", 'WORD = "from pip"\n')
        archive.writestr(f"{notes}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr(f"{notes}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        names = ["tiny.py", f"{notes}/METADATA", f"{notes}/WHEEL", f"{notes}/RECORD"]
        archive.writestr(f"{notes}/RECORD", "".join(f"{name},,\n" for name in names))
    place("wheels/tiny-1.0-py3-none-any.whl", wheel.getvalue())
    link = "wheels/tiny-1.0-py3-none-any.whl"
    place("simple/tiny/index.html", f'<!DOCTYPE html><a href="/{link}">tiny-1.0-py3-none-any.whl</a>')
    # The index is where it should be and its files are not.
    place("astray/tiny/index.html", f'<!DOCTYPE html><a href="https://other.{ZONE}/{link}">tiny-1.0-py3-none-any.whl</a>')


def make_node_package():
    manifest = {"name": "tiny", "version": "1.0.0", "main": "index.js"}
    archive = packed({"package/package.json": json.dumps(manifest), "package/index.js": 'module.exports = "from npm";\n'})
    place("tarballs/tiny-1.0.0.tgz", archive)
    for root, host in [("npm", "npm"), ("npm-other", "other")]:
        tarball = f"https://{host}.{ZONE}/tarballs/tiny-1.0.0.tgz"
        dist = {"tarball": tarball, "shasum": hashlib.sha1(archive).hexdigest()}
        versions = {"1.0.0": manifest | {"dist": dist}}
        place(f"{root}/tiny", json.dumps({"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": versions}))


def make_crate():
    manifest = '[package]\nname = "tiny"\nversion = "1.0.0"\nedition = "2021"\n'
    archive = packed({"tiny-1.0.0/Cargo.toml": manifest, "tiny-1.0.0/src/lib.rs": '//! from cargo\n'})
    place("crates/tiny-1.0.0.crate", archive)
    line = {"name": "tiny", "vers": "1.0.0", "deps": [], "features": {}, "yanked": False, "cksum": hashlib.sha256(archive).hexdigest()}
    for root, host in [("index", "crates"), ("index-other", "other")]:
        download = f"https://{host}.{ZONE}/crates/{{crate}}-{{version}}.crate"
        place(f"{root}/config.json", json.dumps({"dl": download}))
        place(f"{root}/ti/ny/tiny", json.dumps(line) + "\n")


def main():
    raise_loopback()
    put_resolver_first()
    place("file.txt", "from the server\n")
    make_wheel()
    make_node_package()
    make_crate()
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind((RESOLVER, 53))
    threading.Thread(target=resolve, args=(listener,), daemon=True).start()
    serve(80, lambda plain: plain)
    serve(443, tls)
    print("ready", flush=True)
    # Whoever started it closes this: nobody is left behind when a test dies.
    sys.stdin.read()


main()
