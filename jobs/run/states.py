"""The states of attempts and runs, how an attempt may move between them, and how it can fail."""

from enum import IntEnum, StrEnum


class AttemptState(StrEnum):
    """Where one try at a run stands."""

    SUBMITTING = "submitting"  # written before the scheduler is called; the reply is not known yet
    QUEUED = "queued"
    STARTING = "starting"  # the agent has claimed the run
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"
    PREEMPTED = "preempted"
    NODE_FAIL = "node_fail"
    CANCELLED = "cancelled"
    LOST = "lost"  # gone without a word
    SUPERSEDED = "superseded"  # a higher attempt owns the run; also: skipped because of a marker

    @property
    def is_terminal(self) -> bool:
        return self not in LIVE

    @property
    def is_infrastructure(self) -> bool:
        """Whether the end says nothing about the run itself, so that trying again costs no try."""
        return self in (self.TIMEOUT, self.PREEMPTED, self.NODE_FAIL, self.LOST, self.SUPERSEDED)


LIVE = frozenset(
    (AttemptState.SUBMITTING, AttemptState.QUEUED, AttemptState.STARTING, AttemptState.RUNNING)
)
TERMINAL = frozenset(AttemptState) - LIVE

# Ends are final. Live states only move forward; a journal may be read late, so states may be
# skipped.
TRANSITIONS: dict[AttemptState, frozenset[AttemptState]] = {
    AttemptState.SUBMITTING: (
        frozenset((AttemptState.QUEUED, AttemptState.STARTING, AttemptState.RUNNING)) | TERMINAL
    ),
    AttemptState.QUEUED: frozenset((AttemptState.STARTING, AttemptState.RUNNING)) | TERMINAL,
    AttemptState.STARTING: frozenset((AttemptState.RUNNING,)) | TERMINAL,
    AttemptState.RUNNING: TERMINAL,
    **{state: frozenset() for state in TERMINAL},
}


class RunState(StrEnum):
    """Where a run stands: derived from its attempts, its parent and what the user asked for."""

    PENDING = "pending"  # tries left, nothing live
    BLOCKED = "blocked"  # its parent stage failed
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    DIVERGED = "diverged"  # an outcome: kept and counted, not retried
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        return self in (self.COMPLETED, self.DIVERGED, self.FAILED, self.CANCELLED)

    @property
    def is_settled(self) -> bool:
        """Whether nothing will happen to the run unless the user or its parent does something."""
        return self.is_terminal or self is RunState.BLOCKED


class ExitCode(IntEnum):
    """Exit codes of ranks and agents; all below 128, since accounting drops the eighth bit."""

    COMPLETED = 0
    USER_ERROR = 70
    SETUP_ERROR = 71
    DATA = 72
    OUT_OF_MEMORY = 73
    DIVERGED = 74
    STOPPED = 75
    STORAGE = 76
    COMMUNICATION = 77
    HARDWARE = 78
    SUPERSEDED = 79
    DATA_MISSING = 80


class FailureClass(StrEnum):
    """Why an attempt did not complete; the word that the retry policy knows."""

    USER_ERROR = "user_error"
    SETUP_ERROR = "setup_error"
    DATA = "data"  # what is there cannot be used
    DATA_MISSING = "data_missing"  # it may be back later
    OUT_OF_MEMORY = "out_of_memory"
    DIVERGED = "diverged"
    STOPPED = "stopped"
    STORAGE = "storage"
    COMMUNICATION = "communication"
    HARDWARE = "hardware"
    SUPERSEDED = "superseded"
    CRASH = "crash"  # a rank died of a signal
    HANG = "hang"  # no progress for too long
    NO_CHECKPOINT = "no_checkpoint"  # there were checkpoints, and none can be read
    NO_RESULT = "no_result"  # the scheduler says completed, and there is no end record
    AGENT_DIED = "agent_died"
    NOT_SUBMITTED = "not_submitted"  # the submission never reached the scheduler
    REFUSED = "refused"  # the scheduler said no
    SKIPPED = "skipped"  # a marker (hold) or a missing parent kept it from starting
    CANCELLED = "cancelled"
    WALLTIME = "walltime"


# The signature of an attempt whose end no agent wrote down.
WITHOUT_RECORD: dict[FailureClass, str] = {
    FailureClass.AGENT_DIED: "the agent died without an end record",
    FailureClass.NOT_SUBMITTED: "the allocation ended before the run started",
    FailureClass.CANCELLED: "cancelled",
    FailureClass.SUPERSEDED: "handed on before the run started",
}

CLASS_OF_EXIT: dict[int, FailureClass] = {
    ExitCode.USER_ERROR: FailureClass.USER_ERROR,
    ExitCode.SETUP_ERROR: FailureClass.SETUP_ERROR,
    ExitCode.DATA: FailureClass.DATA,
    ExitCode.OUT_OF_MEMORY: FailureClass.OUT_OF_MEMORY,
    ExitCode.DIVERGED: FailureClass.DIVERGED,
    ExitCode.STOPPED: FailureClass.STOPPED,
    ExitCode.STORAGE: FailureClass.STORAGE,
    ExitCode.COMMUNICATION: FailureClass.COMMUNICATION,
    ExitCode.HARDWARE: FailureClass.HARDWARE,
    ExitCode.SUPERSEDED: FailureClass.SUPERSEDED,
    ExitCode.DATA_MISSING: FailureClass.DATA_MISSING,
}

EXIT_OF_CLASS: dict[FailureClass, ExitCode] = {
    **{failure: ExitCode(code) for code, failure in CLASS_OF_EXIT.items()},
    FailureClass.CRASH: ExitCode.HARDWARE,
    FailureClass.HANG: ExitCode.COMMUNICATION,
    FailureClass.NO_CHECKPOINT: ExitCode.STORAGE,
    FailureClass.SKIPPED: ExitCode.SUPERSEDED,
    FailureClass.CANCELLED: ExitCode.STOPPED,
    FailureClass.WALLTIME: ExitCode.STOPPED,
}
