"""How much memory models need, and how much there is."""

import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from lcspec.errors import ModelError
from lcspec.limits import MAX_WIDTH
from lcspec.llama.cgroups import control_groups, read_text
from lcspec.llama.gguf_header import Header
from lcspec.llama.native_context import PREFILL_BATCH
from lcspec.llama.threads import usable_physical_cores

_HALF = 2  # bytes of a key, a value, or an element of the attention mask
_SINGLE = 4  # bytes of a logit
_CELLS = 256  # a cache has a multiple of this many cells
_ARENAS = 192 << 20  # addresses that the C library and libraries loaded later take, hardly any of it memory
_STACK = 8 << 20  # addresses of a thread's stack, where no limit says so
_OTHER_THREADS = 4  # that do not evaluate: of the caller, of streams, of chat templates


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that a loaded model takes."""

    weights: int
    cache: int
    """Keys and values of a full context."""
    buffers: int
    """What an evaluation computes with: logits and the attention mask are the most of it."""

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.cache + self.buffers


def memory_need(header: Header, n_ctx: int) -> MemoryNeed:
    """Estimate what a model with a context of `n_ctx` tokens takes.

    llama.cpp's own figures are met within a few percent; weights that it lays out anew are counted once,
    since the file's copy of them can leave memory.
    """
    cells = -(-n_ctx // _CELLS) * _CELLS
    return MemoryNeed(
        weights=header.size,
        cache=cells * _cell_size(header),
        buffers=MAX_WIDTH * header.n_vocab * _SINGLE + PREFILL_BATCH * cells * _HALF,
    )


def _cell_size(header: Header) -> int:
    """Bytes of the keys and values of one token in all layers."""
    n_layers = _number(header, "block_count")
    n_heads = _number(header, "attention.head_count")
    head_size = _number(header, "embedding_length") // n_heads if n_heads else 0
    key = _number(header, "attention.key_length", head_size)
    value = _number(header, "attention.value_length", head_size)
    per_layer = header.of_architecture("attention.head_count_kv")
    if isinstance(per_layer, list):
        n_kv_heads = int(sum(per_layer))
    else:
        n_kv_heads = n_layers * _number(header, "attention.head_count_kv", n_heads)
    return n_kv_heads * (key + value) * _HALF


def _number(header: Header, key: str, default: int = 0) -> int:
    value = header.of_architecture(key)
    if isinstance(value, list):
        value = max(value, default=default)
    return int(value) if isinstance(value, int | float) else default


def free_memory(root: Path = Path("/")) -> int:
    """Return the bytes that this process can still take without swapping.

    The limits of its control groups (v2 and v1) and of its address space are respected. `root` is where
    /sys and /proc are looked for.
    """
    limits = [psutil.virtual_memory().available, *_address_space()]
    limits += [left for group in control_groups("memory", root) for left in _left_in(group)]
    return max(0, min(limits))


def _left_in(group: Path) -> list[int]:
    """Return what a control group leaves, the pages of files counted as free; nothing where it has no limit."""
    for limit_name, usage_name in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        limit, usage = read_text(group / limit_name), read_text(group / usage_name)
        if limit is not None and limit != "max" and usage is not None:
            return [int(limit) - int(usage) + _file_pages(group)]
    return []


def _file_pages(group: Path) -> int:
    lines = (read_text(group / "memory.stat") or "").splitlines()
    counts = dict(line.split(maxsplit=1) for line in lines)
    prefix = "total_" if "total_inactive_file" in counts else ""  # v1 counts groups below in these only
    return sum(int(counts.get(f"{prefix}{kind}_file", 0)) for kind in ("active", "inactive"))


def _address_space() -> list[int]:
    if sys.platform == "win32":
        return []
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return []
    return [limit - psutil.Process().memory_info().vms - _unused_addresses()]


def _unused_addresses() -> int:
    """Return how many addresses loading and evaluating take beyond the memory that they use."""
    if sys.platform == "win32":
        return 0
    import resource

    stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
    return _ARENAS + (usable_physical_cores() + _OTHER_THREADS) * (_STACK if stack == resource.RLIM_INFINITY else stack)


def check_memory(target: Header, draft: Header | None, n_ctx: int, others: int = 0, caches: int = 1) -> None:
    """Make sure that the models fit into the memory that is free, and so many bytes of other things.

    Args:
        target: the target.
        draft: the draft model.
        n_ctx: tokens of a cache.
        others: bytes of other things.
        caches: how many caches each model has.

    Raises:
        ModelError: they don't; says how much is needed for what, and what would fit.
    """
    free = max(0, free_memory() - others)
    models = [target] if draft is None else [target, draft]
    if _total(models, n_ctx, caches) <= free:
        return
    parts = "; ".join(_described(header, n_ctx, caches) for header in models)
    raise ModelError(
        f"{_amount(_total(models, n_ctx, caches))} of memory are needed with {n_ctx:,} tokens of context and "
        f"{_amount(free)} are free ({parts}); {_what_fits(target, draft, n_ctx, free, caches)}"
    )


def _total(models: list[Header], n_ctx: int, caches: int) -> int:
    needs = [memory_need(header, n_ctx) for header in models]
    return sum(need.weights + caches * (need.cache + need.buffers) for need in needs)


def _described(header: Header, n_ctx: int, caches: int) -> str:
    need = memory_need(header, n_ctx)
    return (
        f"{header.files[0].name}: weights {_amount(need.weights)}, "
        f"cache {_amount(caches * need.cache)}, buffers {_amount(caches * need.buffers)}"
    )


def _what_fits(target: Header, draft: Header | None, n_ctx: int, free: int, caches: int) -> str:
    choices = []
    if draft is not None:
        if context := _largest_context([target, draft], n_ctx, free, caches):
            choices.append(f"{context:,} tokens of context")
        if context := _largest_context([target], n_ctx, free, caches):
            choices.append(f"{context:,} tokens without a draft model")
    elif context := _largest_context([target], n_ctx, free, caches):
        choices.append(f"{context:,} tokens of context")
    if choices:
        return f"{' or '.join(choices)} would fit (n_ctx, --ctx)"
    return "no context would fit: take a smaller model or quantization, or free memory"


def _largest_context(models: list[Header], n_ctx: int, free: int, caches: int) -> int:
    """Return the most tokens that fit, in whole steps of cells and at most `n_ctx`; 0 where none do."""
    fixed = _total(models, 0, caches)
    per_step = _total(models, _CELLS, caches) - fixed
    if per_step <= 0:
        return n_ctx if fixed <= free else 0
    return max(0, min(n_ctx, (free - fixed) // per_step * _CELLS))


def _amount(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:,.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:,.0f} MB"
