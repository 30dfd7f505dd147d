"""The pages' figures, with 100,000 runs in the ledger.

`python benchmarks/pages.py` prints a table for SQLite and, where installed, PostgreSQL: how long
the first paint of a page takes and what is sent, and what twenty open pages cost.

The machine's noise is in all of them: a figure counts beside the others of its run.
"""

import argparse
import http.client
import logging
import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.ledger import Work, databases
from tests.support.ledgers import paper_grid
from vtjobs.jobs.config.config import load_config
from vtjobs.jobs.run.selector import Selection
from vtjobs.orchestrator.loop.context import Context
from vtjobs.web.addresses import Address, Kind
from vtjobs.web.render import Frame
from vtjobs.web.server.pages import Pages
from vtjobs.web.server.serve import Place, open_server

CLIENTS = 20
EVERY_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Paint:
    """The first paint of a page."""

    name: str
    seconds: float
    packed: int
    """Bytes that are sent."""


def context_of(work: Work) -> Context:
    world = work.world
    return Context(
        load_config({}), world.workspace, world.ledger, workspace_id=world.workspace.check()["id"]
    )


def paints(work: Work) -> list[Paint]:
    """Paint each kind of page once, as the first who asks for it sees."""
    pages = Pages(context_of(work), Selection(everything=True), Frame(workspace="", as_of=""))
    wide = paper_grid("wide", cells=1_000, seeds=5, first_cell=10**6)
    work.world.ledger.add_grid(wide)
    small = paper_grid("grid17", cells=200, seeds=5, first_cell=17 * 200)
    wanted = [
        ("overview", Address(Kind.OVERVIEW)),
        ("running and waiting", Address(Kind.ACTIVITY)),
        ("failures", Address(Kind.FAILURES)),
        ("usage", Address(Kind.USAGE)),
        ("a grid of 1,000 cells", Address(Kind.GRID, wide.grid_id)),
        ("a grid of 200 cells", Address(Kind.GRID, small.grid_id)),
        ("a cell", Address(Kind.CELL, small.cells[0].cell_id)),
    ]
    # The server looks before it listens; templates are read once.
    begin = time.perf_counter()
    pages.look()
    pages.page(wanted[-1][1])
    pages.forget()
    looked = Paint(name="(before: a look)", seconds=time.perf_counter() - begin, packed=0)
    found = [looked]
    for name, address in wanted:
        begin = time.perf_counter()
        made = pages.page(address)
        assert made is not None, name
        found.append(Paint(name=name, seconds=time.perf_counter() - begin, packed=len(made.packed)))
    return found


def watched(work: Work, seconds: float) -> tuple[float, float, int]:
    """Keep twenty pages open; return the share of a core, MiB that were gained, and the looks.

    What the twenty readers themselves cost is in it.
    """
    place = Place(host="127.0.0.1", port=0, path=None, root="", names=())
    opened = open_server(
        context_of(work), Selection(everything=True), place, every_s=EVERY_S, acts=False
    )
    serving = threading.Thread(target=opened.run)
    serving.start()
    token = opened.told.url.partition("token=")[2]
    port = opened.listener.getsockname()[1]
    looks = [0] * CLIENTS
    until = time.monotonic() + seconds

    def follow(number: int) -> None:
        headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "gzip"}
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.request("GET", "/events", headers=headers)
        events = connection.getresponse()
        while time.monotonic() < until and (line := events.readline()):
            if not line.startswith(b"data: "):
                continue
            looks[number] += 1
            page = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            page.request("GET", "/", headers=headers)
            page.getresponse().read()
            page.close()
        connection.close()

    readers = [threading.Thread(target=follow, args=(number,)) for number in range(CLIENTS)]
    for reader in readers:
        reader.start()
    time.sleep(min(seconds / 3, 20))
    before, at, busy = resident(), time.monotonic(), time.process_time()
    for reader in readers:
        reader.join()
    share = (time.process_time() - busy) / (time.monotonic() - at)
    gained = (resident() - before) / 2**20
    opened.server.should_exit = True
    serving.join()
    return share, gained, max(looks)


def resident() -> int:
    """Return the bytes of this process's memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long pages are open")
    chosen = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder, databases(Path(folder)) as found:
        for name, work in found.items():
            if name == "pgbouncer":
                continue
            print(f"{name}, {os.cpu_count()} cores")
            for paint in paints(work):
                size = f"{paint.packed / 1000:6.1f} kB"
                print(f"  first paint, {paint.name:24} {paint.seconds * 1e3:7.0f} ms {size}")
            share, gained, looks = watched(work, chosen.seconds)
            print(
                f"  {CLIENTS} open pages for {chosen.seconds:.0f} s: {share:.2f} cores,"
                f" {gained:+.1f} MiB, {looks} looks"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
