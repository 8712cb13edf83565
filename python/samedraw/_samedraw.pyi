"""The compiled half: devices, tables, samplers."""

from os import PathLike
from typing import Any, List, Literal, Optional, Sequence, Tuple, Union

Array = Any
"""A tensor of torch, or an object with ``__dlpack__``, on the sampler's device; read or written in place."""
Stream = Any
"""An address, or a stream of torch or cupy. None: torch's current stream where a torch with CUDA is imported, else
cupy's, else the default stream."""
FilterOrder = Literal["joint", "top_k_first"]

__version__: str

def devices() -> List[Tuple[str, bool, str]]:
    """Every platform: its name, whether it can be used, and what is there or why nothing is."""

def param_row(
    *,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = -1,
    min_p: float = 0.0,
    seed: Optional[int] = None,
    filter_order: FilterOrder = "joint",
) -> List[int]:
    """Sampling parameters as the eight integers of a parameter table's row.

    Raises ValueError for a value out of range, by its name.
    """

def status_names(bits: int) -> List[str]:
    """The names of a row status's bits."""

def address(array: Array) -> int:
    """The address at which an array is read: that of the array itself, as nothing is copied."""

class Device:
    """A device, by its name: "cpu", "cuda", "cuda:1", "ascend".

    Raises RuntimeError where the platform cannot be used, with the reason and what was looked for.
    """

    def __init__(self, name: str = "cpu") -> None: ...
    @property
    def platform(self) -> str: ...
    @property
    def ordinal(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def exact(self) -> bool:
        """Whether its arithmetic rounds as the semantics ask."""
    @property
    def max_force_topk(self) -> Optional[int]:
        """Largest force_topk, None = no limit."""
    def synchronize(self, stream: Stream = None) -> None:
        """Waits for a stream."""

class ParamTable:
    """Parameters of requests in device memory, one slot each; shared by samplers and threads."""

    def __init__(self, device: Device, slots: int) -> None: ...
    @property
    def slots(self) -> int: ...
    def set(
        self,
        slot: int,
        *,
        stream: Stream = None,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = -1,
        min_p: float = 0.0,
        seed: Optional[int] = None,
        filter_order: FilterOrder = "joint",
    ) -> int:
        """Writes a slot, in order with the work on the stream, and returns the seed in use.

        Raises ValueError for a value out of range; RuntimeError while 64 writes before it are in flight.
        """
    def clear(self, slot: int, *, stream: Stream = None) -> None:
        """Empties a slot: a row that still names it gets token -1 and status bad_index."""

class Verify:
    """Verification of drafts, for ``Sampler.step(verify=...)``; the step's rows are grouped by request.

    Parameters
    ----------
    mode : "rejection", "one_hot" or "chain"
    positions : "strided" or "sequential"
    first_rows : int32 [requests + 1], the first row of each request, then one past the last
    row_to_request : int32 or int64 [rows], -1 = padding
    draft_ids : int32 or int64 [rows], the token each row verifies; a request's last entry is not read
    accepted : int32 [requests], written
    draft_logprobs : float32 [pool, columns], for rejection
    draft_columns : int32 [pool, columns], their ids; column = id without
    draft_rows : int32 or int64 [rows], row of the pool; the same number without
    accept_index : int32 [requests, longest request], written
    row_accepts : int32 [rows], written: whether the row accepts its draft taken by itself
    """

    def __init__(
        self,
        mode: Literal["rejection", "one_hot", "chain"],
        *,
        positions: Literal["strided", "sequential"] = "strided",
        first_rows: Array,
        row_to_request: Array,
        draft_ids: Array,
        accepted: Array,
        draft_logprobs: Optional[Array] = None,
        draft_columns: Optional[Array] = None,
        draft_rows: Optional[Array] = None,
        accept_index: Optional[Array] = None,
        row_accepts: Optional[Array] = None,
    ) -> None: ...

class Sampler:
    """Runs steps of up to ``rows`` rows of ``vocab`` tokens: one workspace, one step in flight.

    Parameters
    ----------
    slots : int
        Slots of a parameter table of its own; as many as rows unless given.
    table : ParamTable
        A table to share, in place of ``slots``.
    force_topk : int
        Largest force_topk of a step.
    verify, remap : bool
        Whether steps verify drafts; whether drafts have columns of their own.
    workspace : array
        Memory to use, ``[bytes]``, aligned to 256; held while the sampler lives. See ``workspace_bytes``.
    """

    def __init__(
        self,
        device: Device,
        rows: int,
        vocab: int,
        *,
        slots: Optional[int] = None,
        table: Optional[ParamTable] = None,
        force_topk: int = 0,
        verify: bool = False,
        remap: bool = False,
        workspace: Optional[Array] = None,
    ) -> None: ...
    @staticmethod
    def workspace_bytes(
        device: Device, rows: int, vocab: int, *, force_topk: int = 0, verify: bool = False, remap: bool = False
    ) -> int: ...
    @property
    def device(self) -> Device: ...
    @property
    def table(self) -> ParamTable: ...
    def set_params(
        self,
        slot: int,
        *,
        stream: Stream = None,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = -1,
        min_p: float = 0.0,
        seed: Optional[int] = None,
        filter_order: FilterOrder = "joint",
    ) -> int:
        """As ``ParamTable.set`` of the sampler's table."""
    def clear(self, slot: int, *, stream: Stream = None) -> None:
        """As ``ParamTable.clear``."""
    def step(
        self,
        logits: Array,
        *,
        positions: Optional[Array] = None,
        slots: Optional[Array] = None,
        params: Optional[Array] = None,
        gather: Optional[Array] = None,
        mask: Optional[Array] = None,
        mask_index: Optional[Array] = None,
        golden: Optional[Array] = None,
        position_offsets: Optional[Array] = None,
        draft_step: Optional[int] = None,
        force_topk: int = 0,
        filters: Optional[Sequence[Literal["top_k", "top_p", "min_p", "all_greedy"]]] = None,
        verify: Optional[Verify] = None,
        rows: Optional[int] = None,
        vocab: Optional[int] = None,
        stream: Stream = None,
        tokens: Optional[Array] = None,
        logprobs: Optional[Array] = None,
        ranks: Optional[Array] = None,
        kept_counts: Optional[Array] = None,
        status: Optional[Array] = None,
        raw_logprobs: Optional[Array] = None,
        sum_smaller_probs: Optional[Array] = None,
        top_ids: Optional[Array] = None,
        top_logprobs: Optional[Array] = None,
        top_counts: Optional[Array] = None,
        dense: Optional[Array] = None,
        dense_ids: Optional[Array] = None,
        kept_ids: Optional[Array] = None,
        column_values: Optional[Array] = None,
        column_ids: Optional[Array] = None,
    ) -> None:
        """Enqueues one step; nothing is copied, allocated or waited for, and Python may run meanwhile.

        Parameters
        ----------
        logits : float32, float16 or bfloat16 [rows, vocab]; any row stride of at least vocab
        positions : int64 [rows], or [requests] when verifying; without, golden tokens are scored
        slots : int32 or int64 [rows], -1 = padding; the same number without
        params : int64 [slots, 8], rows of ``param_row`` in place of the table
        gather : int32 or int64 [rows], row of the logits
        mask : int32 [mask rows, at least ceil(vocab / 32)]; mask_index : int32 or int64 [rows], -1 = none
        golden : int32 or int64 [rows], the token a row must output, -1 = none
        position_offsets : int32, added to the positions; draft_step : the draft's number, for a draft model
        filters : what the batch uses; a row that uses another gets token -1
        rows : rows of the step, where it is not that of slots, gather or logits
        vocab : tokens, where the logits have columns of padding

        Outputs, each written in place where given: tokens int32 or int64 [rows]; logprobs, raw_logprobs,
        sum_smaller_probs float32 [rows]; ranks, kept_counts, status int32 [rows]; top_ids int32 and top_logprobs
        float32 [rows, k], top_counts int32 [rows]; dense float32 and dense_ids int32 [rows, N]; kept_ids int32
        [rows, k]; column_values float32 and column_ids int32 [rows, N].

        Raises
        ------
        ValueError
            For an array on another device, of another type, shape or stride, and for a number out of range: by name.
        TypeError
            For an argument that a step does not have, and for an object that is no array.
        """
    def capture(
        self,
        logits: Array,
        *,
        variant: Literal[
            "default", "no_filter", "top_k", "top_p", "top_k_top_p", "verify", "verify_no_filter"
        ] = "default",
        **arguments: Any,
    ) -> "CapturedStep":
        """Captures a step on a stream that is not the default one, with the arguments of ``step``; runs nothing."""
    def record(self, path: Union[str, "PathLike[str]"], max_bytes: int, logits: Array, **arguments: Any) -> None:
        """Writes the step just taken, with the arguments it was taken with, to a step file of at most ``max_bytes``.

        Waits for the stream. ``samedraw run PATH --compare cpu`` replays it.
        """
    def prompt_logprobs(
        self, targets: Array, slots: Array, logits: Array, out: Array, *, stream: Stream = None
    ) -> None:
        """Scores the prompt's tokens: ``out[i]`` becomes the logprob of ``targets[i]`` under ``logits[i]``.

        targets and slots are int32 or int64 [rows], logits [rows, vocab], out float32 [rows]. Any number of rows: it
        goes in pieces of the sampler's row limit.
        """

class CapturedStep:
    """A captured step; it keeps its arrays, the workspace and the table alive."""

    def replay(self, stream: Stream = None) -> None:
        """Enqueues one replay, on the stream it was captured on unless another is given. Inputs are read anew."""
