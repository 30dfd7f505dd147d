"""What an agent orders of its ranks."""

from ..jobs.documents import Document
from ..jobs.run.settings import OwnFunction
from .environment import Origin


class Order(Document, frozen=True, kw_only=True):
    """What the ranks of one attempt have in common, on all its nodes."""

    run_id: str
    attempt: int
    spec: str
    """The file with the run's spec."""
    folder: str
    """The attempt's folder for checkpoints."""
    nodes: int
    world_size: int
    """Ranks of all nodes."""
    device: str
    """cpu or cuda."""
    threads: int
    """CPU threads of a rank."""
    per_gpu: int = 1
    """Runs that share its GPU."""
    data_root: str
    paths: dict[str, str]
    """Fingerprint of a folder of images -> where it lies."""
    resume: str | None
    """A verified checkpoint of this run to go on from."""
    init: str | None
    """The final weights of the parent stage."""
    parent: str | None
    """The file with the spec of the parent stage's run."""
    checkpoint_every_s: float
    evaluate_every: int
    """In epochs."""
    record_depth: bool = False
    """Whether evaluations record what each block adds to its input."""
    sets: tuple[str, ...]
    """Scored beside test and, where it is held out, val."""
    metrics: tuple[OwnFunction, ...] = ()
    """Of the lab, beside those of vtjobs."""
    micro_split: int
    decoded: str = ""
    """Where decoded sets of images are kept; empty: nowhere."""
    decoded_bytes: int = 0
    """What these may take."""
    pipeline: str
    """tensor or timm: who makes the batches."""
    share_bytes: int = 0
    """Of the images that a loader worker hands over at a time."""
    origin: Origin
    collective_s: float
    """How long ranks wait for each other in a collective operation."""
    reuse: str = ""
    """A process that has done a run may do another one with the same text; empty: it ends with its
    run.
    """
    port: int = 0
    """Where rank 0's store listens, for the ranks of its node; 0 where there is one rank only."""
    gate: int = 0
    """The port at which the ranks of other nodes are let through to it."""
    hosts: tuple[str, ...] = ()
    """The addresses of rank 0's node, best first."""


class RankOrder(Document, frozen=True, kw_only=True):
    """One rank's order."""

    order: Order
    rank: int
    """Among the ranks of all nodes, from 0."""
    local_rank: int
    """Among those of this node, from 0."""
    gpus: tuple[str, ...]
    """The GPUs of this node that are this run's, as CUDA_VISIBLE_DEVICES names them."""
    cores: tuple[int, ...] = ()
    """Of this node, on which the rank and its loader's workers run; empty: any."""
    workers: int
    """Loader workers of this rank."""
    decoders: int = 0
    """Processes that decode a whole set before training."""
    note: str = ""
    """Why there are fewer of both than its cores would allow."""
    ticket: str = ""
    """By which template and process name the rank to its agent."""


class PublishedOrder(Order, frozen=True, kw_only=True):
    """The content of `order.json`: what node 0 lets the other nodes of an attempt know."""

    token: str
    """The allocation's. An order of another one is not followed."""
    lane: int
