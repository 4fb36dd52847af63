#!/usr/bin/env python3
"""A reader of session stores, written from docs/format.md alone, with Python's standard library.

    reader.py STORE                verify every session; one line of JSON for each
    reader.py STORE ID             verify one session
    reader.py STORE [ID] --events  the same, each line followed by the session's events as they were accepted
    reader.py --export FILE        verify an export

Exit code 0: everything is as the format says. 1: something is not, and the line says what. 2: it could not be read.
Packed segments need the program `zstd`. Nothing is written and no lock is asked for.
"""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

FORMAT = 1
ZERO_LINK = "A" * 16
MAX_RECORD = 1 << 20
BLOB_LIMIT = 32768

TABLE = []
for n in range(256):
    for _ in range(8):
        n = (n >> 1) ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)


def crc32c(data):
    crc, table = 0xFFFFFFFF, TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def sum_of(data):
    return b64(crc32c(data).to_bytes(4, "big"))


def unb64(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def next_link(prev, body):
    return b64(hashlib.sha256(unb64(prev) + body).digest()[:12])


class Bad(Exception):
    """Bytes that are not what the format says."""


class Parted(Bad):
    """A part of what a fork begins with ends in another record than the one that was forked."""


class Newer(Exception):
    """Written by a newer program."""


def sealed(line, what):
    """Checks a line that ends in its sum and returns its members."""
    m = re.fullmatch(rb'(.*),"sum":"([A-Za-z0-9_-]{6})"\}', line, re.S)
    if not m:
        raise Bad(what + ": no sum at its end")
    if sum_of(m[1]) != m[2].decode():
        raise Bad(what + ": the sum is wrong")
    return json.loads(m[1] + b"}")


SYNCED = re.compile(rb',"synced":(\d+)$')


class Record:
    """One line of a segment."""

    def __init__(self, line):
        m = re.fullmatch(rb'(\{"seq":.*),"chain":"([A-Za-z0-9_-]{16})([A-Za-z0-9_-]{6})"\}', line, re.S)
        if not m:
            raise Bad("not the form of a record")
        if sum_of(m[1]) != m[3].decode():
            raise Bad("the sum is wrong")
        self.line, self.link = line, m[2].decode()
        body = m[1]
        if len(line) + 1 > MAX_RECORD:
            raise Bad("longer than a record may be")
        try:
            self.event = json.loads(line)
        except ValueError as e:
            raise Bad("not JSON: %s" % e)
        # data ends at the brace directly before chain, or before synced; else it has to be walked.
        if not body.endswith(b"}"):
            s = SYNCED.search(body)
            if s and body[: s.start()].endswith(b"}"):
                body = body[: s.start()]
            else:
                at = body.index(b',"data":{') + len(b',"data":')
                body = body[: at + object_end(body[at:])]
        self.body = body
        self.seq, self.type, self.time = self.event["seq"], self.event["type"], self.event["time"]
        self.synced = self.event.get("synced", -1)

    def blobs(self):
        out = []
        find_blobs(self.event["data"], out)
        return out


def object_end(text):
    """Where the object that text begins with ends."""
    depth = i = 0
    while True:
        c = text[i]
        if c == 0x22:
            i += 1
            while text[i] != 0x22:
                i += 2 if text[i] == 0x5C else 1
        elif c in b"{[":
            depth += 1
        elif c in b"}]":
            depth -= 1
            if depth == 0:
                return i + 1
        i += 1


def find_blobs(value, out):
    if isinstance(value, dict):
        if "$blob" in value:
            out.append((value["$blob"], value["bytes"]))
            return
        value = value.values()
    elif not isinstance(value, list):
        return
    for v in value:
        find_blobs(v, out)


NAME = re.compile(r"(\d{20})(?:-(\d{20}))?\.jsonl(\.zst)?")


def segments(directory):
    """The segments that count, as (first, end or None, path)."""
    found = []
    for name in os.listdir(directory):
        m = NAME.fullmatch(name)
        if m and bool(m[2]) == bool(m[3]):
            found.append((int(m[1]), int(m[2]) if m[2] else None, os.path.join(directory, name)))
    found.sort(key=lambda s: (s[0], s[1] is None, -(s[1] or 0)))
    out, end = [], -1
    for s in found:
        if s[0] < end:
            continue
        out.append(s)
        if s[1] is not None:
            end = s[1]
    return out


def text_of(path):
    if path.endswith(".zst"):
        if not shutil.which("zstd"):
            print("reader.py: %s is packed, and the program zstd is not there" % path, file=sys.stderr)
            sys.exit(2)
        done = subprocess.run(["zstd", "-dcq", path], capture_output=True)
        if done.returncode:
            raise Bad("%s: %s" % (path, done.stderr.decode(errors="replace").strip()))
        return done.stdout
    with open(path, "rb") as f:
        return f.read()


def marks(text):
    """The highest synced mark of the good records in text."""
    high = -1
    for line in text.split(b"\n"):
        try:
            high = max(high, Record(line).synced)
        except (Bad, KeyError):
            pass
    return high


class Log:
    """The log of one session, verified as it is read."""

    def __init__(self, root, ident):
        self.root, self.id = root, ident
        self.dir = os.path.join(root, "sessions", ident)
        self.due, self.link = 0, ZERO_LINK
        self.after_lost = False
        self.events, self.lost, self.notes, self.high = [], [], [], -1
        self.checked = {}
        self.part = None  # where a part of what a fork begins with ends: (session, first, end, how it was taken)

    def read(self):
        with open(os.path.join(self.dir, "session.json"), "rb") as f:
            line = f.read()
        if not line.endswith(b"\n"):
            raise Bad("session.json: not one line")
        self.header = sealed(line[:-1], "session.json")
        if self.header["format"] > FORMAT:
            raise Newer("session.json: format %d" % self.header["format"])
        if self.header["id"] != self.id:
            raise Bad("session.json is that of %s" % self.header["id"])
        parent = self.header.get("parent")
        if parent:
            self.inherited(parent)
        found = segments(self.dir)
        aside = os.path.join(self.dir, "damaged")
        if not found and not parent and not self.header.get("imported"):
            raise Bad("no segment")
        if not found and os.path.isdir(aside) and any(NAME.search(n) for n in os.listdir(aside)):
            raise Bad("its first segment stands in damaged/ alone")
        self.own(self.id, self.dir, None)
        return self

    def inherited(self, parent):
        """Reads what a fork begins with, one part after the other."""
        spans = parent["spans"]
        begins, parts = [], []
        try:
            for i, span in enumerate(spans):
                begins.append(self.due)
                parts.append((span["id"], spans[i - 1]["end"] if i else 0, span["end"], self.taken(spans, i)))
                self.part = parts[-2] if i else None
                self.own(span["id"], self.home(span["id"]), span["end"])
                if self.due != span["end"]:
                    raise Bad("session %s ends at %d, before the fork at %d" % (span["id"], self.due, span["end"]))
            self.part = parts[-1] if parts else None
            if self.due != self.header.get("seedLength", 0):
                raise Bad("the spans end at %d" % self.due)
            if self.due and self.link != parent["link"] and not self.marked():
                begins.append(self.due)
                raise Parted("the link at the fork point is %s, not %s" % (self.link, parent["link"]))
            if self.due:
                self.link = parent["link"]
        except Bad as e:
            other = isinstance(e, Parted)
            if other:
                begins.pop()
            self.cut(parts[len(begins) - 1], other)
            raise
        self.part = None

    def taken(self, spans, i):
        """How the i-th part was taken from its session: (link, trail or None, time). The header says that itself, or else that of
        the session that logged the next part."""
        h, end = self.header, spans[i]["end"]
        trail = h["parent"].get("trail")
        ends = [w["link"] for w in trail or [] if w["seq"] == end - 1]
        if i + 1 == len(spans):
            ends = [h["parent"]["link"]]
        if ends:
            return ends[0], trail, h["createdAt"]
        for home in ("sessions", "trash"):
            try:
                with open(os.path.join(self.root, home, spans[i + 1]["id"], "session.json"), "rb") as f:
                    h = sealed(f.read().rstrip(b"\n"), "session.json")
                    return h["parent"]["link"], h["parent"].get("trail"), h["createdAt"]
            except (OSError, Bad, ValueError, KeyError):
                pass
        return None

    def marked(self):
        """Whether the last record is a mark: where a part ends, one behind nothing but what was forked."""
        if not self.after_lost or not self.part or not self.part[3]:
            return self.after_lost
        ident, first, end, (link, trail, made) = self.part
        if trail is None:
            return self.events[-1].time <= made
        return self.parted(ident, first, end, link, trail) == end

    def parted(self, ident, first, end, link, trail):
        """From which seq on the records of a part are not known to be those that were forked, as the trail tells; end if all are."""
        home = self.home(ident)
        there, starts = {}, []  # whole records by seq; where a life may have begun, as (from, to)
        found = segments(home)
        for i, (begin, stop, path) in enumerate(found):
            limit = found[i + 1][0] if i + 1 < len(found) else None
            for line in text_of(path).split(b"\n")[1:]:
                try:
                    r = Record(line)
                except (Bad, KeyError):
                    continue
                if r.seq >= begin and (limit is None or r.seq < limit):
                    there.setdefault(r.seq, r)
        for d in (home, os.path.join(home, "damaged")):
            for name in os.listdir(d) if os.path.isdir(d) else []:
                m = NAME.fullmatch(re.sub(r"^\d{1,19}\.", "", name))
                if not m:
                    continue
                begin, stop, head = int(m[1]), m[2], {}
                try:
                    head = sealed(text_of(os.path.join(d, name)).partition(b"\n")[0], name)
                except (Bad, ValueError):
                    pass
                said = head.get("starts")
                if isinstance(said, list) and all(isinstance(s, (int, list)) for s in said):
                    starts += [tuple(s) if isinstance(s, list) else (s, s) for s in said]
                elif stop:
                    starts.append((begin, int(stop) - 1))
                else:
                    starts += [(begin, begin), (head.get("first", begin),) * 2]
        known, other = first - 1, end
        for seq, want in [(w["seq"], w["link"]) for w in trail if first <= w["seq"] < end - 1] + [(end - 1, link)]:
            r, behind = there.get(seq), there.get(seq + 1)
            if r and (r.link == want or r.type != "session/lost" and behind and behind.link == next_link(want, behind.body)):
                known = seq
            elif r and r.type != "session/lost":
                other = seq
                break
        begun = min((max(a, known + 1) for a, b in starts if b > known and a < end), default=end)
        if begun < end and begun <= other:
            return min((q for q, r in there.items() if begun <= q < end and r.type != "session/lost"), default=end)
        return known + 1 if other < end else end

    def cut(self, part, other):
        """Takes away what the session of a part that is damaged wrote when the fork was there: it is not the fork's."""
        ident, begin, end, taken = part
        until = self.due
        if taken and taken[1] is not None:
            until = min(until, self.parted(ident, begin, end, taken[0], taken[1]))
        elif taken:
            until = min([until] + [r.seq for r in self.events[begin:] if r.time > taken[2]])
        if until < self.due or other:
            self.due = until if until < self.due else begin
            self.events = self.events[: self.due]
            self.lost = [seq for seq in self.lost if seq < self.due]
            self.link = self.events[-1].link if self.events else ZERO_LINK

    def home(self, ident):
        for d in (
            os.path.join(self.dir, "inherited", ident),
            os.path.join(self.root, "sessions", ident),
            os.path.join(self.root, "trash", ident),
        ):
            if os.path.isdir(d) and segments(d):
                return d
        raise Bad("session %s, which holds its beginning, is nowhere" % ident)

    def own(self, ident, directory, clip):
        """Reads the own segments of ident, up to clip."""
        found = [s for s in segments(directory) if clip is None or s[0] < clip]
        for i, (first, end, path) in enumerate(found):
            last = clip is None and i == len(found) - 1
            limit = found[i + 1][0] if i + 1 < len(found) else (clip if clip is not None else None)
            if clip is not None:
                limit = min(limit, clip)
            if last and end is not None:
                raise Bad("%s: a packed segment is the last" % path)
            self.segment(ident, path, first, limit, last, i == 0 and clip is not None and first > 0)

    def segment(self, ident, path, first, limit, last, at_begin):
        text = text_of(path)
        name = os.path.relpath(path, self.root)
        head, lf, rest = text.partition(b"\n")
        if not lf:
            raise Bad("%s: no first line" % name)
        h = sealed(head, name)
        if h["strandline"] > FORMAT:
            raise Newer("%s: format %d" % (name, h["strandline"]))
        if h["session"] != ident or h["first"] != first:
            raise Bad("%s says that it is %d of %s" % (name, h["first"], h["session"]))
        if first != self.due:
            raise Bad("%s begins at %d, %d is due" % (name, first, self.due))
        if h["prev"] != self.link and not (self.marked() if self.part and at_begin else self.after_lost):
            raise (Parted if at_begin else Bad)("%s does not follow the segment before it" % name)
        self.link, self.after_lost = h["prev"], False
        off = len(head) + 1
        while rest and (limit is None or self.due < limit):
            line, lf, tail = rest.partition(b"\n")
            where = "%s at byte %d" % (name, off)
            if not lf:
                if not last:
                    raise Bad("%s: bytes without a line end, and seq %d is missing" % (where, self.due))
                self.notes.append("%s: %d bytes that a dead writer left" % (where, len(line)))
                break
            try:
                r = Record(line)
                if r.seq != self.due:
                    raise Bad("it has the seq %d" % r.seq)
            except Bad as e:
                if not line.strip(b"\0") and not tail:
                    self.notes.append("%s: zeros that a loss of power left" % where)
                    break
                if last and self.due > first and self.due > max(self.high, marks(rest)):
                    self.notes.append("%s, seq %d is due: lost with the power: %s" % (where, self.due, e))
                    break
                raise Bad("%s, seq %d is due: %s" % (where, self.due, e))
            self.record(r, where, tail)
            rest, off = tail, off + len(line) + 1
        if limit is not None and self.due < limit:
            raise Bad("%s ends before %d, the next begins at %d" % (name, self.due, limit))

    def record(self, r, where, tail):
        calc = next_link(self.link, r.body)
        if calc != r.link and self.after_lost:
            calc = r.link  # good records behind a lost one keep their bytes
        elif calc != r.link:
            following = tail.partition(b"\n")[0]
            try:
                n = Record(following)
                alone = n.link == next_link(calc, n.body)
            except Bad:
                alone = False
            if not alone:
                raise Bad("%s: the link does not follow" % where)
            self.notes.append("%s: the link alone is damaged" % where)
        self.link = calc
        self.after_lost = r.type == "session/lost"
        if self.after_lost:
            self.lost.append(r.seq)
        for name, size in r.blobs():
            self.blob(name, size, where)
        if r.synced >= r.seq:
            raise Bad("%s: it says that a later record was synced" % where)
        self.high = max(self.high, r.synced)
        self.events.append(r)
        self.due += 1

    def blob(self, name, size, where):
        if name in self.checked:
            return self.checked[name]
        if not re.fullmatch(r"sha256-[0-9a-f]{64}", name):
            raise Bad("%s: %s is not the name of a blob" % (where, name))
        digest = name[7:]
        path = os.path.join(self.root, "blobs", "sha256", digest[:2], digest)
        try:
            with open(path, "rb") as f:
                text = f.read()
        except FileNotFoundError:
            raise Bad("%s: the blob %s is gone" % (where, name))
        if hashlib.sha256(text).hexdigest() != digest or len(text) != size:
            raise Bad("%s: the bytes of %s are not its own" % (where, name))
        if len(text) <= BLOB_LIMIT or not isinstance(json.loads(text), str):
            raise Bad("%s: %s is not a long string" % (where, name))
        self.checked[name] = text
        return text

    def accepted(self, r):
        """The event as it was accepted: its line without synced and chain, long strings and member names back."""
        text = r.body
        for name, size in r.blobs():
            ref = b'{"$blob":"%s","bytes":%d}' % (name.encode(), size)
            text = text.replace(ref, self.checked[name])
        return re.sub(rb'"\$(\$[^"\\]*blob":)', rb'"\1', text) + b"}"


def verify(root, ident):
    log = Log(root, ident)
    out = {"id": ident, "ok": True}
    try:
        log.read()
    except (Bad, Newer, KeyError, ValueError, OSError) as e:
        out["ok"], out["newer"], out["why"] = False, isinstance(e, Newer), "%s" % e
    out.update(events=log.due, link=log.link, lost=log.lost, synced=log.high, notes=log.notes)
    out["open"] = open_brackets(log.events)
    return out, log


# The brackets of the packages that this reader knows: the type that opens, those that close, and the member that
# pairs them, if there is one.
BRACKETS = {"compact/start": ("compact/end",)}


def open_brackets(events):
    """Opening events without a closing one, with whether they are certainly dead: below the last boundary."""
    boundary = max([r.seq for r in events if r.type == "session/inherited"], default=-1)
    open_ = []
    for r in events:
        if r.type in BRACKETS:
            open_.append(r)
        elif open_ and r.type in BRACKETS[open_[-1].type]:
            open_.pop()
    return [{"seq": r.seq, "type": r.type, "dead": r.seq < boundary} for r in open_]


def export(path):
    """Verifies an export."""
    out = {"export": path, "ok": True}
    link, due, blobs = ZERO_LINK, 0, {}
    try:
        with open(path, "rb") as f:
            first = sealed(f.readline().rstrip(b"\n"), "the first line")
            if first["strandline"] > FORMAT:
                raise Newer("format %d" % first["strandline"])
            for n, line in enumerate(f, 2):
                line = line.rstrip(b"\n")
                if line.startswith(b'{"blob":'):
                    b = json.loads(line)
                    if "base64" in b:
                        content = base64.b64decode(b["base64"])
                    else:
                        content = line[line.index(b',"string":') + 10 : -1]
                    if "sha256-" + hashlib.sha256(content).hexdigest() != b["blob"]:
                        raise Bad("line %d: the blob's bytes do not have its name" % n)
                    blobs[b["blob"]] = len(content)
                elif line.startswith(b'{"seq":'):
                    r = Record(line)
                    if r.seq != due or r.synced != -1:
                        raise Bad("line %d: seq %d, %d is due" % (n, r.seq, due))
                    link = next_link(link, r.body)
                    if link != r.link:
                        raise Bad("line %d: the link does not follow" % n)
                    for name, size in r.blobs():
                        if blobs.get(name) != size:
                            raise Bad("line %d: the blob %s does not stand before it" % (n, name))
                    due += 1
        if due != first["events"]:
            raise Bad("%d events, the first line says %d" % (due, first["events"]))
    except (Bad, Newer, KeyError, ValueError) as e:
        out["ok"], out["why"] = False, "%s" % e
    out.update(events=due, link=link)
    return out


def main(args):
    if len(args) == 2 and args[0] == "--export":
        out = export(args[1])
        print(json.dumps(out))
        return 0 if out["ok"] else 1
    if not args or args[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    root = args[0]
    with open(os.path.join(root, "strandline.json"), "rb") as f:
        if json.loads(f.read())["strandline"] > FORMAT:
            print("reader.py: the store was written by a newer program", file=sys.stderr)
    events = "--events" in args
    ids = [a for a in args[1:2] if a != "--events"] or sorted(
        n for n in os.listdir(os.path.join(root, "sessions")) if not n.startswith("."))
    bad = False
    for ident in ids:
        out, log = verify(root, ident)
        bad = bad or not out["ok"]
        sys.stdout.buffer.write(json.dumps(out).encode() + b"\n")
        for r in log.events if events else []:
            sys.stdout.buffer.write(log.accepted(r) + b"\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
