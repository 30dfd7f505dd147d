"""What does not fit the screen goes through a pager, and nothing else does."""

import shutil
from collections.abc import Iterator

import pytest

from ..support import tmux
from ..support.cli import Cli
from ..support.grids import tiny_grid

pytestmark = pytest.mark.skipif(
    not (tmux.is_there() and shutil.which("less")), reason="needs tmux and less"
)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory, cache: "object") -> Iterator[tmux.Terminal]:
    """A terminal of 40 lines, and a held grid of 60 runs."""
    user = Cli(tmp_path_factory.mktemp("paged"), cache)  # type: ignore[arg-type]
    user.write("grid.yaml", tiny_grid(seeds="60"))
    user.ok("submit", "grid.yaml", "--hold")
    with tmux.a_terminal(user.folder, user.environment()) as terminal:
        yield terminal


def test_more_runs_than_lines_are_shown_from_their_first_on(terminal: tmux.Terminal) -> None:
    terminal.enter("vtjobs runs --each")
    first = terminal.until("\n:")
    assert first.startswith("RUN ")
    terminal.press("q")
    assert terminal.result().endswith("\n$")


def test_what_fits_is_left_on_the_screen(terminal: tmux.Terminal) -> None:
    terminal.enter("vtjobs runs --each --limit 5")
    assert len(terminal.result().splitlines()) == 8


def test_without_a_pager_everything_is_printed(terminal: tmux.Terminal) -> None:
    terminal.enter("PAGER=cat vtjobs runs --each")
    assert "RUN " not in terminal.result()


def test_what_goes_into_a_file_is_not_paged(terminal: tmux.Terminal) -> None:
    terminal.enter("vtjobs runs --each | wc -l")
    assert terminal.result().splitlines()[-2].strip() == "61"
