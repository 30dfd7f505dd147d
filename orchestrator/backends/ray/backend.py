"""Ray behind the one protocol of all schedulers.

One Ray job per allocation, named by its token; its entrypoint is the agent. Ray ends a job that has
waited for 15 minutes and forgets everything with its head, so little waits there: the runs of a
grid are spread over as many agents as can work at a time, and what is beyond that waits with us.
"""

import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ....jobs.atomic_files import read_json
from ....jobs.config.config import Config
from ....jobs.config.site import configured
from ....jobs.errors import BadInput, Problem, SchedulerUnreachable
from ....jobs.workspace.allocation import Allocation, Shape
from ....jobs.workspace.grid_settings import GridSettings
from ..base import CANCELLING, JobView, Key, Place, Room, Submission, Waiting
from . import cluster
from .api import Api, Refused
from .observe import forgotten, given_up, look
from .submission import JOBS, kind_of, line_of, python, submit, successor

MOST_TASKS = 256
# Places that are with Ray for each one that can run: when one ends, another one is there.
WAVES = 2
# Where nodes are added for what waits, something has to wait.
MOST_WAITING = 32
PREFIX = "vtj-"


class RayBackend:
    """The clusters that a workspace's runs go to, most often one."""

    name = "ray"
    chains = False
    hands_on = True
    shown_words = MappingProxyType({"STOPPED": CANCELLING})
    explains_by_word = False
    goes_on = (
        "The runs go on without this terminal: jobs that end retry and hand on. A job that dies"
        " without a word needs a pass: vtjobs supervise, or from cron: vtjobs supervise --install"
    )
    queue_settings = ("address",)
    when_full = "ray's limit on submitted jobs is reached; the run is submitted as other jobs end"
    one_machine = False
    nodes_change = True

    def __init__(
        self,
        config: Config,
        *,
        poll_s: float = 30.0,
        look_s: float = 2.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.workspace = config.workspace
        self.config = config
        self.clock = clock
        self.poll_s = poll_s
        self.look_s = look_s
        self.deadline_s = 15.0
        self._apis: dict[str, Api] = {}
        self._sites: dict[str, dict[str, Any]] = {}

    # Which cluster --------------------------------------------------------------------------------

    def cluster(self, site: Mapping[str, Any]) -> str:
        return self._address(site, required=False)

    def by_cluster(self, places: Sequence[Place]) -> dict[str, list[Place]]:
        found: dict[str, list[Place]] = defaultdict(list)
        for place in places:
            found[self._site_of(place.token).get("address", "")].append(place)
        return dict(found)

    # Placing --------------------------------------------------------------------------------------

    def room(self, shape: Shape, settings: GridSettings) -> Room:
        site = {**settings.site, "address": self._address(settings.site)}
        api = self._api(site)
        api.require_safe(deadline_s=self.deadline_s)
        present = cluster.nodes(api, deadline_s=self.deadline_s)
        pack = settings.resources.pack
        lanes = pack if isinstance(pack, int) else shape.per_gpu
        need = cluster.need_of(shape, lanes, site, present)
        if not site.get("autoscale"):
            cluster.check(need, shape, present)
        slots = cluster.places_at_a_time(need, shape.nodes, present)
        kind = kind_of(need, shape.nodes, self.workspace)
        live = sum(
            job["status"] in ("PENDING", "RUNNING")
            and (job.get("metadata") or {}).get("vtjobs_kind") == kind
            for job in self._jobs(api, self.deadline_s)
        )
        most = max(WAVES * slots, MOST_WAITING if site.get("autoscale") else 0)
        resolved = {
            "address": site["address"],
            # Where the grid itself names its cluster, it has no other one.
            "is_named": bool(settings.site.get("address")),
            "insecure": bool(site.get("insecure")),
            "autoscale": bool(site.get("autoscale")),
            "python": site.get("python"),
            "setup": site.get("setup") or [],
            "environment": site.get("environment") or [],
            "cpus": need.cpus,
            "gpus": need.gpus,
            "custom": need.as_resources(),
        }
        alone = pack == "none" or shape.nodes > 1 or site.get("autoscale")
        return Room(
            lanes=lanes,
            tasks=lanes if alone else max(lanes, MOST_TASKS),
            at_once=None if site.get("autoscale") else slots,
            spread=None if alone else slots,
            free={f"{site['address']} {kind}": max(0, most - live)},
            site=resolved,
        )

    def rehearse(self, shape: Shape, room: Room) -> None:
        from .workspace_check import require_sight

        require_sight(self._api(room.site), room.site, self.workspace)

    def default_gpus(self, settings: GridSettings) -> int:
        """Return the most GPUs of one node that the recipe's virtual ranks can be spread over."""
        if settings.site.get("autoscale"):
            message = "is required on a cluster that adds nodes: those with GPUs may not exist yet"
            fix = "Give the number of GPUs, or 0"
            raise BadInput(Problem(key="gpus_per_node", message=message, fix=fix))
        api = self._api({**settings.site, "address": self._address(settings.site)})
        present = max(
            (node.gpus for node in cluster.nodes(api, deadline_s=self.deadline_s)), default=0
        )
        ranks = settings.virtual_ranks
        return max((count for count in range(1, present + 1) if ranks % count == 0), default=0)

    # Submitting -----------------------------------------------------------------------------------

    def default_walltime(self, settings: GridSettings) -> int | None:
        return None

    def argv(self, allocation: Allocation) -> tuple[str, ...]:
        return successor(allocation, self.workspace)

    def submit(self, allocation: Allocation) -> Submission:
        return submit(self._api(allocation.site), allocation, self.workspace)

    # Looking and ending ---------------------------------------------------------------------------

    def observe(self, places: Sequence[Place]) -> dict[Key, JobView]:
        found: dict[Key, JobView] = {}
        for address, mine in self.by_cluster(places).items():
            views = self._views(mine) if address else {one.token: forgotten(one) for one in mine}
            found |= {place.key: views[place.token] for place in mine}
        return found

    def _views(self, places: list[Place]) -> dict[str, JobView]:
        """Return what one cluster says of places, by their tokens."""
        site = self._site_of(places[0].token)
        try:
            return look(places, self._jobs(self._api(site), self.look_s))
        except SchedulerUnreachable:
            if not self._is_given_up(site):
                raise
            return {place.token: given_up(place) for place in places}

    def _is_given_up(self, site: Mapping[str, Any]) -> bool:
        """Whether another cluster is in use by now.

        For the runs of the one before the lease decides.
        """
        return not site["is_named"] and self._address({}, required=False) not in (
            "",
            site["address"],
        )

    def cancel(self, places: Sequence[Place]) -> None:
        submitted = [place for place in places if place.job_id is not None]
        for address, mine in self.by_cluster(submitted).items():
            if not address:
                # Without its file nothing was submitted.
                continue
            api = self._api(self._site_of(mine[0].token))
            tokens = {place.token for place in mine}
            for token in sorted(tokens):
                try:
                    api.ask(f"{JOBS}{token}/stop", post=True, deadline_s=self.deadline_s)
                except Refused as error:
                    if error.status != 404:
                        raise
                    # It is not there: there is nothing to stop.
            waiting = [
                job["submission_id"]
                for job in self._jobs(api, self.deadline_s)
                if job["status"] == "PENDING"
            ]
            self._withdraw(api, self._site_of(mine[0].token), sorted(tokens.intersection(waiting)))

    def _withdraw(self, api: Api, site: Mapping[str, Any], tokens: list[str]) -> None:
        """Take jobs that wait out of Ray's queue.

        Stopping one waits for it to start, and may add a node for it.
        """
        if not tokens:
            return
        command = [*python(site), "-m", "vtjobs.workers.ray_jobs.withdraw", *tokens]
        # The same wish within a minute is the same job.
        wish = hashlib.sha256(f"{int(self.clock() // 60)} {tokens}".encode()).hexdigest()[:16]
        body = {"submission_id": f"vtw-{wish}", "entrypoint": line_of(site, command)}
        try:
            api.ask(JOBS, body=body, deadline_s=self.deadline_s)
        except Refused as error:
            if not error.is_known:
                raise

    def nudge(self, places: Sequence[Place]) -> None:
        # There is no way to signal an agent; it looks by itself every few seconds.
        return

    def avoid(self, places: Sequence[Place], nodes: Sequence[str]) -> None:
        # What Ray has taken on keeps the placement that it was submitted with.
        return

    def explain(self, word: str, *, job: str = "", token: str = "") -> Waiting | None:
        from .pending import explain

        data = read_json(self.workspace.allocation(token)) if word and token else None
        return (
            explain(word, data, self._api(data["site"]), deadline_s=self.look_s) if data else None
        )

    def wake(self) -> None:
        return

    def is_asleep(self) -> bool:
        return False

    # Reaching it ----------------------------------------------------------------------------------

    def _address(self, site: Mapping[str, Any], *, required: bool = True) -> str:
        found = site.get("address")
        try:
            found = found or configured(self.config, "ray")["address"]
        except BadInput:
            if required:
                raise
        if found is None and required:
            message = "no Ray cluster address is set"
            fix = (
                "Set RAY_ADDRESS, or ray.address in vtjobs.yaml, to its dashboard, such as"
                " http://127.0.0.1:8265"
            )
            raise BadInput(Problem(key="address", message=message, fix=fix))
        return found or ""

    def _api(self, site: Mapping[str, Any]) -> Api:
        address, insecure = str(site["address"]), bool(site.get("insecure"))
        known = self._apis.get(address)
        if known is None or known.insecure != insecure:
            known = self._apis[address] = Api(address, insecure=insecure)
        return known

    def _site_of(self, token: str) -> dict[str, Any]:
        """Return the site's settings that an allocation was submitted with, {} where it is not
        known.
        """
        if token not in self._sites:
            data = read_json(self.workspace.allocation(token)) if token.startswith(PREFIX) else None
            if data is None:
                return {}
            self._sites[token] = dict(data["site"])
        return self._sites[token]

    def _jobs(self, api: Api, deadline_s: float) -> list[dict[str, Any]]:
        """Return the jobs that are ours."""
        jobs = api.ask(JOBS, deadline_s=deadline_s)
        if not isinstance(jobs, list):
            raise SchedulerUnreachable(f"Ray at {api.address}: unexpected answer about jobs")
        return [job for job in jobs if str(job.get("submission_id") or "").startswith(PREFIX)]


def make(config: Config, *, clock: Callable[[], float] = time.time) -> RayBackend:
    """Make the backend that a configuration names."""
    return RayBackend(
        config,
        poll_s=float(config.get("poll_s")),
        look_s=float(config.get("look_s")),
        clock=clock,
    )
