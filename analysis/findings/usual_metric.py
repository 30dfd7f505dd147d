"""The metric that counts where nobody has named one."""

from ...db import queries
from ...db.engine import reading
from ...db.ledger import Ledger
from ...jobs.run.metrics import MAIN
from ...jobs.run.selector import Selection


def usual_metric(ledger: Ledger, selection: Selection) -> str:
    """Return top1, or miou of runs on masks, ap_box of runs on objects.

    Args:
        ledger: where the scores are.
        selection: of runs.

    Raises:
        NothingMatched, BadInput: the selection means nothing.
    """
    with reading(ledger.engine) as connection:
        return MAIN[queries.task_of(connection, selection)]
